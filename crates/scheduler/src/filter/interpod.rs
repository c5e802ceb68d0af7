//! Pods that must be near other pods, or far from them, in both directions.
use super::{Cycle, Refusal, Verdict};
use crate::cluster::{Cluster, Kind, NOWHERE, NodeRow, Topology};
use crate::pod::PodInfo;
use crate::selectors::PodTerm;
use api::selector::label::Selector;
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
        let (topology, counts) = self.of(cluster, term);
        let domain = topology.of_slot.get(row.slot).copied().unwrap_or(NOWHERE);
        if let Some(count) = counts.get_mut(domain as usize) {
            *count += by;
            self.all += by;
        }
    }

    /// Many at once: rows and how many pods of each matter.
    fn note_all(
        &mut self,
        cluster: &Cluster,
        term: &PodTerm,
        rows: impl Iterator<Item = (usize, u32)>,
    ) {
        let (topology, counts) = self.of(cluster, term);
        let mut sum = 0;
        for (slot, pods) in rows {
            if let Some(count) = counts.get_mut(topology.of_slot[slot] as usize) {
                *count += i64::from(pods);
                sum += i64::from(pods);
            }
        }
        self.all += sum;
    }

    fn of(&mut self, cluster: &Cluster, term: &PodTerm) -> &mut (Arc<Topology>, Vec<i64>) {
        let known = self.by_label.iter().position(|(it, _)| it.key == term.topology_key);
        let at = known.unwrap_or_else(|| {
            let topology = cluster.topology(&term.topology_key);
            let none = vec![0; topology.domains];
            self.by_label.push((topology, none));
            self.by_label.len() - 1
        });
        &mut self.by_label[at]
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
        for rule in cluster.terms.all().filter(|rule| rule.kind == Kind::KeepsAway) {
            if selects(cluster, &rule.term, pod) {
                let rows = rule.rows.iter().map(|(slot, pods)| (*slot, *pods));
                counts.kept_away.note_all(cluster, &rule.term, rows);
            }
        }
        // What few terms ask for is counted already; the rest is looked for pod by pod.
        let alone = wishes.affinity.len() == 1;
        let near = wishes.affinity.iter().filter(|_| alone).map(|term| (term, true));
        let far = wishes.anti_affinity.iter().map(|term| (term, false));
        let mut slow = wishes.affinity.len() > 1;
        for (term, is_near) in near.chain(far) {
            let Some(namespace) = term.only_namespace() else {
                slow = true;
                continue;
            };
            let pods = cluster.count_all(namespace, &term.selector);
            let rows = pods.iter().copied().enumerate().filter(|(_, pods)| *pods > 0);
            let counts = if is_near { &mut counts.near } else { &mut counts.far };
            counts.note_all(cluster, term, rows);
        }
        if slow {
            for row in cluster.nodes() {
                for other in &row.pods {
                    counts.count_own(cluster, pod, row, other, 1, true);
                }
            }
        }
        counts
    }

    /// The terms that are counted as pods come and go, if they are asked for.
    pub fn counted(pod: &PodInfo) -> impl Iterator<Item = (&str, &Selector)> {
        let wishes = &pod.wishes;
        let alone = wishes.affinity.len() == 1;
        let near = wishes.affinity.iter().filter(move |_| alone);
        let terms = near.chain(&wishes.anti_affinity);
        terms.filter_map(|term| Some((term.only_namespace()?, &term.selector)))
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
        self.count_own(cluster, own, row, pod, by, false);
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
        only_slow: bool,
    ) {
        let affinity = &own.wishes.affinity;
        let is_counted = |term: &PodTerm| only_slow && term.only_namespace().is_some();
        let is_near_counted = affinity.len() == 1 && is_counted(&affinity[0]);
        if !affinity.is_empty()
            && !is_near_counted
            && affinity.iter().all(|term| selects(cluster, term, other))
        {
            affinity.iter().for_each(|term| self.near.note(cluster, row, term, by));
        }
        for term in &own.wishes.anti_affinity {
            if !is_counted(term) && selects(cluster, term, other) {
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
