//! What a node is: its name, whether it is cordoned, taints, labels, ports.
use super::{Cycle, Hopeless, Refusal, Verdict};
use crate::cluster::NodeRow;
use crate::pod::PodInfo;
use crate::taints::Taint;

pub fn name(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    match cycle.pod.node == row.node.name {
        true => Ok(()),
        false => Err(Refusal::anyway("node(s) didn't match the requested node name")),
    }
}

pub fn unschedulable(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    let tolerations = &cycle.pod.wishes.tolerations;
    match row.node.unschedulable && !Taint::unschedulable().is_tolerated(tolerations) {
        false => Ok(()),
        true => Err(Refusal::anyway("node(s) were unschedulable")),
    }
}

pub fn taints(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    match tolerates(cycle.pod, row) {
        true => Ok(()),
        false => Err(Refusal::anyway("node(s) had untolerated taint(s)")),
    }
}

pub fn tolerates(pod: &PodInfo, row: &NodeRow) -> bool {
    let tolerations = &pod.wishes.tolerations;
    row.node.taints.iter().all(|taint| !taint.forbids() || taint.is_tolerated(tolerations))
}

pub fn has_affinity(cycle: &Cycle<'_>) -> bool {
    let wishes = &cycle.pod.wishes;
    !wishes.node_selector.is_empty()
        || wishes.node_terms.is_some()
        || cycle.profile.args.added_affinity.required.is_some()
}

pub fn affinity(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    let added = cycle.profile.args.added_affinity.required.as_ref();
    if added.is_some_and(|terms| {
        !terms.iter().any(|term| term.matches(&row.node.name, &row.node.labels))
    }) {
        return Err(Refusal::anyway("node(s) didn't match scheduler-enforced node affinity"));
    }
    match matches_affinity(cycle.pod, row) {
        true => Ok(()),
        false => Err(Refusal::anyway("node(s) didn't match Pod's node affinity/selector")),
    }
}

pub fn matches_affinity(pod: &PodInfo, row: &NodeRow) -> bool {
    let wishes = &pod.wishes;
    let has = |(key, value): &(Box<str>, Box<str>)| row.label(key) == Some(value);
    wishes.node_selector.iter().all(has)
        && wishes.node_terms.as_ref().is_none_or(|terms| {
            terms.iter().any(|term| term.matches(&row.node.name, &row.node.labels))
        })
}

/// Alternatives that name nodes leave the others unasked; `None`: all are asked.
pub fn allowed(pod: &PodInfo) -> Option<Vec<&str>> {
    let terms = pod.wishes.node_terms.as_deref().filter(|terms| !terms.is_empty())?;
    let mut all = Vec::new();
    for term in terms {
        all.extend(term.only_names()?);
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}

/// A pod that wants to be on two nodes at once is on none.
pub fn conflict(pod: &PodInfo) -> Result<(), Hopeless> {
    match allowed(pod) {
        Some(names) if names.is_empty() => Err(Hopeless {
            filter: "NodeAffinity",
            message: "pod affinity terms conflict".to_owned(),
            is_error: false,
        }),
        _ => Ok(()),
    }
}

pub fn ports(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    let mut held = row.pods.iter().flat_map(|pod| &pod.wishes.ports);
    match held.any(|held| cycle.pod.wishes.ports.iter().any(|port| port.conflicts(held))) {
        false => Ok(()),
        true => Err(Refusal::for_now("node(s) didn't have free ports for the requested pod ports")),
    }
}

pub fn features(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    let declares = |name: &&str| row.node.features.iter().any(|other| **other == **name);
    match cycle.pod.wishes.features.iter().all(declares) {
        true => Ok(()),
        false => Err(Refusal::anyway("node(s) didn't match Pod's required features")),
    }
}
