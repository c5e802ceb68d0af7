//! A node that is not heard of is not ready, and its taints say what its conditions say.
//!
//! What makes pods leave it comes one node after another ([`zone`]): a control plane that cannot
//! hear half a zone is more likely to be wrong than half a zone to be lost.
mod zone;

use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use api::object::Object;
use client::events::{Happening, reference};
use client::source::Patch;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
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

/// What `--node-*` say.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// For how long a node may not be heard of.
    pub monitor_grace_period: SignedDuration,
    /// How many nodes a second pods may have to leave, in a zone that is well.
    pub eviction_rate: f64,
    /// And in a large zone that is not.
    pub secondary_eviction_rate: f64,
    /// The share of nodes that are not ready from which on a zone is not well.
    pub unhealthy_zone_threshold: f64,
    /// A zone with more nodes than that is large.
    pub large_cluster_size_threshold: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            monitor_grace_period: SignedDuration::from_secs(50),
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            unhealthy_zone_threshold: 0.55,
            large_cluster_size_threshold: 50,
        }
    }
}

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
    on.each::<Node>(|world, change| {
        let mut keys = vec![change.key.clone()];
        let ready = |node: Option<&Arc<Node>>| {
            node.and_then(|it| status_of(it, "Ready").map(str::to_owned))
        };
        if ready(change.old.as_ref()) != ready(change.new.as_ref()) {
            // Others may have waited for it.
            let nodes = world.informer::<Node>();
            let read = nodes.read();
            let waiting = read.iter().filter(|(_, it)| status_of(it, "Ready") != Some("True"));
            keys.extend(waiting.map(|(key, _)| key.clone()));
        }
        keys
    });
    on.reads::<Pod>();
    // Renewed every ten seconds by every node: no reason to look.
    on.reads::<Lease>();
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(node) = world.get::<Node>(key) else { return Vec::new() };
    let lease = world.find::<Lease>(LEASES, &key.name);
    let grace = world.settings.nodes.monitor_grace_period;
    let due = last_heard(&node, lease.as_deref(), world.started) + grace;
    let mut actions = taint(&node, world, now);
    if due > now {
        let wait = due.duration_since(now).try_into().unwrap_or_default();
        actions.push(Action::Again(wait));
    } else if KUBELETS.iter().any(|type_| status_of(&node, type_) != Some("Unknown")) {
        actions.push(verify(node, lease, world, now));
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
fn verify(node: Arc<Node>, cached: Option<Arc<Lease>>, world: &World, now: Timestamp) -> Action {
    let world = world.clone();
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
            _ => give_up(&node, &world, now),
        }
    };
    Action::Look { object, then: Box::new(then) }
}

fn give_up(node: &Node, world: &World, now: Timestamp) -> Vec<Action> {
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
        let pods = world.all::<Pod>();
        let here = pods.iter().filter(|pod| pods::node(pod) == name && pods::is_ready(pod));
        actions.extend(Action::at_once(here.flat_map(|pod| not_ready(pod, now))));
    }
    actions
}

/// Nobody can tell whether a pod there serves: it is left out of services until somebody can.
fn not_ready(pod: &Pod, now: Timestamp) -> [Action; 2] {
    let note = "Node is not ready";
    let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": { "conditions": [
        { "type": "Ready", "status": "False",
            "lastTransitionTime": api::time::format_timestamp(now) }] } });
    [
        Action::Record(Happening::warning(reference(pod), "NodeNotReady", note)),
        Action::Patch { object: Target::of(pod), part: "status", patch: Patch::Strategic(patch) },
    ]
}

/// The taints that the node's conditions ask for, in place of those they asked for before.
fn taint(node: &Node, world: &World, now: Timestamp) -> Vec<Action> {
    let is_unschedulable = node.spec.as_ref().is_some_and(|it| it.unschedulable == Some(true));
    let rows = TAINTS.iter().filter(|(type_, status, _)| status_of(node, type_) == Some(status));
    let mut wanted: Vec<(&str, &str)> =
        rows.clone().map(|(.., taint)| (*taint, "NoSchedule")).collect();
    wanted.extend(is_unschedulable.then_some((UNSCHEDULABLE, "NoSchedule")));
    // Whether it is ready decides about pods that run, too, when it is its turn.
    let mut actions = Vec::new();
    if let Some((.., leave)) = rows.clone().find(|(type_, ..)| *type_ == "Ready") {
        match zone::turn(node, world, now) {
            zone::Turn::Now(memo) => {
                wanted.push((*leave, "NoExecute"));
                actions.extend(memo.map(Action::Remember));
            }
            zone::Turn::Later(after) => actions.push(Action::Again(after)),
            zone::Turn::Never => {}
        }
    }

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
    if taints != old {
        actions.push(Action::Patch { object, part: "", patch: Patch::Merge(patch) });
    }
    actions
}

