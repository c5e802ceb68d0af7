//! Pods that nobody else takes away: of nodes that are gone, of nodes that are known to be out of
//! service, deleted before they were anywhere, and of those that have ended the oldest when there
//! are too many.
use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use client::source::{Delete, Patch};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "pod-garbage-collector-controller",
    account: "pod-garbage-collector",
    workers: 1,
    watch,
    reconcile,
};

/// A node's name that is not known: it may only be about to be.
const QUARANTINE: Duration = Duration::from_secs(40);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Keys: pods, and `""` for all that have ended.
fn watch(on: &Watching) {
    on.each::<Pod>(|_, change| {
        let ended = change.new.as_deref().is_some_and(pods::is_finished);
        let all = ended.then(|| NamespacedName::new("", ""));
        [change.key.clone()].into_iter().chain(all).collect()
    });
    on.each::<Node>(|world, change| {
        let out = change.new.as_deref().is_some_and(is_out_of_service);
        if change.new.is_some() && !out {
            return Vec::new();
        }
        let pods = world.informer::<Pod>();
        let read = pods.read();
        let here = read.iter().filter(|(_, pod)| pods::node(pod) == &*change.key.name);
        here.map(|(key, _)| key.clone()).collect()
    });
}

fn is_out_of_service(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == OUT_OF_SERVICE)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    if key.name.is_empty() {
        return surplus(world, now);
    }
    let Some(pod) = world.get::<Pod>(key) else { return Vec::new() };
    let is_going = pod.metadata.deletion_timestamp.is_some();
    let name = pods::node(&pod);
    if name.is_empty() {
        return if is_going { remove(&pod, None, now) } else { Vec::new() };
    }
    match world.find::<Node>("", name) {
        Some(node) if is_going && is_out_of_service(&node) && !is_ready(&node) => {
            remove(&pod, None, now)
        }
        Some(_) => Vec::new(),
        None => {
            let unknown = since_lost(&pod, world, now);
            match Duration::try_from(QUARANTINE_TIME - unknown) {
                Ok(left) if !left.is_zero() => vec![Action::Again(left)],
                // The cache may lag behind: the server is asked before anything is lost.
                _ => vec![if_node_is_gone(&pod, name, now)],
            }
        }
    }
}

const QUARANTINE_TIME: SignedDuration = SignedDuration::from_secs(QUARANTINE.as_secs() as i64);

/// For how long nobody can have known the node: since we look, or since the pod was made.
fn since_lost(pod: &Pod, world: &World, now: Timestamp) -> SignedDuration {
    let made = pod.metadata.creation_timestamp.as_ref().map_or(world.started, |time| time.0);
    now.duration_since(made.max(world.started))
}

fn if_node_is_gone(pod: &Pod, node: &str, now: Timestamp) -> Action {
    let object = Target {
        resource: client::ApiResource::of::<Node>(),
        namespace: String::new(),
        name: node.to_owned(),
        uid: String::new(),
    };
    let removal = remove(pod, Some("PodGC: node no longer exists"), now);
    Action::Look {
        object,
        then: Box::new(move |found| if found.is_none() { removal } else { Vec::new() }),
    }
}

/// It is over for the pod: it has failed if it had not ended, and nobody is waited for.
fn remove(pod: &Pod, why: Option<&str>, now: Timestamp) -> Vec<Action> {
    let target = Target::of(pod);
    let mut actions = Vec::new();
    if !pods::is_finished(pod) {
        let mut patch =
            json!({ "metadata": { "uid": target.uid }, "status": { "phase": "Failed" } });
        if let Some(why) = why {
            patch["status"]["conditions"] = json!([{ "type": "DisruptionTarget", "status": "True",
                "reason": "DeletionByPodGC", "message": why,
                "lastTransitionTime": api::time::format_timestamp(now) }]);
        }
        let patch = Patch::Strategic(patch);
        actions.push(Action::Patch { object: target.clone(), part: "status", patch });
    }
    let options = Delete { grace_period_seconds: Some(0), ..Delete::uid(&target.uid) };
    actions.push(Action::Delete { object: target, options, tell: None });
    actions
}

/// Of those that have ended, the ones that were evicted go first, then the oldest.
fn surplus(world: &World, now: Timestamp) -> Vec<Action> {
    let mut ended: Vec<_> = world.all::<Pod>();
    ended.retain(|pod| pods::is_finished(pod) && pod.metadata.deletion_timestamp.is_none());
    let most = world.settings.terminated_pod_gc_threshold;
    let excess = ended.len().saturating_sub(most);
    if excess == 0 || most == 0 {
        return Vec::new();
    }
    ended.sort_by_key(|pod| {
        let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref());
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (reason != Some("Evicted"), created, pod.metadata.name.clone())
    });
    ended.iter().take(excess).flat_map(|pod| remove(pod, None, now)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::expect;

    #[test]
    fn pods_of_nobody_go() {
        check_row(
            &CONTROLLER,
            "node a
             node b spec.taints=[{\"key\":\"node.kubernetes.io/out-of-service\",\"effect\":\"NoExecute\"}]
             pod here node=a
             pod lost node=x
             pod young node=x age=10
             pod never deleting finalizers=x
             pod stuck node=b deleting finalizers=x
             pod ended node=x phase=Succeeded",
            &["default/here", "default/lost", "default/young", "default/never", "default/stuck", "default/ended"],
            expect![[r#"
                look at nodes x
                again after 30s
                patch pods/status never {"metadata":{"uid":"never-uid"},"status":{"phase":"Failed"}}
                delete pods default/never
                patch pods/status stuck {"metadata":{"uid":"stuck-uid"},"status":{"phase":"Failed"}}
                delete pods default/stuck
                look at nodes x
            "#]],
        );
    }
}
