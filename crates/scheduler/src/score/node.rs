//! Taints that pods would rather avoid, nodes that they prefer, images that are there already.
use super::normalize;
use crate::cluster::NodeRow;
use crate::filter::Cycle;
use crate::taints::{Effect, Toleration};

pub fn taints(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Option<Vec<i64>> {
    let about = cycle.pod.wishes.tolerations.iter().filter(|it| it.is_about_preference());
    let tolerations: Vec<Toleration> = about.cloned().collect();
    let count = |row: &&NodeRow| {
        let avoided = row.node.taints.iter().filter(|taint| {
            taint.effect == Effect::PreferNoSchedule && !taint.is_tolerated(&tolerations)
        });
        avoided.count() as i64
    };
    let mut scores: Vec<i64> = nodes.iter().map(count).collect();
    normalize(&mut scores, true);
    Some(scores)
}

pub fn affinity(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Option<Vec<i64>> {
    let preferred = &cycle.pod.wishes.preferred_nodes;
    let added = &cycle.profile.args.added_affinity.preferred;
    if preferred.is_empty() && added.is_empty() {
        return None;
    }
    let sum = |row: &&NodeRow| {
        let matching = added
            .iter()
            .chain(preferred)
            .filter(|(_, term)| term.matches(&row.node.name, &row.node.labels));
        matching.map(|(weight, _)| weight).sum()
    };
    let mut scores: Vec<i64> = nodes.iter().map(sum).collect();
    normalize(&mut scores, false);
    Some(scores)
}

const MEBIBYTE: i64 = 1 << 20;
/// Less than this is not worth a thought; more than this per image is as good as there.
const SMALL: i64 = 23 * MEBIBYTE;
const LARGE: i64 = 1000 * MEBIBYTE;

pub fn images(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Option<Vec<i64>> {
    let images = &cycle.pod.wishes.images;
    // An image that one node only has counts for little, so that pods do not pile up there.
    let total = cycle.cluster.len().max(1) as f64;
    let spread: Vec<f64> =
        images.iter().map(|name| cycle.cluster.nodes_with_image(name) as f64 / total).collect();
    if spread.iter().all(|share| *share == 0.0) {
        return None;
    }
    let largest = LARGE * images.len() as i64;
    let score = |row: &&NodeRow| {
        let sizes = images.iter().zip(&spread).filter_map(|(name, spread)| {
            let size = row.node.image_size(name)?;
            Some((size as f64 * spread) as i64)
        });
        let sum = sizes.sum::<i64>().clamp(SMALL, largest.max(SMALL));
        super::MAX * (sum - SMALL) / (largest - SMALL).max(1)
    };
    Some(nodes.iter().map(score).collect())
}
