//! A resource or a kind together with its API group: the names that error messages use.
//!
//! Both are borrowed and `Copy`, so that a row of the registry and a parsed request path can name
//! themselves without allocating.

use std::fmt;

/// A resource in its group; prints as `deployments.apps`, or `pods` in the core group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource<'a> {
    pub group: &'a str,
    pub resource: &'a str,
}

/// A kind in its group; prints as `Deployment.apps`, or `Pod` in the core group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind<'a> {
    pub group: &'a str,
    pub kind: &'a str,
}

impl<'a> GroupResource<'a> {
    pub const fn new(group: &'a str, resource: &'a str) -> Self {
        GroupResource { group, resource }
    }

    pub const fn is_empty(&self) -> bool {
        self.group.is_empty() && self.resource.is_empty()
    }
}

impl<'a> GroupKind<'a> {
    pub const fn new(group: &'a str, kind: &'a str) -> Self {
        GroupKind { group, kind }
    }
}

impl fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        qualified(f, self.resource, self.group)
    }
}

impl fmt::Display for GroupKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        qualified(f, self.kind, self.group)
    }
}

fn qualified(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    f.write_str(name)?;
    if !group.is_empty() {
        write!(f, ".{group}")?;
    }
    Ok(())
}
