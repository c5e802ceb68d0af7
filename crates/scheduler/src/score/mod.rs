//! How good a node is for a pod: one row per plugin; profiles have the weights.
//!
//! A plugin gives each node that may be taken a number; all numbers of a plugin are then brought
//! to 0..=100, multiplied by its weight, and added up.
mod devices;
mod interpod;
mod node;
mod resources;
mod spread;
#[cfg(test)]
mod tests;
mod volumes;

pub use interpod::counted;

use crate::cluster::NodeRow;
use crate::filter::Cycle;

/// The best that a plugin can say of a node.
pub const MAX: i64 = 100;

pub struct Score {
    pub name: &'static str,
    /// One number per node, in their order; `None`: the pod does not care.
    score: fn(&Cycle<'_>, &[&NodeRow]) -> Option<Vec<i64>>,
}

pub static SCORES: &[Score] = &[
    Score { name: "TaintToleration", score: node::taints },
    Score { name: "NodeAffinity", score: node::affinity },
    Score { name: "NodeResourcesFit", score: resources::fit },
    Score { name: "VolumeBinding", score: volumes::score },
    Score { name: "PodTopologySpread", score: spread::score },
    Score { name: "InterPodAffinity", score: interpod::score },
    Score { name: "DynamicResources", score: devices::score },
    Score { name: "NodeResourcesBalancedAllocation", score: resources::balanced },
    Score { name: "ImageLocality", score: node::images },
];

/// The sum for each node.
pub fn score(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Vec<i64> {
    let mut sums = vec![0; nodes.len()];
    for (at, weight) in &cycle.profile.scores {
        let Some(scores) = (SCORES[usize::from(*at)].score)(cycle, nodes) else { continue };
        for (sum, score) in sums.iter_mut().zip(scores) {
            *sum += score * weight;
        }
    }
    sums
}

/// What each plugin says of each node, weights and all.
pub fn by_plugin(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Vec<(&'static str, Vec<i64>)> {
    let rows = cycle.profile.scores.iter().map(|(at, weight)| {
        let row = &SCORES[usize::from(*at)];
        let scores = (row.score)(cycle, nodes).unwrap_or_else(|| vec![0; nodes.len()]);
        (row.name, scores.into_iter().map(|score| score * weight).collect())
    });
    rows.collect()
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
