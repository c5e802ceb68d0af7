//! What people are told of a pod that has no node, and pods that go for another's sake.
use super::Hands;
use crate::engine::Nomination;
use crate::pod::{PodInfo, Told};
use crate::preemption::Victim;
use api::status::Status;
use client::events::Happening;
use client::source::{Delete, Patch};
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::sync::Arc;

/// An event's note is no longer than this.
const NOTE: usize = 1024;

/// The pod's condition and an event say why it has no node.
pub async fn refused(
    hands: &Hands,
    pod: &PodInfo,
    reason: &str,
    message: &str,
    nomination: &Nomination,
) {
    let happening = Happening::warning(pod.reference(), "FailedScheduling", shortened(message));
    hands.record(pod, happening.while_("Scheduling"));
    let told = Told {
        status: "False".into(),
        reason: reason.into(),
        message: message.into(),
        generation: pod.generation,
    };
    let mut status = json!({});
    if pod.told.as_ref() != Some(&told) {
        status["conditions"] = json!([condition(hands, pod, &told)]);
    }
    if let Nomination::Set(node) = nomination
        && *node != pod.nominated
    {
        status["nominatedNodeName"] = if node.is_empty() { Value::Null } else { json!(node) };
    }
    write(hands, pod, status).await;
}

fn condition(hands: &Hands, pod: &PodInfo, told: &Told) -> Value {
    let mut condition = json!({
        "type": "PodScheduled",
        "status": told.status,
        "reason": told.reason,
        "message": told.message,
        "observedGeneration": told.generation,
    });
    if pod.told.as_ref().is_none_or(|before| before.status != told.status) {
        let now = api::time::format_timestamp(hands.context.now());
        condition["lastTransitionTime"] = now.into();
    }
    condition
}

/// Where it goes once what it needs is there, so that whoever makes room or nodes for pods knows.
pub async fn nominate(hands: &Hands, pod: &PodInfo, node: &str) {
    if *pod.nominated != *node {
        write(hands, pod, json!({ "nominatedNodeName": node })).await;
    }
}

/// The room that was to be made for it is for somebody else.
pub async fn unnominate(hands: &Hands, pod: &PodInfo) {
    if !pod.nominated.is_empty() {
        write(hands, pod, json!({ "nominatedNodeName": null })).await;
    }
}

async fn write(hands: &Hands, pod: &PodInfo, status: Value) {
    if status.as_object().is_none_or(|fields| fields.is_empty()) {
        return;
    }
    let _turn = hands.writes.acquire().await;
    let patch = Patch::Strategic(json!({ "metadata": { "uid": pod.uid }, "status": status }));
    let (namespace, name) = (&pod.key.namespace, &pod.key.name);
    if let Err(status) = hands.client.patch_status::<Pod>(namespace, name, patch).await
        && !status.is_not_found()
    {
        tracing::debug!(pod = %pod.key, failure = status.message, "a pod's condition is not told");
    }
}

/// Deletes the pods that have to go, and lets the pod try again when that is done.
pub async fn preempt(hands: &Hands, pod: &PodInfo, nomination: &Nomination, victims: Vec<Victim>) {
    let Nomination::Set(node) = nomination else { return };
    let going = victims.iter().filter(|victim| !victim.0.deleting);
    let outcomes = join_all(going.map(|victim| evict(hands, pod, &victim.0, node))).await;
    let succeeded = outcomes.iter().all(Result::is_ok);
    for status in outcomes.into_iter().filter_map(Result::err) {
        tracing::debug!(pod = %pod.key, failure = status.message, "a pod cannot be preempted");
    }
    let uid = pod.uid.clone();
    let news = move |engine: &mut crate::engine::Engine, now| {
        engine.queue.preempted(&uid, succeeded, now);
    };
    let _ = hands.news.send(Box::new(news));
}

async fn evict(
    hands: &Hands,
    preemptor: &PodInfo,
    victim: &Arc<PodInfo>,
    node: &str,
) -> Result<(), Status> {
    let _turn = hands.writes.acquire().await;
    let scheduler = &preemptor.wishes.scheduler;
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
        "observedGeneration": victim.generation,
        "lastTransitionTime": api::time::format_timestamp(hands.context.now()),
    });
    let patch = Patch::Strategic(
        json!({ "metadata": { "uid": victim.uid }, "status": { "conditions": [condition] } }),
    );
    let (namespace, name) = (&victim.key.namespace, &victim.key.name);
    let gone = |outcome: Result<(), Status>| match outcome {
        Err(status) if status.is_not_found() => Ok(false),
        Err(status) => Err(status),
        Ok(()) => Ok(true),
    };
    let patched = hands.client.patch_status::<Pod>(namespace, name, patch).await;
    let options = Delete::uid(&victim.uid);
    if gone(patched.map(drop))?
        && gone(hands.client.delete::<Pod>(namespace, name, options).await.map(drop))?
    {
        let note = format!("Preempted by pod {} on node {node}", preemptor.uid);
        let happening = Happening::normal(victim.reference(), "Preempted", note);
        hands.record(preemptor, happening.while_("Preempting").with(preemptor.reference()));
    }
    Ok(())
}

fn shortened(message: &str) -> String {
    const REST: &str = " ...";
    if message.len() <= NOTE {
        return message.to_owned();
    }
    let mut end = NOTE - REST.len();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{REST}", &message[..end])
}
