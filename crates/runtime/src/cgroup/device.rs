//! Which devices a group's processes may use: on v1 a list of rules in a file. A v2 group would need
//! a program in the kernel for it, which is not written yet.
use std::fs;
use std::io;
use std::path::PathBuf;

use super::{Group, hierarchies};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRule {
    /// `c`, `b`, or `a` for both.
    pub kind: char,
    /// None is any.
    pub major: Option<u32>,
    pub minor: Option<u32>,
    /// Some of `rwm`.
    pub access: String,
}

impl DeviceRule {
    fn line(&self) -> String {
        let number = |n: Option<u32>| n.map_or("*".to_owned(), |n| n.to_string());
        format!("{} {}:{} {}", self.kind, number(self.major), number(self.minor), self.access)
    }
}

/// Denies everything but `allowed`. Without a v1 hierarchy the caller keeps devices out by not
/// making any: a container without CAP_MKNOD has only those it was given.
pub fn restrict_devices(group: &Group, allowed: &[DeviceRule]) -> io::Result<()> {
    let Some(hierarchy) = hierarchies().iter().find(|h| h.has("devices")) else {
        return Ok(());
    };
    let folder: PathBuf = hierarchy.root.join(&group.path);
    fs::write(folder.join("devices.deny"), "a")?;
    for rule in allowed {
        fs::write(folder.join("devices.allow"), rule.line())?;
    }
    Ok(())
}
