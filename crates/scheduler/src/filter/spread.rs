//! Constraints of topology spread that must hold (`DoNotSchedule`).
use super::{Cycle, Refusal, Verdict, node};
use crate::cluster::{Cluster, NOWHERE, NodeRow, Topology};
use crate::config::{DefaultSpread, Profile};
use crate::pod::{PodInfo, Spread};
use api::selector::label::Selector;
use std::sync::{Arc, LazyLock};

/// How a pod is spread.
#[derive(Debug, Clone, Default)]
pub struct Constraints {
    pub all: Arc<[Spread]>,
    /// Nodes without one of the labels do not count. The usual constraints do without.
    pub needs_all: bool,
}

impl Constraints {
    /// What the pod says; if it says nothing, what its profile says of pods that belong together.
    pub fn of(cluster: &Cluster, profile: &Profile, pod: &PodInfo) -> Constraints {
        if !pod.wishes.spread.is_empty() {
            return Constraints { all: pod.wishes.spread.clone(), needs_all: true };
        }
        let usual = match &profile.args.default_spread {
            DefaultSpread::System => &*USUAL,
            DefaultSpread::List(list) => list,
        };
        let selector = match usual.is_empty() {
            true => None,
            false => cluster.owners.selector(pod),
        };
        let Some(selector) = selector else { return Constraints::default() };
        let constraint = |it: &Spread| Spread { selector: selector.clone(), ..it.clone() };
        let is_list = matches!(profile.args.default_spread, DefaultSpread::List(_));
        Constraints { all: usual.iter().map(constraint).collect(), needs_all: is_list }
    }
}

pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// How pods are spread that do not say: upstream's keys and skews.
static USUAL: LazyLock<Vec<Spread>> = LazyLock::new(|| {
    let keys = [(HOSTNAME, 3), ("topology.kubernetes.io/zone", 5)];
    let constraint = |(key, max_skew): (&str, i64)| Spread {
        is_hard: false,
        max_skew,
        topology_key: key.into(),
        selector: Selector::nothing(),
        min_domains: 1,
        honors_affinity: true,
        honors_taints: false,
    };
    keys.into_iter().map(constraint).collect()
});

/// One constraint and the pods that it counts.
#[derive(Clone)]
pub struct HardSpread {
    /// All of the pod's: a node counts only if it has the labels of all of them.
    all: Arc<[Spread]>,
    at: usize,
    topology: Arc<Topology>,
    /// Pods by domain; domains in which no node counts have none.
    counts: Vec<Option<i64>>,
    least: i64,
    counts_itself: bool,
}

pub fn count(cluster: &Cluster, pod: &PodInfo, constraints: &Constraints) -> Vec<HardSpread> {
    let all = &constraints.all;
    let hard = (0..all.len()).filter(|at| all[*at].is_hard);
    let mut spreads: Vec<HardSpread> = hard
        .map(|at| {
            let topology = cluster.topology(&all[at].topology_key);
            let counts = vec![None; topology.domains];
            let counts_itself = all[at].selector.matches(&pod.labels);
            HardSpread { all: all.clone(), at, topology, counts, least: 0, counts_itself }
        })
        .collect();
    if spreads.is_empty() {
        return spreads;
    }
    let topologies: Vec<_> = spreads.iter().map(|spread| spread.topology.clone()).collect();
    for spread in &mut spreads {
        let constraint = &all[spread.at];
        let pods = cluster.count(&pod.key.namespace, &constraint.selector);
        let wishes = &pod.wishes;
        let is_picky = constraint.honors_affinity
            && (!wishes.node_selector.is_empty() || wishes.node_terms.is_some());
        let is_simple = !constraint.honors_taints && !is_picky;
        for slot in cluster.order().iter().copied() {
            let everywhere = topologies.iter().all(|it| it.of_slot[slot] != NOWHERE);
            if everywhere && (is_simple || is_included(constraint, pod, cluster.row(slot))) {
                let domain = spread.topology.of_slot[slot] as usize;
                *spread.counts[domain].get_or_insert(0) += i64::from(pods[slot]);
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

impl HardSpread {
    fn constraint(&self) -> &Spread {
        &self.all[self.at]
    }

    fn find_least(&mut self) {
        let counted = self.counts.iter().flatten();
        let is_wide = counted.clone().count() as i64 >= self.constraint().min_domains;
        self.least = if is_wide { counted.copied().min().unwrap_or(0) } else { 0 };
    }

    pub fn changed(&mut self, own: &PodInfo, row: &NodeRow, pod: &PodInfo, by: i64) {
        let hard = self.all.iter().filter(|constraint| constraint.is_hard);
        let has_all = hard.into_iter().all(|it| row.label(&it.topology_key).is_some());
        if pod.key.namespace != own.key.namespace
            || !has_all
            || !self.constraint().selector.matches(&pod.labels)
            || !is_included(self.constraint(), own, row)
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
        if skew > spread.constraint().max_skew {
            return Err(Refusal::for_now("node(s) didn't match pod topology spread constraints"));
        }
    }
    Ok(())
}
