//! A bound on the number of `Update` managers: the oldest are merged, per version, into one.
use super::managed_fields::{Entry, ManagedFields, Manager, Operation};
use std::collections::BTreeMap;

const MAX_UPDATE_MANAGERS: usize = 10;
const OLD_UPDATES: &str = "ancient-changes";

pub(super) fn cap_update_managers(managed: &mut ManagedFields<'_>) {
    let updaters = || managed.entries.iter().filter(|entry| !entry.is_applier());
    let mut count = updaters().count();
    if count <= MAX_UPDATE_MANAGERS {
        return;
    }
    let mut updaters: Vec<(i64, String, Manager)> = updaters()
        .map(|entry| (entry.seconds(), entry.manager.identifier(), entry.manager.clone()))
        .collect();
    updaters.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let mut first_of_version: BTreeMap<String, Manager> = BTreeMap::new();
    for (_, _, manager) in updaters {
        if count <= MAX_UPDATE_MANAGERS {
            return;
        }
        let version = manager.api_version.clone();
        // One of a kind is left as it is; from the second on they share a bucket.
        let Some(first) = first_of_version.get(&version) else {
            first_of_version.insert(version, manager);
            continue;
        };
        let bucket = Manager {
            name: OLD_UPDATES.to_owned(),
            operation: Operation::Update,
            api_version: version,
            subresource: String::new(),
        };
        let gathered = managed
            .remove(&bucket)
            .or_else(|| managed.remove(first))
            .map(Entry::into_fields)
            .unwrap_or_default();
        if let Some(entry) = managed.remove(&manager) {
            let time = entry.time;
            managed.set(&bucket, entry.into_fields().union(gathered), time);
            count -= 1;
        }
    }
}
