//! Pods of a kind spread over zones and nodes, as their constraints say or as is usual.
use super::MAX;
use crate::cluster::{NOWHERE, NodeRow, Topology};
use crate::filter::{Cycle, HOSTNAME, is_included};
use crate::pod::{PodInfo, Spread};
use std::sync::Arc;

pub fn score(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Option<Vec<i64>> {
    let pod = cycle.pod;
    let constraints: Vec<&Spread> = soft(cycle).collect();
    if constraints.is_empty() {
        return None;
    }
    let needs_all = cycle.constraints.needs_all;
    let places: Vec<Arc<Topology>> =
        constraints.iter().map(|it| cycle.cluster.topology(&it.topology_key)).collect();
    let is_placed =
        |row: &NodeRow| !needs_all || places.iter().all(|place| place.of_slot[row.slot] != NOWHERE);
    let counted: Vec<&&NodeRow> = nodes.iter().filter(|row| is_placed(row)).collect();
    let mut sums = vec![0.0; nodes.len()];
    for (constraint, place) in constraints.iter().zip(&places) {
        let pods = cycle.cluster.count(&pod.key.namespace, &constraint.selector);
        let is_host = *constraint.topology_key == *HOSTNAME;
        let (domains, size) = match is_host {
            true => (Vec::new(), counted.len()),
            false => by_domain(cycle, constraint, place, &pods, &counted, needs_all),
        };
        let weight = ((size + 2) as f64).ln();
        for (sum, row) in sums.iter_mut().zip(nodes) {
            let domain = place.of_slot[row.slot];
            if domain == NOWHERE {
                continue;
            }
            let count = if is_host {
                i64::from(pods[row.slot])
            } else {
                domains[domain as usize].unwrap_or(0)
            };
            *sum += count as f64 * weight + (constraint.max_skew - 1) as f64;
        }
    }
    let scores: Vec<Option<i64>> = nodes
        .iter()
        .zip(sums)
        .map(|(row, sum)| is_placed(row).then_some(f64::round(sum) as i64))
        .collect();
    Some(normalized(&scores))
}

/// Fewer is better; a node without a place is worst.
fn normalized(scores: &[Option<i64>]) -> Vec<i64> {
    let largest = scores.iter().flatten().copied().max().unwrap_or(0);
    let smallest = scores.iter().flatten().copied().min().unwrap_or(0);
    let one = |score: &Option<i64>| match score {
        None => 0,
        Some(_) if largest == 0 => MAX,
        Some(score) => MAX * (largest + smallest - score) / largest,
    };
    scores.iter().map(one).collect()
}

/// Pods in each domain that a candidate is in, and how many such domains there are.
fn by_domain(
    cycle: &Cycle<'_>,
    constraint: &Spread,
    place: &Topology,
    pods: &[u32],
    candidates: &[&&NodeRow],
    needs_all: bool,
) -> (Vec<Option<i64>>, usize) {
    let mut domains: Vec<Option<i64>> = vec![None; place.domains];
    let mut size = 0;
    let mut nowhere = false;
    for row in candidates {
        match domains.get_mut(place.of_slot[row.slot] as usize) {
            Some(domain @ None) => {
                *domain = Some(0);
                size += 1;
            }
            Some(Some(_)) => {}
            // All nodes without the label are one domain more.
            None => nowhere = true,
        }
    }
    let is_simple = !constraint.honors_taints && is_unpicky(cycle.pod);
    let others: Vec<Arc<Topology>> = match needs_all {
        true => soft(cycle).map(|it| cycle.cluster.topology(&it.topology_key)).collect(),
        false => Vec::new(),
    };
    for slot in cycle.cluster.order().iter().copied() {
        let Some(Some(count)) = domains.get_mut(place.of_slot[slot] as usize) else { continue };
        if others.iter().all(|other| other.of_slot[slot] != NOWHERE)
            && (is_simple || is_included(constraint, cycle.pod, cycle.cluster.row(slot)))
        {
            *count += i64::from(pods[slot]);
        }
    }
    (domains, size + usize::from(nowhere))
}

fn is_unpicky(pod: &PodInfo) -> bool {
    pod.wishes.node_selector.is_empty() && pod.wishes.node_terms.is_none()
}

fn soft<'a>(cycle: &'a Cycle<'_>) -> impl Iterator<Item = &'a Spread> {
    cycle.constraints.all.iter().filter(|constraint| !constraint.is_hard)
}
