//! Pods that do not tolerate what their node has come to are deleted, at once or after a while.
use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use api::placement::tolerates;
use client::events::{Happening, reference};
use client::source::{Delete, Patch};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use serde_json::json;

pub const CONTROLLER: Controller = Controller {
    name: "taint-eviction-controller",
    account: "node-controller",
    workers: 8,
    watch,
    reconcile,
};

fn watch(on: &Watching) {
    on.objects::<Pod>();
    on.each::<Node>(|world, change| {
        let taints = |node: Option<&Node>| node.map(no_execute).unwrap_or_default();
        if taints(change.old.as_deref()) == taints(change.new.as_deref()) {
            return Vec::new();
        }
        let pods = world.informer::<Pod>();
        let read = pods.read();
        let here = read.iter().filter(|(_, pod)| *pods::node(pod) == *change.key.name);
        here.map(|(key, _)| key.clone()).collect()
    });
}

fn no_execute(node: &Node) -> Vec<Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(pod) = world.get::<Pod>(key) else { return Vec::new() };
    let Some(node) = world.find::<Node>("", pods::node(&pod)) else { return Vec::new() };
    if !pods::is_active(&pod) {
        return Vec::new();
    }
    match due(&pod, &no_execute(&node), now) {
        None => Vec::new(),
        Some(at) if at > now => {
            vec![Action::Again(at.duration_since(now).try_into().unwrap_or_default())]
        }
        Some(_) => evict(&pod, now),
    }
}

/// When the pod has to go; `None`: it may stay.
fn due(pod: &Pod, taints: &[Taint], now: Timestamp) -> Option<Timestamp> {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref());
    let tolerations = tolerations.unwrap_or_default();
    let due_for = |taint: &Taint| {
        let matching = tolerations.iter().filter(|it| tolerates(it, taint));
        let seconds: Vec<Option<i64>> = matching.map(|it| it.toleration_seconds).collect();
        let since = taint.time_added.as_ref().map_or(now, |time| time.0);
        match seconds.iter().flatten().min() {
            _ if seconds.is_empty() => Some(now),
            // For ever, if none of them says for how long.
            None => None,
            Some(least) => Some(since + SignedDuration::from_secs((*least).clamp(0, 1 << 31))),
        }
    };
    taints.iter().filter_map(due_for).min()
}

/// The pod says why it goes, then it is deleted.
fn evict(pod: &Pod, now: Timestamp) -> Vec<Action> {
    let target = Target::of(pod);
    let note = format!("Marking for deletion Pod {}/{}", target.namespace, target.name);
    let condition = json!({ "type": "DisruptionTarget", "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": api::time::format_timestamp(now) });
    let patch = json!({ "metadata": { "uid": target.uid },
        "status": { "conditions": [condition] } });
    let options = Delete::uid(&target.uid);
    vec![
        Action::Record(Happening::normal(reference(pod), "TaintManagerEviction", note)),
        Action::Patch { object: target.clone(), part: "status", patch: Patch::Strategic(patch) },
        Action::Delete { object: target, options, tell: None },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::expect;

    #[test]
    fn pods_go_when_their_tolerance_ends() {
        let tolerate = |seconds: &str| {
            format!(
                "spec.tolerations=[{{\"key\":\"k\",\"operator\":\"Exists\",\"effect\":\"NoExecute\"{seconds}}}]"
            )
        };
        check_row(
            &CONTROLLER,
            &format!(
                "node n spec.taints=[{{\"key\":\"k\",\"effect\":\"NoExecute\",\"timeAdded\":\"2026-01-01T11:59:00Z\"}}]
                 node m
                 pod now node=n
                 pod ever node=n {}
                 pod later node=n {}
                 pod over node=n {}
                 pod elsewhere node=m",
                tolerate(""),
                tolerate(",\"tolerationSeconds\":300"),
                tolerate(",\"tolerationSeconds\":30"),
            ),
            &["default/now", "default/ever", "default/later", "default/over", "default/elsewhere"],
            expect![[r#"
                event TaintManagerEviction Marking for deletion Pod default/now
                patch pods/status now {"metadata":{"uid":"now-uid"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Taint manager: deleting due to NoExecute taint","reason":"DeletionByTaintManager","status":"True","type":"DisruptionTarget"}]}}
                delete pods default/now
                again after 240s
                event TaintManagerEviction Marking for deletion Pod default/over
                patch pods/status over {"metadata":{"uid":"over-uid"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Taint manager: deleting due to NoExecute taint","reason":"DeletionByTaintManager","status":"True","type":"DisruptionTarget"}]}}
                delete pods default/over
            "#]],
        );
    }
}
