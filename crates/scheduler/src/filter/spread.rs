//! Constraints of topology spread that must hold (`DoNotSchedule`).
use super::{Cycle, Refusal, Verdict, node};
use crate::cluster::{Cluster, NOWHERE, NodeRow, Topology};
use crate::pod::{PodInfo, Spread};
use std::sync::Arc;

/// One constraint and the pods that it counts.
#[derive(Clone)]
pub struct HardSpread<'a> {
    constraint: &'a Spread,
    /// All of the pod's: a node counts only if it has the labels of all of them.
    all: &'a [Spread],
    topology: Arc<Topology>,
    /// Pods by domain; domains in which no node counts have none.
    counts: Vec<Option<i64>>,
    least: i64,
    counts_itself: bool,
}

pub fn count<'a>(cluster: &Cluster, pod: &'a PodInfo) -> Vec<HardSpread<'a>> {
    let all = &pod.wishes.spread;
    let hard = all.iter().filter(|constraint| constraint.is_hard);
    let mut spreads: Vec<HardSpread<'a>> = hard
        .map(|constraint| {
            let topology = cluster.topology(&constraint.topology_key);
            let counts = vec![None; topology.domains];
            let counts_itself = constraint.selector.matches(&pod.labels);
            HardSpread { constraint, all, topology, counts, least: 0, counts_itself }
        })
        .collect();
    if spreads.is_empty() {
        return spreads;
    }
    let topologies: Vec<_> = spreads.iter().map(|spread| spread.topology.clone()).collect();
    for spread in &mut spreads {
        let pods = cluster.count(&pod.key.namespace, &spread.constraint.selector);
        for row in cluster.nodes() {
            let everywhere = topologies.iter().all(|it| it.of_slot[row.slot] != NOWHERE);
            if everywhere && is_included(spread.constraint, pod, row) {
                let domain = spread.topology.of_slot[row.slot] as usize;
                *spread.counts[domain].get_or_insert(0) += i64::from(pods[row.slot]);
            }
        }
        spread.find_least();
    }
    spreads
}

/// Whether a constraint looks at a node at all.
pub fn is_included(constraint: &Spread, pod: &PodInfo, row: &NodeRow) -> bool {
    (!constraint.honors_affinity || node::matches_affinity(pod, row))
        && (!constraint.honors_taints || node::tolerates(pod, row))
}

impl HardSpread<'_> {
    fn find_least(&mut self) {
        let counted = self.counts.iter().flatten();
        let is_wide = counted.clone().count() as i64 >= self.constraint.min_domains;
        self.least = if is_wide { counted.copied().min().unwrap_or(0) } else { 0 };
    }

    pub fn changed(&mut self, own: &PodInfo, row: &NodeRow, pod: &PodInfo, by: i64) {
        let hard = self.all.iter().filter(|constraint| constraint.is_hard);
        let has_all = hard.into_iter().all(|it| row.label(&it.topology_key).is_some());
        if pod.key.namespace != own.key.namespace
            || !has_all
            || !self.constraint.selector.matches(&pod.labels)
            || !is_included(self.constraint, own, row)
        {
            return;
        }
        let domain = self.topology.of_slot[row.slot];
        if let Some(count) = self.counts.get_mut(domain as usize) {
            *count.get_or_insert(0) += by;
            self.find_least();
        }
    }
}

pub fn check(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    for spread in &cycle.spread {
        let domain = spread.topology.of_slot[row.slot];
        if domain == NOWHERE {
            return Err(Refusal::anyway(
                "node(s) didn't match pod topology spread constraints (missing required label)",
            ));
        }
        let here = spread.counts[domain as usize].unwrap_or(0);
        let skew = here + i64::from(spread.counts_itself) - spread.least;
        if skew > spread.constraint.max_skew {
            return Err(Refusal::for_now("node(s) didn't match pod topology spread constraints"));
        }
    }
    Ok(())
}
