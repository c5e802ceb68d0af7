//! Pods that would rather be near other pods, or far from them, in both directions.
use super::MAX;
use crate::cluster::{Cluster, Kind, NodeRow, Topology};
use crate::filter::{Cycle, selects};
use crate::pod::PodInfo;
use crate::selectors::PodTerm;
use api::selector::label::Selector;
use std::sync::Arc;

/// Weights of places, by the label of nodes that says what a place is. Labels are few.
#[derive(Default)]
struct Weights(Vec<(Arc<Topology>, Vec<i64>)>);

impl Weights {
    fn add(
        &mut self,
        cluster: &Cluster,
        term: &PodTerm,
        weight: i64,
        rows: impl Iterator<Item = (usize, u32)>,
    ) {
        let known = self.0.iter().position(|(it, _)| it.key == term.topology_key);
        let at = known.unwrap_or_else(|| {
            let topology = cluster.topology(&term.topology_key);
            let none = vec![0; topology.domains];
            self.0.push((topology, none));
            self.0.len() - 1
        });
        let (topology, weights) = &mut self.0[at];
        for (slot, pods) in rows {
            if let Some(sum) = weights.get_mut(topology.of_slot[slot] as usize) {
                *sum += weight * i64::from(pods);
            }
        }
    }
}

pub fn score(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Option<Vec<i64>> {
    let (cluster, args) = (cycle.cluster, &cycle.profile.args);
    let own = &cycle.pod.wishes.preferred_pods;
    if own.is_empty() && (args.ignore_preferred_terms_of_existing_pods || cluster.terms.is_empty())
    {
        return None;
    }
    let mut weights = Weights::default();
    for (weight, term) in own {
        match term.only_namespace() {
            Some(namespace) => {
                let pods = cluster.count_all(namespace, &term.selector);
                let rows = pods.iter().copied().enumerate().filter(|(_, pods)| *pods > 0);
                weights.add(cluster, term, *weight, rows);
            }
            None => {
                for row in cluster.nodes() {
                    let meant = row.pods.iter().filter(|pod| selects(cluster, term, pod));
                    let count = meant.count() as u32;
                    weights.add(cluster, term, *weight, std::iter::once((row.slot, count)));
                }
            }
        }
    }
    // What pods that are there say of ours.
    for rule in cluster.terms.all() {
        let weight = match rule.kind {
            Kind::KeepsAway => continue,
            Kind::Near => args.hard_pod_affinity_weight,
            Kind::Prefers(weight) => weight,
        };
        if selects(cluster, &rule.term, cycle.pod) {
            let rows = rule.rows.iter().map(|(slot, pods)| (*slot, *pods));
            weights.add(cluster, &rule.term, weight, rows);
        }
    }
    if weights.0.is_empty() {
        return None;
    }
    let sum = |row: &&NodeRow| -> i64 {
        let places = weights.0.iter();
        places.filter_map(|(topology, sums)| sums.get(topology.of_slot[row.slot] as usize)).sum()
    };
    let scores: Vec<i64> = nodes.iter().map(sum).collect();
    Some(normalized(&scores))
}

/// The terms that are counted as pods come and go, if they are asked for.
pub fn counted(pod: &PodInfo) -> impl Iterator<Item = (&str, &Selector)> {
    let terms = pod.wishes.preferred_pods.iter();
    terms.filter_map(|(_, term)| Some((term.only_namespace()?, &term.selector)))
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
