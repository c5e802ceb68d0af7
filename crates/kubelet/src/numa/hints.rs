//! Where a container's processors, memory and devices can come from, and where they come from together:
//! the decisions of upstream's topology manager (`pkg/kubelet/cm/topologymanager`).
use std::collections::{BTreeMap, BTreeSet};

/// Some of the machine's NUMA nodes.
pub type Nodes = BTreeSet<u32>;

/// What has enough, and whether nothing smaller could ever have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    pub nodes: Nodes,
    pub preferred: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// Nobody is asked.
    #[default]
    None,
    /// Near each other if it can be.
    BestEffort,
    /// Near each other, or not at all.
    Restricted,
    /// On one node, or not at all.
    SingleNumaNode,
}

/// The nodes that have enough of something, of those that there are.
pub fn hints(
    all: &Nodes,
    wanted: u64,
    total: impl Fn(&Nodes) -> u64,
    free: impl Fn(&Nodes) -> u64,
) -> Vec<Hint> {
    let mut least = usize::MAX;
    let mut found = Vec::new();
    for nodes in subsets(all) {
        if total(&nodes) >= wanted {
            least = least.min(nodes.len());
        }
        if free(&nodes) >= wanted {
            found.push(Hint { nodes, preferred: false });
        }
    }
    for hint in &mut found {
        hint.preferred = hint.nodes.len() == least;
    }
    found
}

/// Every choice of nodes but none at all; there are at most eight (`max-allowable-numa-nodes`).
fn subsets(all: &Nodes) -> Vec<Nodes> {
    let list: Vec<u32> = all.iter().copied().collect();
    let masks = 1u32..1 << list.len().min(16);
    let of = |mask: u32| {
        let own = list.iter().enumerate().filter(|(at, _)| mask & (1 << at) != 0);
        own.map(|(_, node)| *node).collect()
    };
    masks.map(of).collect()
}

/// Where everything comes from together, and whether the pod may run. A resource without a list does
/// not care; one with an empty list cannot be had anywhere.
pub fn merge(policy: Policy, all: &Nodes, lists: &[Option<Vec<Hint>>]) -> (Nodes, bool) {
    let anywhere = |preferred| vec![Hint { nodes: all.clone(), preferred }];
    // What matters of a combination is where it is and whether all liked it.
    let mut merged: BTreeMap<Nodes, bool> = [(all.clone(), true)].into();
    for list in lists {
        let list = match list {
            None => anywhere(true),
            Some(list) => {
                let fits = |hint: &&Hint| {
                    policy != Policy::SingleNumaNode || (hint.preferred && hint.nodes.len() == 1)
                };
                let list: Vec<Hint> = list.iter().filter(fits).cloned().collect();
                if list.is_empty() { anywhere(false) } else { list }
            }
        };
        let mut next: BTreeMap<Nodes, bool> = BTreeMap::new();
        for (nodes, liked) in &merged {
            for hint in &list {
                let both: Nodes = nodes.intersection(&hint.nodes).copied().collect();
                if !both.is_empty() {
                    *next.entry(both).or_default() |= *liked && hint.preferred;
                }
            }
        }
        merged = next;
    }
    let best = merged.into_iter().min_by_key(|(nodes, liked)| (!liked, nodes.len(), nodes.clone()));
    let (nodes, liked) = best.unwrap_or_else(|| (all.clone(), false));
    let may = matches!(policy, Policy::None | Policy::BestEffort) || liked;
    (nodes, may)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(text: &str) -> Nodes {
        text.split(',').filter(|part| !part.is_empty()).map(|part| part.parse().unwrap()).collect()
    }

    /// `0 1 0,1!`: those with a mark are not preferred.
    fn list(text: &str) -> Option<Vec<Hint>> {
        let one = |part: &str| Hint {
            nodes: nodes(part.trim_end_matches('!')),
            preferred: !part.ends_with('!'),
        };
        (text != "any").then(|| text.split_whitespace().map(one).collect())
    }

    fn check(policy: Policy, lists: &[&str], expected: &str) {
        let lists: Vec<_> = lists.iter().map(|text| list(text)).collect();
        let (found, may) = merge(policy, &nodes("0,1"), &lists);
        let shown: Vec<String> = found.iter().map(u32::to_string).collect();
        assert_eq!(format!("{} {may}", shown.join(",")), expected, "{policy:?} {lists:?}");
    }

    #[test]
    fn what_is_wanted_is_near_each_other() {
        for policy in [Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode] {
            check(policy, &["0 1 0,1!", "1 0,1!"], "1 true");
            check(policy, &["0 1 0,1!", "any"], "0 true");
            check(policy, &[], "0,1 true");
        }
        // What has to be on both nodes is as near as it can be.
        check(Policy::Restricted, &["0,1"], "0,1 true");
        check(Policy::SingleNumaNode, &["0,1"], "0,1 false");
        // Nothing in common, or nothing at all.
        check(Policy::BestEffort, &["0", "1"], "0,1 true");
        check(Policy::Restricted, &["0", "1"], "0,1 false");
        check(Policy::Restricted, &["0 1", ""], "0 false");
        check(Policy::BestEffort, &["0,1!"], "0,1 true");
        check(Policy::Restricted, &["0,1!"], "0,1 false");
    }

    #[test]
    fn hints_are_nodes_that_have_enough() {
        let on = |each: [u64; 2]| {
            move |nodes: &Nodes| nodes.iter().map(|node| each[*node as usize]).sum::<u64>()
        };
        let shown = |wanted, total, free| {
            let found = hints(&nodes("0,1"), wanted, on(total), on(free));
            let one = |hint: &Hint| {
                let nodes: Vec<String> = hint.nodes.iter().map(u32::to_string).collect();
                format!("{}{}", nodes.join(","), if hint.preferred { "" } else { "!" })
            };
            found.iter().map(one).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(2, [4, 4], [4, 4]), "0 1 0,1!");
        assert_eq!(shown(2, [4, 4], [1, 4]), "1 0,1!");
        assert_eq!(shown(2, [4, 4], [1, 1]), "0,1!");
        assert_eq!(shown(6, [4, 4], [4, 4]), "0,1");
        assert_eq!(shown(9, [4, 4], [4, 4]), "");
    }
}
