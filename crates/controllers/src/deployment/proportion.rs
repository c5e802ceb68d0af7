//! How a change of size is shared out among the sets of a rollout that is under way.
use super::rollout::{annotation, replicas};
use k8s_openapi::api::apps::v1::ReplicaSet;
use std::cmp::Reverse;

pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// The size before and after of a deployment, for one turn.
pub struct Sizes {
    pub wanted: i32,
    pub surge: i32,
    /// What its status counted last.
    pub counted: i32,
}

/// New sizes of sets that are not empty, the largest first.
pub fn share_out(sets: &mut [&mut ReplicaSet], sizes: &Sizes) {
    let total: i32 = sets.iter().map(|set| replicas(set)).sum();
    let allowed = if sizes.wanted > 0 { sizes.wanted + sizes.surge } else { 0 };
    let to_add = allowed - total;
    if to_add == 0 {
        return;
    }
    // Of two of the same size, the newer grows and the older shrinks first.
    sets.sort_by_key(|set| Reverse(replicas(set)));
    let created = |set: &ReplicaSet| set.metadata.creation_timestamp.clone();
    match to_add > 0 {
        true => sets.sort_by_key(|set| (Reverse(replicas(set)), Reverse(created(set)))),
        false => sets.sort_by_key(|set| (Reverse(replicas(set)), created(set))),
    }
    let mut added = 0;
    for set in sets.iter_mut() {
        let share = match (fraction(set, sizes), to_add - added) {
            (_, 0) => 0,
            (fraction, rest) if to_add > 0 => fraction.min(rest),
            (fraction, rest) => fraction.max(rest),
        };
        added += share;
        set.spec.replicas = Some(replicas(set) + share);
    }
    if let Some(largest) = sets.first_mut() {
        largest.spec.replicas = Some((replicas(largest) + to_add - added).max(0));
    }
}

fn fraction(set: &ReplicaSet, sizes: &Sizes) -> i32 {
    let size = replicas(set);
    if sizes.wanted == 0 {
        return -size;
    }
    let before = annotation(set, MAX).filter(|max| *max != 0).unwrap_or(sizes.counted);
    if before == 0 {
        return 0;
    }
    let now = f64::from(size) * f64::from(sizes.wanted + sizes.surge) / f64::from(before);
    now.round() as i32 - size
}
