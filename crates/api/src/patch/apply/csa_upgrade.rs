//! From client-side to server-side apply: what a client owns as an updater becomes its own as an
//! applier, so that it can be given up by no longer applying it.
use super::managed_fields::{self, Error, ManagedFields, Operation};
use serde_json::{Value, json};

/// Moves the fields of the updaters called `csa_managers` to the applier `ssa_manager`. The list
/// is in the order in which upstream keeps it: the first of several is the one converted.
pub fn upgrade(
    list: Option<&Value>,
    csa_managers: &[&str],
    ssa_manager: &str,
    subresource: &str,
) -> Result<Option<Value>, Error> {
    let mut managed = ManagedFields::stored(list)?;
    for csa in csa_managers {
        upgrade_one(&mut managed, csa, ssa_manager, subresource);
    }
    Ok(match managed.is_empty() {
        true => None,
        false => Some(managed.encode_in_place()),
    })
}

/// The JSON patch that does so on the server, if there is anything to do. It fails if the object
/// has changed meanwhile.
pub fn patch(
    object: &Value,
    csa_managers: &[&str],
    ssa_manager: &str,
    subresource: &str,
) -> Result<Option<Value>, Error> {
    let before = managed_fields::of(object);
    let after = upgrade(before, csa_managers, ssa_manager, subresource)?;
    if after.as_ref() == before {
        return Ok(None);
    }
    let version = object.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    Ok(Some(json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": after},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ])))
}

fn upgrade_one(managed: &mut ManagedFields<'_>, csa: &str, ssa: &str, subresource: &str) {
    let entries = &mut managed.entries;
    let find =
        |entries: &[managed_fields::Entry<'_>], name: &str, operation, version: Option<&str>| {
            entries.iter().position(|entry| {
                let manager = &entry.manager;
                manager.name == name
                    && manager.operation == operation
                    && manager.subresource == subresource
                    && version.is_none_or(|version| manager.api_version == version)
            })
        };
    let at = match find(entries, ssa, Operation::Apply, None) {
        Some(at) => at,
        None => match find(entries, csa, Operation::Update, None) {
            Some(at) => {
                entries[at].become_applier(ssa);
                at
            }
            None => return,
        },
    };
    let version = entries[at].manager.api_version.clone();
    if let Some(other) = find(entries, csa, Operation::Update, Some(&version)) {
        let fields = entries[at].fields().clone().union(entries[other].fields().clone());
        entries[at].set_fields(fields);
    }
    entries.retain(|entry| {
        let manager = &entry.manager;
        !(manager.name == csa
            && manager.operation == Operation::Update
            && manager.subresource == subresource)
    });
}
