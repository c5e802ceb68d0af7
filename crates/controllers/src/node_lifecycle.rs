//! A node that is not heard of is not ready, and its taints say what its conditions say.
use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use api::object::Object;
use client::events::{Happening, reference};
use client::source::Patch;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use std::sync::Arc;

pub const CONTROLLER: Controller = Controller {
    name: "node-lifecycle-controller",
    account: "node-controller",
    workers: 8,
    watch,
    reconcile,
};

/// Upstream's `--node-monitor-grace-period`.
const GRACE: SignedDuration = SignedDuration::from_secs(50);
const LEASES: &str = "kube-node-lease";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// A condition, the status in which it taints, and the taint.
const TAINTS: &[(&str, &str, &str)] = &[
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];
/// Conditions that only the kubelet knows. That of the network is the control plane's.
const KUBELETS: &[&str] = &["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

fn watch(on: &Watching) {
    on.objects::<Node>();
    // Renewed every ten seconds by every node: no reason to look.
    on.reads::<Lease>();
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(node) = world.get::<Node>(key) else { return Vec::new() };
    let lease = world.find::<Lease>(LEASES, &key.name);
    let due = last_heard(&node, lease.as_deref(), world.started) + GRACE;
    let mut actions: Vec<_> = taint(&node, now).into_iter().collect();
    if due > now {
        let wait = due.duration_since(now).try_into().unwrap_or_default();
        actions.push(Action::Again(wait));
    } else if KUBELETS.iter().any(|type_| status_of(&node, type_) != Some("Unknown")) {
        actions.push(verify(node, lease, now));
    }
    actions
}

fn conditions(node: &Node) -> impl Iterator<Item = &NodeCondition> {
    node.status.iter().flat_map(|status| status.conditions.iter().flatten())
}

fn status_of<'a>(node: &'a Node, type_: &str) -> Option<&'a str> {
    conditions(node).find(|it| it.type_ == type_).map(|it| it.status.as_str())
}

/// Nodes had no way to be heard before this control plane began to listen.
fn last_heard(node: &Node, lease: Option<&Lease>, started: Timestamp) -> Timestamp {
    let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref());
    let ready = conditions(node).find(|it| it.type_ == "Ready");
    let ready = ready.and_then(|it| it.last_heartbeat_time.as_ref());
    let created = node.metadata.creation_timestamp.as_ref();
    let times = [renewed.map(|it| it.0), ready.map(|it| it.0), created.map(|it| it.0)];
    times.into_iter().flatten().fold(started, Timestamp::max)
}

/// A cache of leases that lags behind would make every node unreachable at once, so the server is
/// asked before a node is given up.
fn verify(node: Arc<Node>, cached: Option<Arc<Lease>>, now: Timestamp) -> Action {
    let object = Target {
        resource: client::ApiResource::of::<Lease>(),
        namespace: LEASES.to_owned(),
        name: node.metadata.name.clone().unwrap_or_default(),
        uid: String::new(),
    };
    let then = move |live: Option<Arc<Object>>| {
        let seen = cached.and_then(|lease| lease.metadata.resource_version.clone());
        match live.map(|live| live.resource_version()) {
            Some(version) if Some(&version) != seen.as_ref() => {
                vec![Action::Again(std::time::Duration::from_secs(1))]
            }
            _ => give_up(&node, now),
        }
    };
    Action::Look { object, then: Box::new(then) }
}

fn give_up(node: &Node, now: Timestamp) -> Vec<Action> {
    let mut changed = node.clone();
    let all = changed.status.get_or_insert_default().conditions.get_or_insert_default();
    for type_ in KUBELETS {
        match all.iter_mut().find(|it| it.type_ == *type_) {
            Some(known) if known.status == "Unknown" => {}
            Some(known) => {
                known.status = "Unknown".to_owned();
                known.reason = Some("NodeStatusUnknown".to_owned());
                known.message = Some("Kubelet stopped posting node status.".to_owned());
                known.last_transition_time = Some(Time(now));
            }
            None => all.push(NodeCondition {
                type_: (*type_).to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(Time(now)),
            }),
        }
    }
    let mut actions = vec![Action::update_part("status", &changed)];
    if status_of(node, "Ready") == Some("True") {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let note = format!("Node {name} status is now: NodeNotReady");
        let happening = Happening::normal(reference(node), "NodeNotReady", note);
        actions.push(Action::Record(happening));
    }
    actions
}

