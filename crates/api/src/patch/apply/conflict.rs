//! Conflicts: fields that another manager owns and an apply would change.
use super::fieldset::{Path, Set};
use super::managed_fields::{Manager, Operation};
use crate::patch::golang::quote;
use std::fmt::{self, Display, Formatter};

/// One field, and who owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub manager: Manager,
    pub path: Path,
}

/// Sorted by manager; each manager's fields in the order of its set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conflicts(pub Vec<Conflict>);

/// The type of a conflict's cause in a `Status`.
pub const CAUSE_TYPE: &str = "FieldManagerConflict";

impl Conflict {
    /// The message of the conflict's cause in a `Status`; its field is the path.
    pub fn cause(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

impl Conflicts {
    pub(super) fn new(mut sets: Vec<(Manager, Set)>) -> Conflicts {
        sets.sort_by_cached_key(|(manager, _)| manager.identifier());
        let conflicts = sets.into_iter().flat_map(|(manager, set)| {
            set.paths().into_iter().map(move |path| Conflict { manager: manager.clone(), path })
        });
        Conflicts(conflicts.collect())
    }

    /// The conflicts over fields that are not in `set`.
    pub(super) fn outside(self, set: &Set) -> Conflicts {
        Conflicts(self.0.into_iter().filter(|conflict| !set.has(&conflict.path.0)).collect())
    }
}

/// The manager as upstream's messages name it.
impl Display for Manager {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&quote(&self.name))?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {}", quote(&self.subresource))?;
        }
        match self.operation {
            Operation::Update => write!(f, " using {}", self.api_version),
            Operation::Apply => Ok(()),
        }
    }
}

impl Display for Conflicts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let [only] = &self.0[..] {
            let Conflict { manager, path } = only;
            return write!(f, "Apply failed with 1 conflict: conflict with {manager}: {path}");
        }
        let groups = self.0.chunk_by(|a, b| a.manager == b.manager).map(|group| {
            let paths: String = group.iter().map(|one| format!("\n- {}", one.path)).collect();
            format!("conflicts with {}:{paths}", group[0].manager)
        });
        let groups: Vec<String> = groups.collect();
        write!(f, "Apply failed with {} conflicts: {}", self.0.len(), groups.join("\n"))
    }
}
