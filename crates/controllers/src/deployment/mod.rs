//! One template after another, rolled out over ReplicaSets: one for each template there was.
//!
//! A turn looks at the sets there are, changes copies of them ([`rollout`]), and at the end says
//! what has to be written: sets that differ, and one status.
mod proportion;
mod rollback;
mod rollout;
mod status;
pub mod template;
#[cfg(test)]
mod tests;

use crate::action::Action;
use crate::claim::{Claimed, claim};
use crate::driver::{Controller, Watching, is_a};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use api::owner;
use api::selector::label::Selector;
use client::events::{Happening, reference};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use rollout::Rollout;

pub const CONTROLLER: Controller = Controller {
    name: "deployment-controller",
    account: "deployment-controller",
    workers: 5,
    watch,
    reconcile,
};

fn watch(on: &Watching) {
    on.objects::<Deployment>();
    on.owned::<ReplicaSet, Deployment>(selector);
    // Recreate waits until the last old pod is gone.
    on.each::<Pod>(|world, change| match &change.new {
        Some(_) => Vec::new(),
        None => change.old.iter().filter_map(|pod| deployment_of(world, pod)).collect(),
    });
}

fn deployment_of(world: &World, pod: &Pod) -> Option<NamespacedName> {
    let namespace = pod.metadata.namespace.as_deref()?;
    let set = owner::controller_of(pod.metadata.owner_references.as_deref())?;
    let set = NamespacedName::new(namespace, &set.name);
    let set = world.informer::<ReplicaSet>().get(&set)?;
    let owner = owner::controller_of(set.metadata.owner_references.as_deref())?;
    let is_ours = is_a::<Deployment>(&owner.api_version, &owner.kind);
    is_ours.then(|| NamespacedName::new(namespace, &owner.name))
}

fn selector(deployment: &Deployment) -> Selector {
    let selector = Selector::from_label_selector(Some(&deployment.spec.selector));
    // One that would select everything is treated as a mistake.
    selector.ok().filter(|it| !it.is_everything()).unwrap_or_else(Selector::nothing)
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(deployment) = world.get::<Deployment>(key) else { return Vec::new() };
    let selector = selector(&deployment);
    if selector.is_nothing() {
        let note =
            "This deployment is selecting all pods. A non-empty selector is required.".to_owned();
        return vec![Action::Record(Happening::warning(
            reference(&*deployment),
            "SelectingAll",
            note,
        ))];
    }
    let Claimed { objects, mut actions } = claim(&*deployment, &selector, world, |_| true);
    let is_idle =
        deployment.metadata.deletion_timestamp.is_some() || deployment.spec.paused == Some(true);
    if !is_idle && let Some(back) = rollback::reconcile(&deployment, &objects) {
        actions.extend(back);
        return actions;
    }
    let mut rollout = Rollout::new(&deployment, &objects, now);
    if deployment.metadata.deletion_timestamp.is_some() {
        rollout.count();
    } else if rollout.is_paused() || rollout.is_being_scaled() {
        rollout.note_pause();
        rollout.scale();
        rollout.count();
    } else {
        rollout.note_pause();
        match rollout.is_rolling() {
            true => rollout.roll(),
            false => rollout.recreate(|uid| {
                world.controlled::<Pod>(uid).iter().any(|pod| !pods::is_finished(pod))
            }),
        }
        rollout.count();
        rollout.judge_progress();
    }
    actions.extend(rollout.actions(objects));
    actions
}