/// The taints that the node's conditions ask for, in place of those they asked for before.
fn taint(node: &Node, now: Timestamp) -> Option<Action> {
    let is_unschedulable = node.spec.as_ref().is_some_and(|it| it.unschedulable == Some(true));
    let rows = TAINTS.iter().filter(|(type_, status, _)| status_of(node, type_) == Some(status));
    let mut wanted: Vec<(&str, &str)> =
        rows.clone().map(|(.., taint)| (*taint, "NoSchedule")).collect();
    wanted.extend(is_unschedulable.then_some((UNSCHEDULABLE, "NoSchedule")));
    // Whether it is ready decides about pods that run, too.
    wanted.extend(rows.filter(|(type_, ..)| *type_ == "Ready").map(|(.., it)| (*it, "NoExecute")));

    let old = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let is_ours = |taint: &Taint| match taint.effect.as_str() {
        "NoSchedule" => {
            taint.key == UNSCHEDULABLE || TAINTS.iter().any(|(.., key)| *key == taint.key)
        }
        "NoExecute" => {
            // A node that has not said yet whether it is ready keeps what it has.
            [NOT_READY, UNREACHABLE].contains(&&*taint.key) && status_of(node, "Ready").is_some()
        }
        _ => false,
    };
    let is_wanted = |taint: &Taint| wanted.contains(&(&*taint.key, &*taint.effect));
    let mut taints: Vec<Taint> =
        old.iter().filter(|taint| !is_ours(taint) || is_wanted(taint)).cloned().collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
            taints.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                value: None,
                time_added: Some(Time(now)),
            });
        }
    }
    let patch = json!({ "metadata": { "resourceVersion": node.metadata.resource_version },
        "spec": { "taints": taints } });
    let object = Target::of(node);
    (taints != old).then(|| Action::Patch { object, part: "", patch: Patch::Merge(patch) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_row, check_run};
    use expect_test::{Expect, expect};

    fn check(world: &str, expect: Expect) {
        check_row(&CONTROLLER, world, &["n"], expect);
    }

    fn heard(status: &str, at: &str) -> String {
        format!(
            "status.conditions=[{{\"type\":\"Ready\",\"status\":\"{status}\",\"lastHeartbeatTime\":\"2026-01-01T{at}Z\"}}]"
        )
    }

    #[test]
    fn a_node_that_is_ready_loses_the_taint_it_was_made_with() {
        let taints = "spec.taints=[{\"key\":\"node.kubernetes.io/not-ready\",\"effect\":\"NoSchedule\"},{\"key\":\"mine\",\"effect\":\"NoExecute\"}]";
        check(
            &format!("node n {taints} {}", heard("True", "11:59:30")),
            expect![[r#"
            patch nodes n {"metadata":{"resourceVersion":"2"},"spec":{"taints":[{"effect":"NoExecute","key":"mine"}]}}
            again after 20s
        "#]],
        );
    }

    #[test]
    fn a_node_that_is_not_ready_or_cordoned_is_tainted() {
        check(
            &format!("node n spec.unschedulable=true {}", heard("False", "11:59:30")),
            expect![[r#"
                patch nodes n {"metadata":{"resourceVersion":"2"},"spec":{"taints":[{"effect":"NoSchedule","key":"node.kubernetes.io/not-ready","timeAdded":"2026-01-01T12:00:00Z"},{"effect":"NoSchedule","key":"node.kubernetes.io/unschedulable","timeAdded":"2026-01-01T12:00:00Z"},{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","timeAdded":"2026-01-01T12:00:00Z"}]}}
                again after 20s
            "#]],
        );
        check(
            &format!("node n {}", heard("Unknown", "11:59:50")),
            expect![[r#"
            patch nodes n {"metadata":{"resourceVersion":"2"},"spec":{"taints":[{"effect":"NoSchedule","key":"node.kubernetes.io/unreachable","timeAdded":"2026-01-01T12:00:00Z"},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","timeAdded":"2026-01-01T12:00:00Z"}]}}
            again after 40s
        "#]],
        );
    }

    #[test]
    fn the_lease_keeps_a_node_alive() {
        check(
            &format!(
                "node n {}
                 lease kube-node-lease/n spec.renewTime=2026-01-01T11:59:55.000000Z",
                heard("True", "11:40:00")
            ),
            expect![[r#"
                again after 45s
            "#]],
        );
    }

    #[test]
    fn a_silent_node_is_given_up() {
        check_run(
            &CONTROLLER,
            &format!(
                "node n {}
                 lease kube-node-lease/n spec.renewTime=2026-01-01T11:59:05.000000Z",
                heard("True", "11:40:00")
            ),
            expect![[r#"
                update nodes/status n
                create events default/n.1886999c36a18000
                patch nodes n
            "#]],
        );
    }
}
