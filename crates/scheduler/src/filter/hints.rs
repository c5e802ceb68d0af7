//! Whether what happened to one node may let a pod fit there (upstream's queueing hints).
//!
//! A pod that was refused for what nodes are by themselves is tried again only if the node would do now.
//! What depends on other nodes and their pods as well is tried again whenever something happens.
use super::{Cycle, FILTERS, mask};
use crate::cluster::{Cluster, NodeRow};
use crate::config::Profile;
use crate::pod::PodInfo;
use std::sync::{Arc, LazyLock};

/// Filters that look at the node, its pods and nothing else.
static LOCAL: LazyLock<u32> = LazyLock::new(|| {
    let names = [
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "NodeDeclaredFeatures",
    ];
    names.into_iter().fold(0, |all, name| all | mask(name))
});

/// Whose events a pod has to hear of that these refused. Where a node is judged by all filters of this
/// kind, it may be any of them that it waits for: a node that comes is often tainted at first.
pub fn judges(filters: u32) -> u32 {
    if filters & !*LOCAL == 0 { *LOCAL } else { filters }
}

/// `filters`: those that refused the pod.
pub fn may_fit(
    cluster: &Cluster,
    profile: &Profile,
    pod: &Arc<PodInfo>,
    filters: u32,
    row: &NodeRow,
) -> bool {
    // Devices may stand for a resource that the node does not have.
    if filters == 0 || filters & !*LOCAL != 0 || !pod.wishes.containers.is_empty() {
        return true;
    }
    let cycle = Cycle::alone(cluster, profile, pod);
    let mut asked = profile.filters.iter().map(|at| usize::from(*at));
    asked.all(|at| {
        *LOCAL & (1 << at) == 0
            || !(FILTERS[at].concerns)(&cycle)
            || (FILTERS[at].check)(&cycle, row).is_ok()
    })
}
