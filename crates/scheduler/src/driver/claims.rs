//! Claims of a pod that has a node: devices and reservation are written before it is bound.
use super::Hands;
use crate::devices;
use crate::filter::devices::{ExtendedPlan, Plan, Readiness, extended_key, is_late, readiness};
use crate::pod::PodInfo;
use api::names::NamespacedName;
use api::status::Status;
use client::events::Happening;
use client::informer::Progress;
use client::source::{Delete, Patch};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    AllocationResult, ResourceClaim, ResourceClaimConsumerReference, ResourceClaimStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Keeps a claim while it has devices.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// How often a write is tried that others were faster with.
const TRIES: usize = 5;

/// Writes what was decided, and waits until devices are ready.
pub async fn prepare(hands: &Hands, pod: &PodInfo, node: &str, plan: &Plan) -> Result<(), String> {
    let mut written: Vec<Arc<ResourceClaim>> = Vec::new();
    for (claim, allocation) in &plan.claims {
        if is_reserved(claim, pod) && allocation.is_none() {
            written.push(claim.clone());
            continue;
        }
        written.push(reserve(hands, pod, claim, allocation.as_deref()).await?);
    }
    if let Some(extended) = &plan.extended {
        written.push(make_extended(hands, pod, extended).await?);
    }
    let timeout = hands.profile(pod).map_or(Duration::from_secs(600), |it| it.args.binding_timeout);
    let conditions = |claim: &ResourceClaim| {
        let all = devices::allocation(claim).map(devices::results).unwrap_or_default();
        all.iter().any(|it| it.binding_conditions.as_ref().is_some_and(|it| !it.is_empty()))
    };
    if written.iter().any(|claim| conditions(claim)) {
        let note = format!("waiting for binding conditions for device on node {node}");
        let happening = Happening::normal(pod.reference(), "BindingConditionsPending", note);
        hands.record(pod, happening.while_("Scheduling"));
        wait(hands, &written, timeout).await?;
    }
    Ok(())
}

fn is_reserved(claim: &ResourceClaim, pod: &PodInfo) -> bool {
    let users = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    users.into_iter().any(|user| *user.uid == *pod.uid)
}

/// The claim gets its devices, if it has none, and is the pod's.
async fn reserve(
    hands: &Hands,
    pod: &PodInfo,
    claim: &ResourceClaim,
    allocation: Option<&AllocationResult>,
) -> Result<Arc<ResourceClaim>, String> {
    let key = devices::key_of(claim);
    let mut claim = claim.clone();
    for attempt in 1.. {
        match try_reserve(hands, pod, &mut claim, allocation).await? {
            Ok(written) => return Ok(written),
            Err((_, status)) if status.is_conflict() && attempt < TRIES => {
                let read = hands.client.get::<ResourceClaim>(&key.namespace, &key.name).await;
                let read = read.and_then(|object| {
                    object.typed::<ResourceClaim>().map_err(Status::internal_error)
                });
                claim = (*read.map_err(|status| {
                    format!("get updated claim {key} after conflict: {}", status.message)
                })?)
                .clone();
            }
            Err((what, status)) => return Err(format!("{what} claim {key}: {}", status.message)),
        }
    }
    Err(format!("claim {key} is changed all the time"))
}

type Tried = Result<Arc<ResourceClaim>, (&'static str, Status)>;

async fn try_reserve(
    hands: &Hands,
    pod: &PodInfo,
    claim: &mut ResourceClaim,
    allocation: Option<&AllocationResult>,
) -> Result<Tried, String> {
    let key = devices::key_of(claim);
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("claim {key} got deleted in the meantime"));
    }
    if allocation.is_some() {
        if devices::allocation(claim).is_some() {
            return Err(format!("claim {key} got allocated elsewhere in the meantime"));
        }
        let finalizers = claim.metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|name| name == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
            let _turn = hands.writes.acquire().await;
            let updated = hands.client.update(claim).await;
            match updated.and_then(|it| it.typed::<ResourceClaim>().map_err(Status::internal_error))
            {
                Ok(updated) => *claim = (*updated).clone(),
                Err(status) => return Ok(Err(("add finalizer to", status))),
            }
        }
    }
    let status = claim.status.get_or_insert_with(ResourceClaimStatus::default);
    if let Some(allocation) = allocation {
        let mut allocation = allocation.clone();
        let results = allocation.devices.iter_mut().flat_map(|it| it.results.iter_mut().flatten());
        for result in results.filter(|it| it.share_id.is_some()) {
            result.share_id = Some(hands.context.uuid());
        }
        status.allocation = Some(allocation);
    }
    let Some(own) = &mut status.allocation else {
        return Err(format!("claim {key} got deallocated elsewhere in the meantime"));
    };
    own.allocation_timestamp.get_or_insert_with(|| Time(hands.context.now()));
    status.reserved_for.get_or_insert_default().push(ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".to_owned(),
        name: pod.key.name.to_string(),
        uid: pod.uid.to_string(),
    });
    let what = match allocation {
        Some(_) => "add allocation and reservation to",
        None => "add reservation to",
    };
    let updated = {
        let _turn = hands.writes.acquire().await;
        hands.client.update_status(claim).await
    };
    if let Ok(updated) = &updated {
        // Devices that are written down are not anybody's to take, whatever becomes of the binding:
        // the ledger has heard of them before it could hear that they are not promised any more.
        hands.device_claims.seen(updated.revision()).await;
    }
    let updated =
        updated.and_then(|it| it.typed::<ResourceClaim>().map_err(Status::internal_error));
    Ok(updated.map_err(|status| (what, status)))
}

