//! The claims of a set's pods: made with them, and kept or removed as the set says.
use super::View;
use super::identity::{self, claim_name};
use crate::action::Action;
use client::events::{Happening, reference};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::sync::Arc;

/// What the names of a set's claims begin with.
pub fn prefixes(set: &StatefulSet) -> impl Iterator<Item = String> + '_ {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    templates(set).map(move |template| {
        format!("{}-{name}-", template.metadata.name.as_deref().unwrap_or_default())
    })
}

fn templates(set: &StatefulSet) -> impl Iterator<Item = &PersistentVolumeClaim> {
    set.spec.volume_claim_templates.iter().flatten()
}

fn namespace(set: &StatefulSet) -> &str {
    set.metadata.namespace.as_deref().unwrap_or_default()
}

fn number(view: &View<'_>, pod: &Pod) -> i32 {
    let name = view.set.metadata.name.as_deref().unwrap_or_default();
    identity::ordinal(name, pod).unwrap_or_default()
}

/// Claims that a pod needs and that are not there.
pub fn missing(view: &View<'_>, pod: &Pod) -> Vec<Action> {
    let (set, ordinal) = (view.set, number(view, pod));
    let mut actions = Vec::new();
    for template in templates(set) {
        let volume = template.metadata.name.as_deref().unwrap_or_default();
        let name = claim_name(volume, set, ordinal);
        if view.world.find::<PersistentVolumeClaim>(namespace(set), &name).is_some() {
            continue;
        }
        let mut claim = template.clone();
        claim.metadata.name = Some(name.clone());
        claim.metadata.namespace = set.metadata.namespace.clone();
        let selector = set.spec.selector.match_labels.clone();
        claim.metadata.labels.get_or_insert_default().extend(selector.into_iter().flatten());
        claim.metadata.owner_references = wanted_owner(view, pod, false).map(|owner| vec![owner]);
        claim.status = None;
        let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
        let set_name = set.metadata.name.as_deref().unwrap_or_default();
        let text = format!("Create Claim {name} Pod {pod_name} in StatefulSet {set_name} success");
        actions.push(Action::ensure(&claim));
        let told = Happening::normal(reference(set), "SuccessfulCreate", text);
        actions.push(Action::Record(told));
    }
    actions
}

fn existing(view: &View<'_>, ordinal: i32) -> Vec<Arc<PersistentVolumeClaim>> {
    let names = templates(view.set).map(|template| {
        let volume = template.metadata.name.as_deref().unwrap_or_default();
        claim_name(volume, view.set, ordinal)
    });
    names.filter_map(|name| view.world.find(namespace(view.set), &name)).collect()
}

/// Whether a claim of a pod to be made is on its way out, with the pod before it: then it is waited
/// for.
pub fn are_going(view: &View<'_>, ordinal: i32) -> bool {
    existing(view, ordinal).iter().any(|claim| {
        let owners = claim.metadata.owner_references.iter().flatten();
        let of_pod = owners.clone().any(|owner| owner.kind == "Pod");
        claim.metadata.deletion_timestamp.is_some() || of_pod
    })
}

/// Claims that belong to whoever they are to go with: the set, or a pod that is condemned.
pub fn owned_rightly(view: &View<'_>, pod: &Pod, is_condemned: bool) -> Vec<Action> {
    let wanted = wanted_owner(view, pod, is_condemned);
    let uids = [view.set.metadata.uid.as_deref(), pod.metadata.uid.as_deref()];
    let mut actions = Vec::new();
    for claim in existing(view, number(view, pod)) {
        let owners = claim.metadata.owner_references.clone().unwrap_or_default();
        // Somebody else minds it.
        let is_ours = |owner: &OwnerReference| uids.contains(&Some(&*owner.uid));
        if owners.iter().any(|owner| owner.controller == Some(true) && !is_ours(owner)) {
            continue;
        }
        let mut new: Vec<_> = owners.iter().filter(|owner| !is_ours(owner)).cloned().collect();
        new.extend(wanted.clone());
        let is_same = |a: &[OwnerReference], b: &[OwnerReference]| {
            a.len() == b.len() && a.iter().all(|one| b.contains(one))
        };
        if !is_same(&owners, &new) {
            let mut changed = (*claim).clone();
            changed.metadata.owner_references = (!new.is_empty()).then_some(new);
            actions.push(Action::update(&changed));
        }
    }
    actions
}

fn wanted_owner(view: &View<'_>, pod: &Pod, is_condemned: bool) -> Option<OwnerReference> {
    let policy = view.set.spec.persistent_volume_claim_retention_policy.as_ref()?;
    let deletes = |when: &Option<String>| when.as_deref() == Some("Delete");
    let reference = |api_version: &str, kind: &str, name: &Option<String>, uid: &Option<String>| {
        OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: name.clone().unwrap_or_default(),
            uid: uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    };
    if is_condemned && deletes(&policy.when_scaled) {
        return Some(reference("v1", "Pod", &pod.metadata.name, &pod.metadata.uid));
    }
    let set = &view.set.metadata;
    deletes(&policy.when_deleted).then(|| reference("apps/v1", "StatefulSet", &set.name, &set.uid))
}
