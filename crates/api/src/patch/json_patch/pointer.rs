//! JSON pointers: from a path to the place it names.

use serde_json::{Map, Value};

use super::error::PlaceError;
use crate::atoi::atoi;

/// An object or a list, in which the last part of a path is a place.
pub enum Container<'a> {
    Object(&'a mut Map<String, Value>),
    Array(&'a mut Vec<Value>),
}

/// The container a path leads into, and the key there. What comes before the first slash is
/// ignored, as upstream does.
pub fn find<'a>(document: &'a mut Value, path: &str) -> Option<(Container<'a>, String)> {
    let (_, path) = path.split_once('/')?;
    let mut container = Container::of(document)?;
    let mut rest = path;
    while let Some((part, after)) = rest.split_once('/') {
        container = Container::of(container.into_place(&unescape(part))?)?;
        rest = after;
    }
    Some((container, unescape(rest)))
}

/// How many levels down a path leads.
pub fn parts(path: &str) -> usize {
    path.matches('/').count()
}

fn unescape(part: &str) -> String {
    if !part.contains('~') {
        return part.to_owned();
    }
    // One pass, so that `~01` is `~1`.
    let mut out = String::with_capacity(part.len());
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('~') {
        out.push_str(before);
        rest = after;
        let (text, length) = match after.as_bytes().first() {
            Some(b'0') => ('~', 1),
            Some(b'1') => ('/', 1),
            _ => ('~', 0),
        };
        out.push(text);
        rest = &rest[length..];
    }
    out.push_str(rest);
    out
}

impl<'a> Container<'a> {
    fn of(value: &'a mut Value) -> Option<Self> {
        match value {
            Value::Object(fields) => Some(Container::Object(fields)),
            Value::Array(items) => Some(Container::Array(items)),
            _ => None,
        }
    }

    /// How many values may have to make room for one, or close a gap.
    pub fn moved_by_change(&self) -> usize {
        match self {
            Container::Object(_) => 1,
            Container::Array(items) => items.len(),
        }
    }

    fn into_place(self, key: &str) -> Option<&'a mut Value> {
        match self {
            Container::Object(fields) => fields.get_mut(key),
            Container::Array(items) => {
                let index = existing_index(key, items.len()).ok()?;
                items.get_mut(index)
            }
        }
    }

    /// The value at a key; an absent field is `None`, an absent item an error.
    pub fn get(&mut self, key: &str) -> Result<Option<&mut Value>, PlaceError> {
        match self {
            Container::Object(fields) => Ok(fields.get_mut(key)),
            Container::Array(items) => {
                let index = existing_index(key, items.len())?;
                Ok(items.get_mut(index))
            }
        }
    }

    pub fn add(&mut self, key: &str, value: Value) -> Result<(), PlaceError> {
        match self {
            Container::Object(fields) => {
                fields.insert(key.to_owned(), value);
            }
            Container::Array(items) if key == "-" => items.push(value),
            Container::Array(items) => {
                let index = atoi(key)
                    .map_err(|source| PlaceError::NotAnIndex { key: key.to_owned(), source })?;
                items.insert(checked_index(index, items.len() + 1)?, value);
            }
        }
        Ok(())
    }

    pub fn remove(&mut self, key: &str) -> Result<Value, PlaceError> {
        match self {
            Container::Object(fields) => {
                fields.remove(key).ok_or_else(|| PlaceError::Nonexistent(key.to_owned()))
            }
            Container::Array(items) => {
                let index = existing_index(key, items.len())?;
                Ok(items.remove(index))
            }
        }
    }
}

fn existing_index(key: &str, length: usize) -> Result<usize, PlaceError> {
    checked_index(atoi(key)?, length)
}

/// A negative index counts from the end.
fn checked_index(index: i64, length: usize) -> Result<usize, PlaceError> {
    let absolute = if index < 0 { index + length as i64 } else { index };
    match usize::try_from(absolute) {
        Ok(absolute) if absolute < length => Ok(absolute),
        _ => Err(PlaceError::InvalidIndex(index)),
    }
}
