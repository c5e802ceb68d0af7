//! How good a node is for a pod: one row per plugin, with upstream's weights.
//!
//! A plugin gives each node that may be taken a number; all numbers of a plugin are then brought
//! to 0..=100, multiplied by its weight, and added up.
mod interpod;
mod node;
mod resources;
mod spread;
#[cfg(test)]
mod tests;

use crate::cluster::NodeRow;
use crate::filter::Cycle;

/// The best that a plugin can say of a node.
pub const MAX: i64 = 100;

pub struct Score {
    pub name: &'static str,
    pub weight: i64,
    /// One number per node, in their order; `None`: the pod does not care.
    score: fn(&Cycle<'_>, &[&NodeRow]) -> Option<Vec<i64>>,
}

pub static SCORES: &[Score] = &[
    Score { name: "TaintToleration", weight: 3, score: node::taints },
    Score { name: "NodeAffinity", weight: 2, score: node::affinity },
    Score { name: "NodeResourcesFit", weight: 1, score: resources::least_allocated },
    Score { name: "PodTopologySpread", weight: 2, score: spread::score },
    Score { name: "InterPodAffinity", weight: 2, score: interpod::score },
    Score { name: "NodeResourcesBalancedAllocation", weight: 1, score: resources::balanced },
    Score { name: "ImageLocality", weight: 1, score: node::images },
];

/// The sum for each node.
pub fn score(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Vec<i64> {
    let mut sums = vec![0; nodes.len()];
    for row in SCORES {
        let Some(scores) = (row.score)(cycle, nodes) else { continue };
        for (sum, score) in sums.iter_mut().zip(scores) {
            *sum += score * row.weight;
        }
    }
    sums
}

/// In proportion to the largest; `reverse`: the largest is the worst (upstream's
/// `DefaultNormalizeScore`).
fn normalize(scores: &mut [i64], reverse: bool) {
    let largest = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let share = if largest == 0 { 0 } else { MAX * *score / largest };
        *score = if reverse { MAX - share } else { share };
    }
}