/// Makes the claim for extended resources, and tells the pod's kubelet which container gets what.
async fn make_extended(
    hands: &Hands,
    pod: &PodInfo,
    plan: &ExtendedPlan,
) -> Result<Arc<ResourceClaim>, String> {
    let mut claim = plan.claim.clone();
    claim.metadata.name = None;
    let made = {
        let _turn = hands.writes.acquire().await;
        hands.client.create(&claim).await
    };
    let made = made
        .and_then(|object| object.typed::<ResourceClaim>().map_err(Status::internal_error))
        .map_err(|status| {
            let namespace = &pod.key.namespace;
            format!("create claim for extended resources {namespace}/: {}", status.message)
        })?;
    let written = reserve(hands, pod, &made, Some(&plan.allocation)).await?;
    let patch = Patch::Strategic(json!({ "metadata": { "uid": pod.uid }, "status": {
        "extendedResourceClaimStatus": {
            "requestMappings": plan.mappings,
            "resourceClaimName": written.metadata.name,
        } } }));
    let (namespace, name) = (&pod.key.namespace, &pod.key.name);
    hands.client.patch_status::<Pod>(namespace, name, patch).await.map_err(|status| {
        format!("update pod {} ExtendedResourceClaimStatus: {}", pod.key, status.message)
    })?;
    Ok(written)
}

async fn wait(
    hands: &Hands,
    claims: &[Arc<ResourceClaim>],
    timeout: Duration,
) -> Result<(), String> {
    let mut progress = hands.device_claims.progress();
    let ready = async {
        for claim in claims {
            let key = devices::key_of(claim);
            loop {
                progress.borrow_and_update();
                if let Some(claim) = hands.device_claims.get(&key) {
                    match readiness(&claim) {
                        Readiness::Ready => break,
                        Readiness::Failed(text) => return Err(text),
                        Readiness::Waiting if is_late(&claim, timeout, hands.context.now()) => {
                            return Err(format!("device binding timeout: claim={}", key.name));
                        }
                        Readiness::Waiting => {}
                    }
                }
                if progress.changed().await.is_err() {
                    return Err("the scheduler stops".to_owned());
                }
            }
        }
        Ok(())
    };
    let within = tokio::time::timeout(timeout, ready).await;
    within.unwrap_or_else(|_| Err("device binding timeout: context deadline exceeded".to_owned()))
}

/// The binding failed: the pod's reservations are taken back, its claims keep their devices.
pub async fn release(hands: &Hands, pod: &PodInfo, plan: &Plan) {
    for (claim, _) in &plan.claims {
        let key = devices::key_of(claim);
        let user = json!({ "$patch": "delete", "uid": pod.uid });
        let patch = Patch::Strategic(json!({ "metadata": { "uid": claim.metadata.uid },
            "status": { "reservedFor": [user] } }));
        patch_claim(hands, &key, patch).await;
    }
    if plan.extended.is_none() {
        return;
    }
    // Made for this attempt alone; the next one makes its own.
    let own = |claim: &ResourceClaim| {
        let owner = api::owner::controller_of(claim.metadata.owner_references.as_deref());
        let annotations = claim.metadata.annotations.as_ref();
        owner.is_some_and(|owner| *owner.uid == *pod.uid)
            && annotations
                .is_some_and(|it| it.contains_key("resource.kubernetes.io/extended-resource-claim"))
    };
    let found: Vec<NamespacedName> = {
        let reading = hands.device_claims.read();
        reading.iter().filter(|(_, claim)| own(claim)).map(|(key, _)| key.clone()).collect()
    };
    for key in found {
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let _ = hands.client.patch::<ResourceClaim>(&key.namespace, &key.name, patch).await;
        let gone =
            hands.client.delete::<ResourceClaim>(&key.namespace, &key.name, Delete::default());
        let _ = gone.await;
    }
}

/// The claim's devices are for somebody else: it is not available where its pod could be.
pub async fn free(hands: &Hands, claim: &ResourceClaim) {
    let key = devices::key_of(claim);
    let patch = Patch::Merge(json!({
        "metadata": { "uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version },
        "status": { "reservedFor": null, "allocation": null, "devices": null },
    }));
    patch_claim(hands, &key, patch).await;
}

async fn patch_claim(hands: &Hands, key: &NamespacedName, patch: Patch) {
    let _turn = hands.writes.acquire().await;
    let patched = hands.client.patch_status::<ResourceClaim>(&key.namespace, &key.name, patch);
    if let Err(status) = patched.await
        && !status.is_not_found()
    {
        tracing::debug!(claim = %key, failure = status.message, "a claim is not given back");
    }
}

/// What was promised for extended resources is in the API, or is not wanted any more.
pub fn forget_extended(hands: &Hands, pod: &PodInfo, plan: &Plan) {
    if plan.extended.is_none() {
        return;
    }
    let key = extended_key(pod);
    let news = move |engine: &mut crate::engine::Engine, _| {
        engine.decider.cluster.devices.forget(&key);
    };
    let _ = hands.news.send(Box::new(news));
}
