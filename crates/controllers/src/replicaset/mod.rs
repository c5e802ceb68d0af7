//! So many pods of one template: of a ReplicaSet, or of a ReplicationController, its older form.
mod rank;
mod replication_controller;
mod status;
#[cfg(test)]
mod tests;

pub use rank::{worst_first, youngest_first};

use crate::action::Action;
use crate::claim::{Claimed, claim};
use crate::driver::{Controller, Watching};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use api::rules::Form;
use api::selector::label::Selector;
use client::events::reference;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use std::borrow::Cow;
use std::sync::Arc;

pub const CONTROLLER: Controller = Controller {
    name: "replicaset-controller",
    account: "replicaset-controller",
    workers: 5,
    watch: watch::<ReplicaSet>,
    reconcile: reconcile::<ReplicaSet>,
};

pub const REPLICATION_CONTROLLER: Controller = Controller {
    name: "replicationcontroller-controller",
    account: "replication-controller",
    workers: 5,
    watch: watch::<ReplicationController>,
    reconcile: reconcile::<ReplicationController>,
};

/// Pods that are created or deleted in one turn at most: upstream's.
const BURST: usize = 500;

/// What has pods of one template.
pub trait Replicated: Form + Clone {
    /// Itself, or the set that it would be.
    fn as_set(&self) -> Cow<'_, ReplicaSet>;
    /// Itself, with what its set says of its pods.
    fn with_status(&self, status: ReplicaSetStatus) -> Self;
    /// Pods that are spread over nodes together with its own.
    fn related(&self, world: &World) -> Vec<Arc<Pod>>;
}

fn watch<T: Replicated>(on: &Watching) {
    on.objects::<T>();
    on.owned::<Pod, T>(|owner: &T| selector(&owner.as_set()));
}

pub fn selector(set: &ReplicaSet) -> Selector {
    Selector::from_label_selector(Some(&set.spec.selector)).unwrap_or_else(|_| Selector::nothing())
}

pub fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

fn reconcile<T: Replicated>(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(owner) = world.get::<T>(key) else { return Vec::new() };
    let set = owner.as_set();
    let Claimed { objects, mut actions } = claim(&*owner, &selector(&set), world, pods::is_active);
    let (active, ended): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|pod: &Arc<Pod>| pods::is_active(pod));
    let terminating = ended.iter().filter(|pod| pods::is_terminating(pod)).count();
    let seen = status::Seen { pods: active, terminating };

    // A set that is being deleted still reports its status; its pods belong to the garbage
    // collector.
    if set.metadata.deletion_timestamp.is_none() {
        let failed = status::when_failed(owner.clone(), seen.clone(), now);
        actions.extend(
            manage(&*owner, &set, &seen.pods, world, now)
                .map(|changes| Action::Several { actions: changes, otherwise: Some(failed) }),
        );
    }
    actions.extend(status::change(&*owner, &seen, None, now));
    let min_ready = status::min_ready_seconds(&set);
    let next = pods::next_available(seen.pods.iter().map(|pod| &**pod), min_ready, now);
    actions.extend(next.map(Action::Again));
    actions
}

/// Pods to be made, or to be deleted.
fn manage<T: Replicated>(
    owner: &T,
    set: &ReplicaSet,
    pods: &[Arc<Pod>],
    world: &World,
    now: Timestamp,
) -> Option<Vec<Action>> {
    let wanted = replicas(set).max(0) as usize;
    let about = reference(owner);
    if pods.len() < wanted {
        let template = set.spec.template.as_ref()?;
        let pod = pods::from_template(template, owner);
        let missing = (wanted - pods.len()).min(BURST);
        return Some((0..missing).map(|_| Action::create_for(about.clone(), &pod)).collect());
    }
    let excess = (pods.len() - wanted).min(BURST);
    if excess == 0 {
        return None;
    }
    let worst = worst_first(pods, &owner.related(world), now);
    Some(worst.iter().take(excess).map(|pod| Action::delete_for(about.clone(), &**pod)).collect())
}

impl Replicated for ReplicaSet {
    fn as_set(&self) -> Cow<'_, ReplicaSet> {
        Cow::Borrowed(self)
    }

    fn with_status(&self, status: ReplicaSetStatus) -> ReplicaSet {
        ReplicaSet { status: Some(status), ..self.clone() }
    }

    /// Pods of all sets that have the same controller: of two pods, the one that has more of them
    /// beside it on its node is the first to go.
    fn related(&self, world: &World) -> Vec<Arc<Pod>> {
        let uid_of = |set: &ReplicaSet| set.metadata.uid.clone().unwrap_or_default();
        let owners = self.metadata.owner_references.as_deref();
        let sets = match api::owner::controller_of(owners) {
            Some(owner) => world.controlled::<ReplicaSet>(&owner.uid),
            None => return world.controlled::<Pod>(&uid_of(self)),
        };
        sets.iter().flat_map(|set| world.controlled::<Pod>(&uid_of(set))).collect()
    }
}
