//! Claims for devices: made from templates for the pods that ask for them, and freed once no pod
//! uses them.
//!
//! The scheduler allocates and reserves; here what it cannot see is done: pods that were given a
//! node by somebody else, and the end of pods.
mod claim;
mod pod;
#[cfg(test)]
mod tests;

use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use api::owner;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::fmt;

pub const CONTROLLER: Controller<Key> = Controller {
    name: "resourceclaim-controller",
    account: "resource-claim-controller",
    workers: 10,
    watch,
    reconcile,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    Pod(NamespacedName),
    Claim(NamespacedName),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Pod(key) => write!(f, "pod {key}"),
            Key::Claim(key) => write!(f, "resourceclaim {key}"),
        }
    }
}

fn watch(on: &Watching<Key>) {
    on.each::<Pod>(|_, change| {
        let mut keys = Vec::new();
        for pod in change.old.iter().chain(&change.new) {
            if requests(pod).is_empty() {
                continue;
            }
            keys.push(Key::Pod(change.key.clone()));
            // A pod that is over frees what it had.
            let names = requests(pod).iter().filter_map(|request| Named::of(pod, request).name());
            let claim =
                |name: String| Key::Claim(NamespacedName::new(&change.key.namespace, &name));
            keys.extend(names.map(claim));
        }
        keys.dedup();
        keys
    });
    on.each::<ResourceClaim>(|world, change| {
        let mut keys = vec![Key::Claim(change.key.clone())];
        let owner = change.new.as_ref().or(change.old.as_ref()).and_then(|claim| pod_of(claim));
        keys.extend(
            owner.map(|owner| Key::Pod(NamespacedName::new(&change.key.namespace, &owner.name))),
        );
        // Pods that name it themselves wait for its allocation.
        let pods = world.informer::<Pod>();
        let read = pods.read();
        let here = read.in_namespace(&change.key.namespace).filter(|(_, pod)| {
            requests(pod)
                .iter()
                .any(|it| it.resource_claim_name.as_deref() == Some(&*change.key.name))
        });
        keys.extend(here.map(|(key, _)| Key::Pod(key.clone())));
        keys
    });
    on.each::<ResourceClaimTemplate>(|world, change| {
        let pods = world.informer::<Pod>();
        let read = pods.read();
        let name = &*change.key.name;
        let here = read.in_namespace(&change.key.namespace).filter(|(_, pod)| {
            let mut names =
                requests(pod).iter().map(|it| it.resource_claim_template_name.as_deref());
            names.any(|template| template == Some(name))
        });
        here.map(|(key, _)| Key::Pod(key.clone())).collect()
    });
}

fn reconcile(key: &Key, world: &World, _: Timestamp) -> Vec<Action> {
    match key {
        Key::Pod(key) => {
            let pod = world.get::<Pod>(key);
            pod.map(|pod| pod::reconcile(&pod, world)).unwrap_or_default()
        }
        Key::Claim(key) => {
            let claim = world.get::<ResourceClaim>(key);
            claim.map(|claim| claim::reconcile(&claim, world)).unwrap_or_default()
        }
    }
}

/// What a pod asks for.
fn requests(pod: &Pod) -> &[PodResourceClaim] {
    pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref()).unwrap_or_default()
}

/// The claim behind one of a pod's requests.
#[derive(Debug, PartialEq)]
enum Named {
    /// The pod's author named it.
    ByAuthor(String),
    /// It was made for the pod.
    Made(String),
    /// None is needed.
    None,
    /// It is still to be made.
    NotYet,
}

impl Named {
    fn of(pod: &Pod, request: &PodResourceClaim) -> Named {
        if let Some(name) = &request.resource_claim_name {
            return Named::ByAuthor(name.clone());
        }
        let status = pod.status.as_ref().and_then(|it| it.resource_claim_statuses.as_deref());
        let noted = status.unwrap_or_default().iter().find(|it| it.name == request.name);
        match noted.map(|noted| noted.resource_claim_name.clone()) {
            Some(Some(name)) => Named::Made(name),
            Some(None) => Named::None,
            None => Named::NotYet,
        }
    }

    fn name(self) -> Option<String> {
        match self {
            Named::ByAuthor(name) | Named::Made(name) => Some(name),
            Named::None | Named::NotYet => None,
        }
    }
}

/// The pod that a claim was made for.
fn pod_of(claim: &ResourceClaim) -> Option<&OwnerReference> {
    let owner = owner::controller_of(claim.metadata.owner_references.as_deref())?;
    (owner.api_version == "v1" && owner.kind == "Pod").then_some(owner)
}

fn is_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    pod_of(claim).is_some_and(|owner| pod.metadata.uid.as_ref() == Some(&owner.uid))
}

/// It will not run any more, or never will.
fn is_done(pod: &Pod) -> bool {
    crate::pods::is_finished(pod)
        || (pod.metadata.deletion_timestamp.is_some() && crate::pods::node(pod).is_empty())
}