/// Whether pods have to leave the node already.
fn is_left(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let leave = |taint: &Taint| {
        taint.effect == "NoExecute" && [NOT_READY, UNREACHABLE].contains(&&*taint.key)
    };
    taints.iter().any(leave)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{after, check_row, check_run, check_written};
    use expect_test::{Expect, expect};

    /// Beside another node that is well.
    fn check(world: &str, expect: Expect) {
        check_row(&CONTROLLER, &format!("{world}\n node other ready"), &["n"], expect);
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
                remember Last(2026-01-01T12:00:00Z)
                patch nodes n {"metadata":{"resourceVersion":"2"},"spec":{"taints":[{"effect":"NoSchedule","key":"node.kubernetes.io/not-ready","timeAdded":"2026-01-01T12:00:00Z"},{"effect":"NoSchedule","key":"node.kubernetes.io/unschedulable","timeAdded":"2026-01-01T12:00:00Z"},{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","timeAdded":"2026-01-01T12:00:00Z"}]}}
                again after 20s
            "#]],
        );
        check(
            &format!("node n {}", heard("Unknown", "11:59:50")),
            expect![[r#"
                remember Last(2026-01-01T12:00:00Z)
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
    fn pods_leave_one_node_after_another_and_none_when_none_is_well() {
        let bad = |name: &str, zone: &str| {
            format!(
                "node {name} label:topology.kubernetes.io/zone={zone} {}\n",
                heard("False", "11:59:50")
            )
        };
        let both = format!(
            "{}{}node c label:topology.kubernetes.io/zone=z {}\n",
            bad("a", "z"),
            bad("b", "z"),
            heard("True", "11:59:50")
        );
        let mut leaving = 0;
        after(
            &CONTROLLER,
            &both,
            |_| {},
            |server| {
                let nodes = server.all::<Node>();
                leaving = nodes.iter().filter(|node| is_left(node)).count();
                let tainted = nodes.iter().filter(|node| node.spec.is_some()).count();
                assert_eq!(tainted, 2, "nothing is placed on either");
            },
        );
        assert_eq!(leaving, 1);
        check_row(
            &CONTROLLER,
            &bad("a", "z"),
            &["a"],
            expect![[r#"
            patch nodes a {"metadata":{"resourceVersion":"2"},"spec":{"taints":[{"effect":"NoSchedule","key":"node.kubernetes.io/not-ready","timeAdded":"2026-01-01T12:00:00Z"}]}}
            again after 40s
        "#]],
        );
        // Another zone is well: this one is lost.
        check_row(
            &CONTROLLER,
            &format!("{}node c ready", bad("a", "z")),
            &["a"],
            expect![[r#"
            remember Last(2026-01-01T12:00:00Z)
            patch nodes a {"metadata":{"resourceVersion":"2"},"spec":{"taints":[{"effect":"NoSchedule","key":"node.kubernetes.io/not-ready","timeAdded":"2026-01-01T12:00:00Z"},{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","timeAdded":"2026-01-01T12:00:00Z"}]}}
            again after 40s
        "#]],
        );
        // More than half of a small zone: rather nobody.
        let half = ["a", "b", "d"].map(|name| bad(name, "z")).concat();
        let world = format!("{half}node c ready label:topology.kubernetes.io/zone=z");
        check_row(
            &CONTROLLER,
            &world,
            &["a"],
            expect![[r#"
            patch nodes a {"metadata":{"resourceVersion":"2"},"spec":{"taints":[{"effect":"NoSchedule","key":"node.kubernetes.io/not-ready","timeAdded":"2026-01-01T12:00:00Z"}]}}
            again after 40s
        "#]],
        );
    }

    #[test]
    fn pods_of_a_silent_node_are_not_ready() {
        check_written(
            &CONTROLLER,
            &format!("node n {}\n pod p node=n ready\n pod q node=n", heard("True", "11:40:00")),
            expect![[r#"
                create events default/n.1886999c36a18000
                create events default/p.1886999c36a18000
                patch nodes n
                patch pods/status default/p
                update nodes/status n
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
