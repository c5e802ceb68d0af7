//! Pods that must be near other pods, or far from them, in both directions.
use super::{Cycle, Refusal, Verdict};
use crate::cluster::{Cluster, NOWHERE, NodeRow, Topology};
use crate::pod::PodInfo;
use crate::selectors::PodTerm;
use std::sync::Arc;

/// How many pods matter in each place, by the label of nodes that says what a place is. Labels are
/// few.
#[derive(Clone, Default)]
struct Counts {
    by_label: Vec<(Arc<Topology>, Vec<i64>)>,
    all: i64,
}

impl Counts {
    fn is_empty(&self) -> bool {
        self.all == 0
    }

    fn note(&mut self, cluster: &Cluster, row: &NodeRow, term: &PodTerm, by: i64) {
        let known = self.by_label.iter().position(|(it, _)| it.key == term.topology_key);
        let at = known.unwrap_or_else(|| {
            let topology = cluster.topology(&term.topology_key);
            let none = vec![0; topology.domains];
            self.by_label.push((topology, none));
            self.by_label.len() - 1
        });
        let (topology, counts) = &mut self.by_label[at];
        let domain = topology.of_slot.get(row.slot).copied().unwrap_or(NOWHERE);
        if let Some(count) = counts.get_mut(domain as usize) {
            *count += by;
            self.all += by;
        }
    }

    /// How many there are in the node's place; `None`: it is in no such place.
    fn at(&self, row: &NodeRow, term: &PodTerm) -> Option<i64> {
        let Some((topology, counts)) =
            self.by_label.iter().find(|(it, _)| it.key == term.topology_key)
        else {
            return row.label(&term.topology_key).map(|_| 0);
        };
        counts.get(topology.of_slot[row.slot] as usize).copied()
    }

    /// There are some in any of the node's places.
    fn any(&self, row: &NodeRow) -> bool {
        let mut here = self
            .by_label
            .iter()
            .filter_map(|(topology, counts)| counts.get(topology.of_slot[row.slot] as usize));
        here.any(|count| *count > 0)
    }
}

#[derive(Clone, Default)]
pub struct InterPod {
    /// Places of pods that keep this one away.
    kept_away: Counts,
    /// Places of pods that it wants to be near to; they match all of its terms.
    near: Counts,
    /// Places of pods that it wants to be far from.
    far: Counts,
    has_terms: bool,
}

impl InterPod {
    pub fn count(cluster: &Cluster, pod: &PodInfo) -> InterPod {
        let wishes = &pod.wishes;
        let has_terms = !wishes.affinity.is_empty() || !wishes.anti_affinity.is_empty();
        let mut counts = InterPod { has_terms, ..InterPod::default() };
        for row in cluster.with_anti_affinity() {
            for other in &row.pods {
                counts.count_kept_away(cluster, pod, row, other, 1);
            }
        }
        if has_terms {
            for row in cluster.nodes() {
                for other in &row.pods {
                    counts.count_own(cluster, pod, row, other, 1);
                }
            }
        }
        counts
    }

    pub fn is_needed(&self) -> bool {
        self.has_terms || !self.kept_away.is_empty()
    }

    pub fn changed(
        &mut self,
        cluster: &Cluster,
        own: &PodInfo,
        row: &NodeRow,
        pod: &PodInfo,
        by: i64,
    ) {
        self.count_kept_away(cluster, own, row, pod, by);
        self.count_own(cluster, own, row, pod, by);
    }

    fn count_kept_away(
        &mut self,
        cluster: &Cluster,
        own: &PodInfo,
        row: &NodeRow,
        other: &PodInfo,
        by: i64,
    ) {
        for term in &other.wishes.anti_affinity {
            if selects(cluster, term, own) {
                self.kept_away.note(cluster, row, term, by);
            }
        }
    }

    fn count_own(
        &mut self,
        cluster: &Cluster,
        own: &PodInfo,
        row: &NodeRow,
        other: &PodInfo,
        by: i64,
    ) {
        let affinity = &own.wishes.affinity;
        if !affinity.is_empty() && affinity.iter().all(|term| selects(cluster, term, other)) {
            affinity.iter().for_each(|term| self.near.note(cluster, row, term, by));
        }
        for term in &own.wishes.anti_affinity {
            if selects(cluster, term, other) {
                self.far.note(cluster, row, term, by);
            }
        }
    }
}

/// Whether the term is about the pod.
pub fn selects(cluster: &Cluster, term: &PodTerm, pod: &PodInfo) -> bool {
    let namespace = &pod.key.namespace;
    term.matches(namespace, cluster.namespace_labels(namespace), &pod.labels)
}

pub fn check(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    let (counts, wishes) = (&cycle.interpod, &cycle.pod.wishes);
    if !is_near(cycle, row) {
        return Err(Refusal::anyway("node(s) didn't match pod affinity rules"));
    }
    if wishes.anti_affinity.iter().any(|term| counts.far.at(row, term).unwrap_or(0) > 0) {
        return Err(Refusal::for_now("node(s) didn't match pod anti-affinity rules"));
    }
    if counts.kept_away.any(row) {
        return Err(Refusal::for_now("node(s) didn't satisfy existing pods anti-affinity rules"));
    }
    Ok(())
}

/// Each term has a pod in the node's place. The first of a group that wants to be near itself may
/// be anywhere.
fn is_near(cycle: &Cycle<'_>, row: &NodeRow) -> bool {
    let terms = &cycle.pod.wishes.affinity;
    let found: Option<Vec<i64>> =
        terms.iter().map(|term| cycle.interpod.near.at(row, term)).collect();
    let Some(found) = found else { return false };
    let is_first = || {
        cycle.interpod.near.is_empty()
            && terms.iter().all(|term| selects(cycle.cluster, term, cycle.pod))
    };
    found.iter().all(|count| *count > 0) || is_first()
}
