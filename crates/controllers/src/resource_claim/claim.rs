//! A claim: pods that are over do not hold it, and one that nobody holds is free again.
use super::{is_done, pod_of};
use crate::action::Action;
use crate::world::World;
use api::status::Status;
use client::source::{Ask, Call, Collection, Write};
use client::{ApiResource, Object};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

pub fn reconcile(claim: &Arc<ResourceClaim>, world: &World) -> Vec<Action> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let is_unknown = |it: &&ResourceClaimConsumerReference| {
        is_pod(it) && world.find::<Pod>(namespace, &it.name).is_none()
    };
    let owner_is_over = pod_of(claim).is_some_and(|owner| {
        let pod = world.find::<Pod>(namespace, &owner.name);
        pod.is_some_and(|pod| pod.metadata.uid.as_ref() != Some(&owner.uid) || is_done(&pod))
    });
    let is_over = |it: &ResourceClaimConsumerReference| {
        let pod = world.find::<Pod>(namespace, &it.name);
        pod.is_some_and(|pod| pod.metadata.uid.as_ref() != Some(&it.uid) || is_done(&pod))
    };
    let reserved = reserved(claim);
    let over: BTreeSet<_> =
        reserved.iter().filter(|it| is_pod(it) && is_over(it)).map(|it| it.uid.clone()).collect();
    if !reserved.iter().any(|it| is_unknown(&it)) {
        return settle(claim, &over, owner_is_over);
    }
    // Pods may be so young that we have not heard of them: the scheduler would not forgive.
    let claim = claim.clone();
    let pods = Collection::all(ApiResource::of::<Pod>()).in_namespace(namespace);
    let then = move |lists: Vec<(Collection, Vec<Arc<Object>>)>| {
        let live: BTreeSet<_> =
            lists.iter().flat_map(|(_, pods)| pods).map(|pod| pod.uid().to_owned()).collect();
        let gone = self::reserved(&claim).iter().filter(|it| is_pod(it) && !live.contains(&it.uid));
        let over = gone.map(|it| it.uid.clone()).chain(over).collect();
        settle(&claim, &over, owner_is_over)
    };
    vec![Action::Gather { of: vec![pods], then: Box::new(then) }]
}

fn is_pod(it: &ResourceClaimConsumerReference) -> bool {
    it.api_group.as_deref().unwrap_or_default().is_empty() && it.resource == "pods"
}

fn reserved(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    let status = claim.status.as_ref();
    status.and_then(|status| status.reserved_for.as_deref()).unwrap_or_default()
}

fn settle(claim: &ResourceClaim, over: &BTreeSet<String>, owner_is_over: bool) -> Vec<Action> {
    let left: Vec<_> =
        reserved(claim).iter().filter(|it| !over.contains(&it.uid)).cloned().collect();
    let is_kept = claim.metadata.finalizers.iter().flatten().any(|it| it == FINALIZER);
    let is_allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
    let is_going = claim.metadata.deletion_timestamp.is_some();
    let is_unused = left.is_empty();
    let mut new = claim.clone();
    if left.len() < reserved(claim).len() || (is_unused && is_kept && is_allocated && is_going) {
        let status = new.status.get_or_insert_default();
        if is_unused && is_kept {
            status.allocation = None;
        }
        status.reserved_for = (!is_unused).then_some(left);
        return vec![free(&new, is_unused && is_kept)];
    }
    // One that is protected and not allocated may be in the scheduler's hands: only if it goes.
    if is_unused && is_kept && is_going {
        return vec![unprotect(crate::action::tree(&new))];
    }
    match is_unused && owner_is_over && !is_going {
        true => vec![Action::delete(claim)],
        false => Vec::new(),
    }
}

/// Writes the status, and what is then not allocated needs no protection.
fn free(claim: &ResourceClaim, is_freed: bool) -> Action {
    if !is_freed {
        return Action::update_part("status", claim);
    }
    let call = Call {
        resource: ApiResource::of::<ResourceClaim>(),
        namespace: claim.metadata.namespace.clone().unwrap_or_default(),
        name: claim.metadata.name.clone().unwrap_or_default(),
        subresource: "status".into(),
        ask: Ask::Update(crate::action::tree(claim), Write::managed_by("kube-controller-manager")),
    };
    let then = |answer: Result<Value, Status>| match answer {
        Ok(written) => vec![unprotect(written)],
        Err(status) => vec![Action::Fail(status)],
    };
    Action::Try { call, then: Box::new(then) }
}

fn unprotect(mut claim: Value) -> Action {
    if let Some(finalizers) = claim["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|it| it != FINALIZER);
    }
    Action::Update { resource: ApiResource::of::<ResourceClaim>(), part: "", object: claim }
}
