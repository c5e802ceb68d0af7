//! A pod: its claims are made, noted in its status, and reserved if the scheduler did not.
use super::{Named, is_for, requests};
use crate::action::{Action, Target};
use crate::pods;
use crate::world::World;
use api::status::Status;
use client::ApiResource;
use client::events::{Happening, reference};
use client::source::{Ask, Call, Patch, Write};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{
    ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which of the pod's requests a claim was made for.
const FOR_REQUEST: &str = "resource.kubernetes.io/pod-claim-name";
/// As many pods may share a claim.
const MOST_CONSUMERS: usize = 256;

pub fn reconcile(pod: &Arc<Pod>, world: &World) -> Vec<Action> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut made = BTreeMap::new();
    let mut actions = Vec::new();
    for request in requests(pod) {
        let is_there = match Named::of(pod, request) {
            Named::None => true,
            Named::ByAuthor(_) => true,
            Named::Made(name) => world
                .find::<ResourceClaim>(namespace, &name)
                .is_some_and(|claim| is_for(&claim, pod)),
            Named::NotYet => false,
        };
        let Some(template) = request.resource_claim_template_name.as_deref() else { continue };
        if is_there {
            continue;
        }
        match find(pod, request, world) {
            Some(claim) => drop(made.insert(request.name.clone(), claim)),
            None => match world.find::<ResourceClaimTemplate>(namespace, template) {
                Some(template) => actions.push(make(pod, request, &template)),
                None => {
                    let cause = format!(
                        "resource claim template {template:?}: \
                         resourceclaimtemplate.resource.k8s.io {template:?} not found"
                    );
                    actions.push(failed(pod, &request.name, &cause));
                }
            },
        }
    }
    actions.extend(note(pod, made));
    if !pods::node(pod).is_empty() {
        actions.extend(requests(pod).iter().filter_map(|request| reserve(pod, request, world)));
    }
    actions
}

fn failed(pod: &Pod, request: &str, cause: &str) -> Action {
    let note = format!("PodResourceClaim {request}: {cause}");
    Action::Record(Happening::warning(reference(pod), "FailedResourceClaimCreation", note))
}

/// One that was made already, though the pod's status does not say so.
fn find(pod: &Pod, request: &PodResourceClaim, world: &World) -> Option<String> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let claims = world.controlled::<ResourceClaim>(uid);
    let is_it = |claim: &&Arc<ResourceClaim>| {
        let annotations = claim.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(FOR_REQUEST)) == Some(&request.name)
            && claim.metadata.deletion_timestamp.is_none()
    };
    claims.iter().filter(is_it).filter_map(|claim| claim.metadata.name.clone()).min()
}

fn make(pod: &Arc<Pod>, request: &PodResourceClaim, template: &ResourceClaimTemplate) -> Action {
    let wanted = template.spec.clone().unwrap_or_default();
    let of_template = wanted.metadata.unwrap_or_default();
    let mut annotations = of_template.annotations.unwrap_or_default();
    annotations.insert(FOR_REQUEST.to_owned(), request.name.clone());
    let name = pod.metadata.name.clone().unwrap_or_default();
    let claim = ResourceClaim {
        metadata: ObjectMeta {
            namespace: pod.metadata.namespace.clone(),
            generate_name: Some(base(&name, &request.name)),
            labels: of_template.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name,
                uid: pod.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: wanted.spec,
        status: None,
    };
    let call = Call {
        resource: ApiResource::of::<ResourceClaim>(),
        namespace: claim.metadata.namespace.clone().unwrap_or_default(),
        name: String::new(),
        subresource: "".into(),
        ask: Ask::Create(crate::action::tree(&claim), Write::managed_by("kube-controller-manager")),
    };
    let (pod, request) = (pod.clone(), request.name.clone());
    let then = move |answer: Result<Value, Status>| match answer {
        // The claim itself wakes the pod again, whose status then names it.
        Ok(_) => Vec::new(),
        Err(status) => {
            let cause = format!("create ResourceClaim : {}", status.message);
            vec![failed(&pod, &request, &cause), Action::Fail(status)]
        }
    };
    Action::Try { call, then: Box::new(then) }
}

/// Names of both, shortened alike where they are too long for one.
fn base(pod: &str, request: &str) -> String {
    const MOST: usize = 57;
    let whole = format!("{pod}-{request}-");
    if whole.len() <= MOST {
        return whole;
    }
    let part = |text: &str| text[..text.len() * MOST / whole.len()].to_owned();
    format!("{}-{}", part(pod), part(request))
}

fn note(pod: &Pod, made: BTreeMap<String, String>) -> Option<Action> {
    if made.is_empty() {
        return None;
    }
    let entry =
        |(name, claim): (String, String)| json!({ "name": name, "resourceClaimName": claim });
    let entries: Vec<_> = made.into_iter().map(entry).collect();
    let patch = json!({ "metadata": { "uid": pod.metadata.uid },
        "status": { "resourceClaimStatuses": entries } });
    let object = Target::of(pod);
    Some(Action::Patch { object, part: "status", patch: Patch::Strategic(patch) })
}

fn reserve(pod: &Pod, request: &PodResourceClaim, world: &World) -> Option<Action> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let named = Named::of(pod, request);
    let is_made = matches!(named, Named::Made(_));
    let claim = world.find::<ResourceClaim>(namespace, &named.name()?)?;
    if is_made && !is_for(&claim, pod) {
        return None;
    }
    let status = claim.status.as_ref().filter(|status| status.allocation.is_some())?;
    let reserved = status.reserved_for.as_deref().unwrap_or_default();
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    if reserved.len() >= MOST_CONSUMERS || reserved.iter().any(|it| it.uid == uid) {
        return None;
    }
    let mut new = (*claim).clone();
    let list = new.status.get_or_insert_default().reserved_for.get_or_insert_default();
    list.push(ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".to_owned(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid,
    });
    Some(Action::update_part("status", &new))
}

#[cfg(test)]
mod tests {
    use super::base;

    #[test]
    fn long_names_are_shortened_alike() {
        assert_eq!(base("web-0", "gpu"), "web-0-gpu-");
        let long = base(&"p".repeat(80), &"c".repeat(40));
        assert_eq!((long.len(), &long[36..39]), (56, "p-c"));
    }
}
