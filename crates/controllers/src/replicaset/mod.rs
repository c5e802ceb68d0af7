//! So many pods of one template.
mod rank;
mod status;
#[cfg(test)]
mod tests;

use crate::action::Action;
use crate::claim::{Claimed, claim};
use crate::driver::{Controller, Watching};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use api::selector::label::Selector;
use client::events::reference;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

pub const CONTROLLER: Controller = Controller {
    name: "replicaset-controller",
    account: "replicaset-controller",
    workers: 5,
    watch,
    reconcile,
};

/// Pods that are created or deleted in one turn at most: upstream's.
const BURST: usize = 500;

fn watch(on: &Watching) {
    on.objects::<ReplicaSet>();
    on.owned::<Pod, ReplicaSet>(selector);
}

pub fn selector(set: &ReplicaSet) -> Selector {
    Selector::from_label_selector(Some(&set.spec.selector)).unwrap_or_else(|_| Selector::nothing())
}

pub fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(set) = world.get::<ReplicaSet>(key) else { return Vec::new() };
    let Claimed { objects, mut actions } = claim(&*set, &selector(&set), world, pods::is_active);
    let (active, ended): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|pod: &Arc<Pod>| pods::is_active(pod));
    let terminating = ended.iter().filter(|pod| pods::is_terminating(pod)).count();
    let seen = status::Seen { pods: active, terminating };

    // A set that is being deleted still reports its status; its pods belong to the garbage
    // collector.
    if set.metadata.deletion_timestamp.is_none() {
        let failed = status::when_failed(set.clone(), seen.clone(), now);
        actions.extend(
            manage(&set, &seen.pods, world, now)
                .map(|changes| Action::Several { actions: changes, otherwise: Some(failed) }),
        );
    }
    actions.extend(status::change(&set, &seen, None, now));
    let min_ready = status::min_ready_seconds(&set);
    let next = pods::next_available(seen.pods.iter().map(|pod| &**pod), min_ready, now);
    actions.extend(next.map(Action::Again));
    actions
}

/// Pods to be made, or to be deleted.
fn manage(
    set: &Arc<ReplicaSet>,
    pods: &[Arc<Pod>],
    world: &World,
    now: Timestamp,
) -> Option<Vec<Action>> {
    let wanted = replicas(set).max(0) as usize;
    let owner = reference(&**set);
    if pods.len() < wanted {
        let template = set.spec.template.as_ref()?;
        let pod = pods::from_template(template, &**set);
        let missing = (wanted - pods.len()).min(BURST);
        return Some((0..missing).map(|_| Action::create_for(owner.clone(), &pod)).collect());
    }
    let excess = (pods.len() - wanted).min(BURST);
    if excess == 0 {
        return None;
    }
    let worst = rank::worst_first(pods, &related(set, world), now);
    Some(worst.iter().take(excess).map(|pod| Action::delete_for(owner.clone(), &**pod)).collect())
}

/// Pods of all sets that have the same controller: of two pods, the one that has more of them
/// beside it on its node is the first to go.
fn related(set: &ReplicaSet, world: &World) -> Vec<Arc<Pod>> {
    let uid_of = |set: &ReplicaSet| set.metadata.uid.clone().unwrap_or_default();
    let owners = set.metadata.owner_references.as_deref();
    let sets = match api::owner::controller_of(owners) {
        Some(owner) => world.controlled::<ReplicaSet>(&owner.uid),
        None => return world.controlled::<Pod>(&uid_of(set)),
    };
    sets.iter().flat_map(|set| world.controlled::<Pod>(&uid_of(set))).collect()
}
