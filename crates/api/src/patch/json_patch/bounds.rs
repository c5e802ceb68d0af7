//! What the operations of a patch may do to a document together.
//!
//! Each operation is small, and ten thousand of them are not: `add` and `move` in turns nest a
//! document one level deeper each time, `copy` doubles it, and taking the first item of a long list
//! moves all others. So depth, copies and work are checked after each operation, not at the end.
use super::error::Error;
use super::{Limits, pointer};
use crate::depth;
use serde_json::Value;

pub struct Bounds<'a> {
    limits: &'a Limits,
    copied: usize,
    work: usize,
    /// The document has at most so many levels. Exact when a patch begins; later it may be more
    /// than there are, for an operation that makes a document shallower is not looked into.
    levels: usize,
}

impl<'a> Bounds<'a> {
    pub fn new(document: &Value, limits: &'a Limits) -> Self {
        Bounds { limits, copied: 0, work: 0, levels: depth::levels(document).0 }
    }

    /// A value is put at a path.
    pub fn put(&mut self, path: &str, value: &Value) -> Result<(), Error> {
        let (levels, values) = depth::levels(value);
        self.spend(values)?;
        let levels = levels + pointer::parts(path);
        if levels > depth::LIMIT {
            return Err(Error::TooDeep);
        }
        self.levels = self.levels.max(levels);
        Ok(())
    }

    /// A value is moved from a path to another. It is looked into only where it might be too deep
    /// for its new place.
    pub fn moved(&mut self, from: &str, to: &str, value: &Value) -> Result<(), Error> {
        let inside = self.levels.saturating_sub(pointer::parts(from));
        let levels = pointer::parts(to) + inside;
        if levels > depth::LIMIT {
            return self.put(to, value);
        }
        self.levels = self.levels.max(levels);
        Ok(())
    }

    /// A value is copied.
    pub fn copied(&mut self, value: &Value) -> Result<(), Error> {
        self.copied += value.to_string().len();
        let (copied, limit) = (self.copied, self.limits.copied_bytes);
        if copied > limit { Err(Error::CopySize { copied, limit }) } else { Ok(()) }
    }

    /// So many values are touched.
    pub fn spend(&mut self, values: usize) -> Result<(), Error> {
        self.work = self.work.saturating_add(values);
        if self.work > self.limits.work { Err(Error::TooMuchWork) } else { Ok(()) }
    }
}
