//! Stored objects that cannot be read.
//!
//! There should be none: nothing is stored that readers do not take. If there is one all the same (a
//! disk, another program), it must not take the others with it. Whoever reads many objects goes on
//! without it, and says so here: in the log, in a metric, and in `/healthz` as long as it is there.
//! It is removed with `ignoreStoreReadErrorWithClusterBreakingPotential`, as upstream's is.
use api::kinds::Resource;
use api::status::Status;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use store::{Key, KeyValue, Store};

/// So many are remembered by name.
const MOST: usize = 100;

#[derive(Default)]
pub struct Unreadable(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// How often one was met, by group and resource.
    met: BTreeMap<(&'static str, &'static str), u64>,
    /// Which, at which revision.
    keys: BTreeMap<Key, u64>,
}

impl Unreadable {
    /// What could be read; of the rest is told.
    pub fn skip<T>(
        &self,
        stored: &KeyValue,
        resource: &Resource,
        read: Result<T, Status>,
    ) -> Option<T> {
        let status = match read {
            Ok(read) => return Some(read),
            Err(status) => status,
        };
        let mut known = self.0.lock();
        *known.met.entry((resource.group, resource.plural)).or_default() += 1;
        let revision = stored.mod_revision;
        if known.keys.len() < MOST
            && known.keys.insert(stored.key.clone(), revision) != Some(revision)
        {
            tracing::error!(key = %stored.key, revision, cause = status.message, "an object cannot be read and is left out");
        }
        None
    }

    /// Which objects cannot be read, of those that are still there.
    pub async fn remaining(&self, store: &Store) -> Vec<String> {
        let known: Vec<(Key, u64)> =
            self.0.lock().keys.iter().map(|(key, revision)| (key.clone(), *revision)).collect();
        let mut remaining = Vec::new();
        for (key, revision) in known {
            match store.get(key.as_ref()).await {
                Ok(found) if found.as_ref().is_none_or(|found| found.mod_revision != revision) => {
                    self.0.lock().keys.remove(&key);
                }
                _ => remaining.push(key.to_string()),
            }
        }
        remaining
    }

    /// The counters, as lines of the metrics page.
    pub fn metrics(&self) -> String {
        let name = "apiserver_storage_decode_errors_total";
        let mut out = format!(
            "# HELP {name} Stored objects that could not be read, by resource.\n# TYPE {name} counter\n"
        );
        for ((group, resource), count) in &self.0.lock().met {
            out += &format!("{name}{{group={group:?},resource={resource:?}}} {count}\n");
        }
        out
    }
}
