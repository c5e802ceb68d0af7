//! Pods that would rather be near other pods, or far from them, in both directions.
use super::MAX;
use crate::cluster::NodeRow;
use crate::filter::{Cycle, selects};
use crate::pod::PodInfo;
use crate::selectors::PodTerm;
use std::collections::HashMap;

/// Weights of places: a label of nodes and its value.
#[derive(Default)]
struct Weights(HashMap<Box<str>, HashMap<Box<str>, i64>>);

impl Weights {
    fn add(&mut self, row: &NodeRow, term: &PodTerm, weight: i64) {
        let Some(value) = row.label(&term.topology_key) else { return };
        let values = self.0.entry(term.topology_key.clone()).or_default();
        *values.entry(value.into()).or_default() += weight;
    }
}

pub fn score(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Option<Vec<i64>> {
    let mut weights = Weights::default();
    let own = &cycle.pod.wishes.preferred_pods;
    if own.is_empty() && cycle.profile.args.ignore_preferred_terms_of_existing_pods {
        return None;
    }
    if own.is_empty() {
        for row in cycle.cluster.with_affinity() {
            let caring = row.pods.iter().filter(|pod| pod.has_affinity());
            caring.for_each(|other| wishes_of(cycle, &mut weights, row, other));
        }
    } else {
        for row in cycle.cluster.nodes() {
            for other in &row.pods {
                for (weight, term) in own {
                    if selects(cycle.cluster, term, other) {
                        weights.add(row, term, *weight);
                    }
                }
                wishes_of(cycle, &mut weights, row, other);
            }
        }
    }
    if weights.0.is_empty() {
        return None;
    }
    let sum = |row: &&NodeRow| -> i64 {
        let places = weights.0.iter();
        places.filter_map(|(key, values)| values.get(row.label(key)?)).sum()
    };
    let scores: Vec<i64> = nodes.iter().map(sum).collect();
    Some(normalized(&scores))
}

/// What a pod that is there says of ours.
fn wishes_of(cycle: &Cycle<'_>, weights: &mut Weights, row: &NodeRow, other: &PodInfo) {
    let args = &cycle.profile.args;
    let required = other.wishes.affinity.iter().map(|term| (args.hard_pod_affinity_weight, term));
    let preferred = other.wishes.preferred_pods.iter().map(|(weight, term)| (*weight, term));
    for (weight, term) in required.chain(preferred) {
        if selects(cycle.cluster, term, cycle.pod) {
            weights.add(row, term, weight);
        }
    }
}

fn normalized(scores: &[i64]) -> Vec<i64> {
    let largest = scores.iter().copied().max().unwrap_or(0);
    let smallest = scores.iter().copied().min().unwrap_or(0);
    let width = largest - smallest;
    let one = |score: &i64| match width {
        0 => 0,
        width => (MAX as f64 * ((score - smallest) as f64 / width as f64)) as i64,
    };
    scores.iter().map(one).collect()
}
