//! A pod and its node: volumes first, then the binding.
use super::measure::Attempt;
use super::{Hands, claims, tell};
use crate::cluster::storage::{self, SELECTED_NODE};
use crate::decide;
use crate::engine::Nomination;
use crate::filter::volumes::Plan;
use crate::pod::PodInfo;
use api::names::NamespacedName;
use api::status::Status;
use client::events::Happening;
use client::informer::Progress;
use client::source::Patch;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

pub async fn bind(
    hands: &Hands,
    pod: &Arc<PodInfo>,
    node: &str,
    plan: decide::Plan,
    tried: Attempt,
) {
    let waits = !plan.volumes.is_empty() || !plan.devices.is_empty();
    if waits {
        tell::nominate(hands, pod, node).await;
    }
    let outcome = attempt(hands, pod, node, &plan).await;
    claims::forget_extended(hands, pod, &plan.devices);
    match outcome {
        Ok(()) => {
            tried.succeeded(&hands.context, pod);
            let note = format!("Successfully assigned {} to {node}", pod.key);
            let happening = Happening::normal(pod.reference(), "Scheduled", note);
            hands.record(pod, happening.while_("Binding"));
        }
        Err(message) => {
            tried.failed(&hands.context, pod);
            tracing::debug!(pod = %pod.key, node, message, "a pod could not be bound");
            if !plan.devices.is_empty() {
                claims::release(hands, pod, &plan.devices).await;
            }
            let own = pod.clone();
            let _ = hands.news.send(Box::new(move |engine, now| engine.unbind(&own, &plan, now)));
            let nomination = Nomination::Set("".into());
            let nominated = if waits { node.into() } else { pod.nominated.clone() };
            let told = PodInfo { nominated, ..(**pod).clone() };
            tell::refused(hands, &told, "SchedulerError", &message, &nomination).await;
        }
    }
}

async fn attempt(
    hands: &Hands,
    pod: &PodInfo,
    node: &str,
    plan: &decide::Plan,
) -> Result<(), String> {
    prepare(hands, pod, node, &plan.volumes).await?;
    if !plan.devices.is_empty() {
        let prepared = claims::prepare(hands, pod, node, &plan.devices).await;
        prepared.map_err(|text| format!("running PreBind plugin \"DynamicResources\": {text}"))?;
    }
    assign(hands, pod, node).await
}

async fn assign(hands: &Hands, pod: &PodInfo, node: &str) -> Result<(), String> {
    if let Some(extenders) = hands.extenders.as_ref().filter(|it| it.binds(pod))
        && let Some(outcome) = extenders.bind(pod, node).await
    {
        return outcome;
    }
    let _turn = hands.writes.acquire().await;
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "namespace": *pod.key.namespace, "name": *pod.key.name, "uid": pod.uid },
        "target": { "kind": "Node", "name": node },
    });
    let posted = hands.client.post::<Pod>(&pod.key, "binding", &binding).await;
    match posted {
        Ok(_) => Ok(()),
        Err(status) if is_unclear(&status) && is_bound(hands, pod, node).await => Ok(()),
        Err(status) => Err(format!("running Bind plugin \"DefaultBinder\": {}", status.message)),
    }
}

/// The server may have done it all the same: nobody heard it say no.
fn is_unclear(status: &Status) -> bool {
    status.code == 0 || status.code == 408 || status.code == 429 || status.code >= 500
}

/// Asks until it is known. A pod that is taken for unbound while it is not would have its room on the
/// node given to another.
async fn is_bound(hands: &Hands, pod: &PodInfo, node: &str) -> bool {
    let mut pause = Duration::from_millis(50);
    while !hands.context.is_stopped() {
        let found = hands.client.get::<Pod>(&pod.key.namespace, &pod.key.name).await;
        match found.and_then(|object| object.typed::<Pod>().map_err(Status::internal_error)) {
            Ok(found) => {
                let spec = found.spec.as_ref();
                return found.metadata.uid.as_deref() == Some(&pod.uid)
                    && spec.and_then(|spec| spec.node_name.as_deref()) == Some(node);
            }
            Err(status) if !is_unclear(&status) => return false,
            Err(_) => {
                tokio::select! {
                    () = hands.context.stopped() => return false,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(Duration::from_secs(5));
            }
        }
    }
    false
}

async fn prepare(hands: &Hands, pod: &PodInfo, node: &str, volumes: &Plan) -> Result<(), String> {
    if volumes.is_empty() {
        return Ok(());
    }
    let usual = Duration::from_secs(600);
    let longest = hands.profile(pod).map_or(usual, |profile| profile.args.bind_timeout);
    let within = tokio::time::timeout(longest, provide(hands, node, volumes));
    let outcome = within.await.unwrap_or_else(|_| Err("timed out".to_owned()));
    outcome.map_err(|message| {
        format!("running PreBind plugin \"VolumeBinding\": binding volumes: {message}")
    })
}

/// Says which volumes and which node the claims are to have, and waits until they have them.
async fn provide(hands: &Hands, node: &str, volumes: &Plan) -> Result<(), String> {
    let message = |status: Status| status.message;
    for (volume, claim) in &volumes.give {
        give(hands, volume, claim).await.map_err(message)?;
    }
    for claim in &volumes.provide {
        let revision = select(hands, node, claim).await.map_err(message)?;
        hands.claims.seen(revision).await;
    }
    let claims = volumes.give.iter().map(|(_, claim)| claim).chain(&volumes.provide);
    let mut progress = hands.claims.progress();
    for (at, claim) in claims.enumerate() {
        let key = key(claim);
        loop {
            progress.borrow_and_update();
            let Some(claim) = hands.claims.get(&key) else {
                return Err(format!("persistentvolumeclaim {:?} not found", key.name));
            };
            if storage::is_fully_bound(&claim) {
                break;
            }
            // Whoever provides takes the node away if it cannot be done there.
            if at >= volumes.give.len() && storage::selected_node(&claim) != Some(node) {
                return Err(format!("provisioning failed for PVC {:?}", key.name));
            }
            if progress.changed().await.is_err() {
                return Err("the scheduler stops".to_owned());
            }
        }
    }
    Ok(())
}

async fn give(
    hands: &Hands,
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
) -> Result<(), Status> {
    let key = key(claim);
    let mut patch = json!({
        "metadata": { "resourceVersion": volume.metadata.resource_version },
        "spec": { "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": *key.namespace,
            "name": *key.name,
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
        } },
    });
    // What a user bound before keeps its claim when it is released.
    if volume.spec.as_ref().is_none_or(|spec| spec.claim_ref.is_none()) {
        patch["metadata"]["annotations"] = json!({ "pv.kubernetes.io/bound-by-controller": "yes" });
    }
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    hands.client.patch::<PersistentVolume>("", name, Patch::Merge(patch)).await.map(drop)
}

async fn select(hands: &Hands, node: &str, claim: &PersistentVolumeClaim) -> Result<u64, Status> {
    let key = key(claim);
    let patch = json!({ "metadata": {
        "resourceVersion": claim.metadata.resource_version,
        "annotations": { SELECTED_NODE: node },
    } });
    let patch = Patch::Merge(patch);
    let patched = hands.client.patch::<PersistentVolumeClaim>(&key.namespace, &key.name, patch);
    Ok(patched.await?.revision())
}

fn key(claim: &PersistentVolumeClaim) -> NamespacedName {
    let [namespace, name] = [&claim.metadata.namespace, &claim.metadata.name]
        .map(|text| text.as_deref().unwrap_or_default());
    NamespacedName::new(namespace, name)
}
