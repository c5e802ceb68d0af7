//! Claims get their volumes: one that is there and fits, or one that a provisioner makes.
//!
//! Both ends say that they are bound: the volume's `claimRef` first, then the claim's
//! `volumeName`, then the volume's phase, then the claim's. Whoever stops in between has lost
//! nothing: each turn writes what is still missing, and no object twice.
//!
//! Keys are claims, and with no namespace volumes.
mod claim;
mod matching;
#[cfg(test)]
mod tests;
mod volume;

use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use api::rules::Form;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::borrow::Cow;
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "persistentvolume-binder-controller",
    account: "persistent-volume-binder",
    workers: 1,
    watch,
    reconcile,
};

/// Says that both ends have been bound once: what is missing from then on is lost.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Says that we have bound it, so that we may undo it; a user's binding stays.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// What waits for somebody else is looked at again: upstream's `--pvclaimbinder-sync-period`.
const RESYNC: Duration = Duration::from_secs(15);

fn watch(on: &Watching) {
    on.each::<PersistentVolumeClaim>(|world, change| {
        let claims = change.old.iter().chain(&change.new);
        let named = claims.filter_map(|claim| claim.spec.as_ref()?.volume_name.clone());
        let mut keys: Vec<_> = named.map(|name| NamespacedName::new("", &name)).collect();
        // Volumes may name a claim that does not name them.
        if keys.is_empty() || change.new.is_none() {
            let volumes = world.informer::<PersistentVolume>();
            let read = volumes.read();
            let ours = read.iter().filter(|(_, it)| claim_of(it).as_ref() == Some(&change.key));
            keys.extend(ours.map(|(key, _)| key.clone()));
        }
        keys.push(change.key.clone());
        keys
    });
    on.each::<PersistentVolume>(|world, change| {
        let volumes = change.old.iter().chain(&change.new);
        let mut keys: Vec<_> = volumes.filter_map(|volume| claim_of(volume)).collect();
        if change.new.as_ref().is_none_or(|volume| volume_spec(volume).claim_ref.is_none()) {
            // Those that named it, and those that any volume would help.
            let claims = world.informer::<PersistentVolumeClaim>();
            let read = claims.read();
            let waiting = read.iter().filter(|(_, claim)| {
                let named = claim_spec(claim).volume_name.clone().unwrap_or_default();
                named.is_empty() || named == *change.key.name
            });
            keys.extend(waiting.map(|(key, _)| key.clone()));
        }
        keys.push(change.key.clone());
        keys
    });
    on.reads::<StorageClass>();
    on.reads::<Pod>();
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    if key.namespace.is_empty() {
        let volume = world.get::<PersistentVolume>(key);
        return volume.map(|volume| volume::reconcile(&volume, world)).unwrap_or_default();
    }
    let claim = world.get::<PersistentVolumeClaim>(key);
    claim.map(|claim| claim::reconcile(&claim, world)).unwrap_or_default()
}

fn volume_spec(volume: &PersistentVolume) -> Cow<'_, PersistentVolumeSpec> {
    volume.spec.as_ref().map_or_else(Cow::default, Cow::Borrowed)
}

fn claim_spec(claim: &PersistentVolumeClaim) -> Cow<'_, PersistentVolumeClaimSpec> {
    claim.spec.as_ref().map_or_else(Cow::default, Cow::Borrowed)
}

/// The claim that a volume names, though perhaps another of that name.
fn claim_of(volume: &PersistentVolume) -> Option<NamespacedName> {
    let named = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(NamespacedName::new(named.namespace.as_deref()?, named.name.as_deref()?))
}

/// The volume is for this claim, by its name, and if it knows a uid by that.
fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let spec = volume_spec(volume);
    let Some(named) = &spec.claim_ref else { return false };
    let is_known = named.uid.as_deref().is_some_and(|uid| !uid.is_empty());
    named.name == claim.metadata.name
        && named.namespace == claim.metadata.namespace
        && (!is_known || named.uid == claim.metadata.uid)
}

fn name<T: Form>(object: &T) -> &str {
    object.metadata().name.as_deref().unwrap_or_default()
}

fn annotation<'a, T: Form>(object: &'a T, key: &str) -> Option<&'a str> {
    object.metadata().annotations.as_ref()?.get(key).map(String::as_str)
}

fn annotate(metadata: &mut ObjectMeta, key: &str, value: &str) {
    metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}
