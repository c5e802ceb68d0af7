//! A pod and its node: volumes first, then the binding.
use super::{Hands, tell};
use crate::cluster::storage::{self, SELECTED_NODE};
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

/// How long volumes may take: upstream's `bindTimeoutSeconds`.
const VOLUMES: Duration = Duration::from_secs(600);

pub async fn bind(hands: &Hands, pod: &Arc<PodInfo>, node: &str, volumes: Plan) {
    let outcome = match prepare(hands, node, &volumes).await {
        Ok(()) => assign(hands, pod, node).await,
        Err(message) => Err(message),
    };
    match outcome {
        Ok(()) => {
            let note = format!("Successfully assigned {} to {node}", pod.key);
            let happening = Happening::normal(pod.reference(), "Scheduled", note);
            hands.recorder.record(happening.while_("Binding"));
        }
        Err(message) => {
            tracing::debug!(pod = %pod.key, node, message, "a pod could not be bound");
            let uid = pod.uid.clone();
            let _ =
                hands.news.send(Box::new(move |engine, now| engine.unbind(&uid, &volumes, now)));
            let nomination = Nomination::Set("".into());
            tell::refused(hands, pod, "SchedulerError", &message, &nomination).await;
        }
    }
}

async fn assign(hands: &Hands, pod: &PodInfo, node: &str) -> Result<(), String> {
    let _turn = hands.writes.acquire().await;
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "namespace": *pod.key.namespace, "name": *pod.key.name, "uid": pod.uid },
        "target": { "kind": "Node", "name": node },
    });
    let posted = hands.client.post::<Pod>(&pod.key, "binding", &binding).await;
    posted
        .map(drop)
        .map_err(|status| format!("running Bind plugin \"DefaultBinder\": {}", status.message))
}

async fn prepare(hands: &Hands, node: &str, volumes: &Plan) -> Result<(), String> {
    if volumes.is_empty() {
        return Ok(());
    }
    let within = tokio::time::timeout(VOLUMES, provide(hands, node, volumes));
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
