//! Claims get volumes that are folders of the node on which their first pod runs.
//!
//! A class with the provisioner [`PROVISIONER`] names a folder, the same on every node (`parameters.path`). The
//! scheduler says on which node a claim's pod is to be; there a pod of ours makes the folder, and a PersistentVolume
//! of the type `local` leads to it. When the volume is released, and its policy says `Delete`, another pod of ours
//! removes what is in it.
//!
//! ```text
//!  claim + selected node ─► pod "make" ─► volume ─► bound by the binder, mounted by the kubelet
//!  released volume       ─► pod "remove" ─► the volume's object goes
//! ```
//! **Why pods**: a node need not have any right for this. One that could make volumes, or say that they are gone,
//! could lead the claims of others to wherever it likes; and a kubelet that is not ours does as well.
//!
//! All that is known is in objects: whoever begins anew goes on. A volume keeps a finalizer until its folder is gone,
//! so that nobody who deletes the object forgets the data.
//!
//! Keys are claims, and with no namespace volumes.
mod claim;
mod helper;
#[cfg(test)]
mod tests;
mod volume;

use crate::action::Action;
use crate::driver::{Controller, Row, Watching};
use crate::world::World;
use api::names::NamespacedName;
use api::rules::Form;
use helper::Helper;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use std::collections::BTreeMap;

/// What a class names, to have such volumes.
pub const PROVISIONER: &str = "skiff.dev/local";
/// The parameter of a class that says where on a node its volumes are.
pub const PATH: &str = "path";

/// The rows of this add-on: upstream's controller manager has none of them.
pub static ROWS: &[&dyn Row] = &[&CONTROLLER];

pub const CONTROLLER: Controller =
    Controller { name: "local-storage", account: "", workers: 4, watch, reconcile };

const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Holds a volume's object until its folder is gone.
const FINALIZER: &str = "skiff.dev/local-volume";
/// On which node a volume's folder is.
const NODE: &str = "skiff.dev/local-volume-node";

fn watch(on: &Watching) {
    on.each::<PersistentVolumeClaim>(|_, change| {
        let claims = change.old.iter().chain(&change.new);
        let named = claims.filter_map(|claim| claim.spec.as_ref()?.volume_name.clone());
        let mut keys: Vec<_> = named.map(|name| NamespacedName::new("", &name)).collect();
        keys.push(change.key.clone());
        keys
    });
    on.objects::<PersistentVolume>();
    on.each_of::<Pod>(helper::collection(), |_, change| {
        let helpers = change.latest().and_then(|pod| Helper::of(pod));
        helpers.into_iter().flat_map(|helper| [helper.claim, helper.volume]).collect()
    });
    // A class may come after those who want it.
    on.each::<StorageClass>(|world, change| {
        let claims = world.informer::<PersistentVolumeClaim>();
        let read = claims.read();
        let waiting = read.iter().filter(|(_, claim)| {
            let spec = claim.spec.as_ref();
            let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
            class == Some(&*change.key.name) && spec.is_some_and(|spec| spec.volume_name.is_none())
        });
        waiting.map(|(key, _)| key.clone()).collect()
    });
    on.reads::<Node>();
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    if key.namespace.is_empty() {
        return volume::reconcile(key, world, now);
    }
    let claim = world.get::<PersistentVolumeClaim>(key);
    let uid = claim.as_ref().and_then(|claim| claim.metadata.uid.clone()).unwrap_or_default();
    let mut actions = claim::left_behind(key, &uid, world, now);
    actions.extend(claim.iter().flat_map(|claim| claim::reconcile(claim, world, now)));
    actions
}

/// A volume is called by its claim's uid: there is never another of that name.
fn volume_name(claim_uid: &str) -> String {
    format!("pvc-{claim_uid}")
}

fn is_ours(volume: &PersistentVolume) -> bool {
    annotation(volume, PROVISIONED_BY) == Some(PROVISIONER)
}

fn name<T: Form>(object: &T) -> &str {
    object.metadata().name.as_deref().unwrap_or_default()
}

fn annotation<'a, T: Form>(object: &'a T, key: &str) -> Option<&'a str> {
    of_map(object.metadata().annotations.as_ref(), key)
}

fn of_map<'a>(map: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    map?.get(key).map(String::as_str)
}
