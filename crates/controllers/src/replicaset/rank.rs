//! Which pods go first: of a ReplicaSet (`ActivePodsWithRanks` in upstream's controller_utils.go) and of
//! a Job (`ActivePods`), which knows no costs, no neighbours and no ages that count as one.
use crate::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::sync::Arc;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub fn worst_first(all: &[Arc<Pod>], related: &[Arc<Pod>], now: Timestamp) -> Vec<Arc<Pod>> {
    let mut on_node: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|pod| pods::is_active(pod)) {
        *on_node.entry(pods::node(pod)).or_default() += 1;
    }
    let beside = |pod: &Pod| on_node.get(pods::node(pod)).copied().unwrap_or_default();
    let mut sorted = all.to_vec();
    sorted.sort_by(|a, b| {
        let plain = |pod: &Pod| (stage(pod), deletion_cost(pod), Reverse(beside(pod)));
        plain(a)
            .cmp(&plain(b))
            .then_with(|| by_age(pods::ready_since(a), pods::ready_since(b), a, b, now))
            .then_with(|| restarts(b).cmp(&restarts(a)))
            .then_with(|| by_age(created(a), created(b), a, b, now))
    });
    sorted
}

/// As a Job does it: the less a pod has got done, the earlier it goes.
pub fn youngest_first(all: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    // No time is before any.
    let since = |time: Option<Timestamp>| (time.is_some(), Reverse(time));
    let mut sorted = all.to_vec();
    sorted.sort_by_key(|pod| {
        let ready = pods::ready_since(pod).filter(|_| pods::is_ready(pod));
        (stage(pod), since(ready), Reverse(restarts(pod)), since(created(pod)))
    });
    sorted
}

/// How far it has come: to a node, to running, to being ready.
fn stage(pod: &Pod) -> (bool, u8, bool) {
    (!pods::node(pod).is_empty(), ordinal(pods::phase(pod)), pods::is_ready(pod))
}

fn ordinal(phase: &str) -> u8 {
    match phase {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    }
}

fn deletion_cost(pod: &Pod) -> i32 {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(DELETION_COST)?.parse().ok()).unwrap_or_default()
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn restarts(pod: &Pod) -> (i32, i32) {
    let status = pod.status.as_ref();
    let all = |statuses: Option<&Vec<k8s_openapi::api::core::v1::ContainerStatus>>| {
        statuses.into_iter().flatten().map(|status| status.restart_count).max().unwrap_or_default()
    };
    let regular = all(status.and_then(|status| status.container_statuses.as_ref()));
    (regular, all(status.and_then(|status| status.init_container_statuses.as_ref())))
}

/// The younger first, but ages within a factor of two count as one, so that the pods that go are
/// spread over those that came at about the same time.
fn by_age(
    one: Option<Timestamp>,
    other: Option<Timestamp>,
    a: &Pod,
    b: &Pod,
    now: Timestamp,
) -> Ordering {
    let (one, other) = match (one, other) {
        (one, other) if one == other => return Ordering::Equal,
        (Some(one), Some(other)) => (one, other),
        (one, other) => return one.is_some().cmp(&other.is_some()),
    };
    let rank = |time: Timestamp| match now.duration_since(time).as_nanos() {
        age if age > 0 => (age as f64).log2() as i64,
        _ => -1,
    };
    rank(one).cmp(&rank(other)).then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
}
