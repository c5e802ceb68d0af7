//! Pods that must be near other pods, or far from them, in both directions.
use super::{Cycle, Refusal, Verdict};
use crate::cluster::{Cluster, NodeRow};
use crate::pod::PodInfo;
use crate::selectors::PodTerm;
use std::collections::HashMap;

/// How many pods matter in each place: by a label of nodes, and its value. Labels are few.
#[derive(Clone, Default)]
struct Counts(Vec<(Box<str>, ByValue)>);

type ByValue = HashMap<Box<str>, i64>;

impl Counts {
    fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, values)| values.is_empty())
    }

    fn note(&mut self, row: &NodeRow, term: &PodTerm, by: i64) {
        let Some(value) = row.label(&term.topology_key) else { return };
        let known = self.0.iter().position(|(key, _)| *key == term.topology_key);
        let at = known.unwrap_or_else(|| {
            self.0.push((term.topology_key.clone(), HashMap::new()));
            self.0.len() - 1
        });
        let values = &mut self.0[at].1;
        let count = values.entry(value.into()).or_default();
        *count += by;
        if *count == 0 {
            values.remove(value);
        }
    }

    /// How many there are in the node's place; `None`: it is in no such place.
    fn at(&self, row: &NodeRow, term: &PodTerm) -> Option<i64> {
        let value = row.label(&term.topology_key)?;
        let known = self.0.iter().find(|(key, _)| *key == term.topology_key);
        Some(known.and_then(|(_, values)| values.get(value)).copied().unwrap_or(0))
    }

    /// There are some in any of the node's places.
    fn any(&self, row: &NodeRow) -> bool {
        let mut here = self.0.iter().filter_map(|(key, values)| values.get(row.label(key)?));
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
                self.kept_away.note(row, term, by);
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
            affinity.iter().for_each(|term| self.near.note(row, term, by));
        }
        for term in &own.wishes.anti_affinity {
            if selects(cluster, term, other) {
                self.far.note(row, term, by);
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
