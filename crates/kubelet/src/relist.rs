//! What happened in a runtime that does not tell: what it lists now and did not list before
//! (`pkg/kubelet/pleg/generic.go`).
use crate::found::POD_UID;
use crate::worker::Kubelet;
use std::collections::{BTreeMap, BTreeSet};

/// Sandboxes and containers of pods with their states, by the pods' uids.
pub type Listed = BTreeMap<String, BTreeSet<(String, i32)>>;

/// Looks at every pod again of which something changed since the last time.
pub async fn changed(kubelet: &Kubelet, last: &mut Listed) {
    let sandboxes = kubelet.runtime.list_pod_sandbox(Default::default()).await;
    let containers = kubelet.runtime.list_containers(Default::default()).await;
    let (Ok(sandboxes), Ok(containers)) = (sandboxes, containers) else { return };
    let mut now = Listed::new();
    let sandboxes = sandboxes.items.into_iter().map(|one| (one.labels, one.id, one.state));
    let containers = containers.containers.into_iter().map(|one| (one.labels, one.id, one.state));
    for (mut labels, id, state) in sandboxes.chain(containers) {
        // What is not a pod's is not ours.
        if let Some(uid) = labels.remove(POD_UID) {
            now.entry(uid).or_default().insert((id, state));
        }
    }
    differing(last, &now).into_iter().for_each(|uid| kubelet.queue.add(uid));
    *last = now;
}

fn differing(last: &Listed, now: &Listed) -> BTreeSet<String> {
    let all = last.keys().chain(now.keys());
    all.filter(|uid| last.get(*uid) != now.get(*uid)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_went_or_changed_is_told() {
        let listed = |rows: &[(&str, &str, i32)]| {
            let mut all = Listed::new();
            for (uid, id, state) in rows {
                all.entry(String::from(*uid)).or_default().insert((String::from(*id), *state));
            }
            all
        };
        let before = listed(&[("a", "1", 1), ("b", "2", 1), ("c", "3", 1)]);
        let after = listed(&[("a", "1", 1), ("b", "2", 2), ("d", "4", 0)]);
        let differing: Vec<String> = differing(&before, &after).into_iter().collect();
        assert_eq!(differing, ["b", "c", "d"]);
    }
}
