//! Nodes on which a pod's volumes leave much room, or little, as its profile's shape says.
use crate::cluster::NodeRow;
use crate::filter::{Cycle, volumes};
use std::collections::BTreeMap;

pub fn score(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Option<Vec<i64>> {
    if !cycle.volumes.has_claims {
        return None;
    }
    let shape = &cycle.profile.args.storage_shape;
    let score = |row: &&NodeRow| {
        // By class: asked for, and there is.
        let mut classes: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        let Ok(plan) = volumes::plan(cycle, row) else { return 0 };
        for (class, asked, has) in volumes::given_space(&plan) {
            let sums = classes.entry(class).or_default();
            sums.0 += asked;
            sums.1 += has;
        }
        if plan.give.is_empty() {
            for (class, asked, has) in volumes::free_space(cycle, &plan, row) {
                let sums = classes.entry(class).or_default();
                // Volumes of one class come out of the same room.
                *sums = (sums.0 + asked, has);
            }
        }
        if classes.is_empty() {
            return 0;
        }
        let sum: i64 = classes
            .values()
            .map(|(asked, has)| match *has == 0 || asked > has {
                true => shape.at(100),
                false => shape.at(asked * 100 / has),
            })
            .sum();
        f64::round(sum as f64 / classes.len() as f64) as i64
    };
    Some(nodes.iter().map(score).collect())
}
