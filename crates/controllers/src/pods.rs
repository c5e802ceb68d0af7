//! What workload controllers ask of pods, and how they make one.
use api::rules::Form;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::time::Duration;

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

pub fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == type_)
}

pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// It has not come to an end, and nobody has asked for it.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// On its way out, and not there yet.
pub fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// How long until a ready pod counts as available; `None`: never, unless something changes.
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if !is_ready(pod) {
        return None;
    }
    if min_ready_seconds <= 0 {
        return Some(Duration::ZERO);
    }
    let due = ready_since(pod)? + jiff::SignedDuration::from_secs(min_ready_seconds.into());
    Some(due.duration_since(now).try_into().unwrap_or(Duration::ZERO))
}

pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    available_in(pod, min_ready_seconds, now) == Some(Duration::ZERO)
}

/// When the next of these pods becomes available, if time alone brings it.
pub fn next_available<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    let waits = pods.filter_map(|pod| available_in(pod, min_ready_seconds, now));
    waits.filter(|wait| !wait.is_zero()).min()
}

/// The names of the claims that a pod's volumes are, and whether each came with the pod.
pub fn claims(pod: &Pod) -> Vec<(String, bool)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let claim = |volume: &Volume| match &volume.persistent_volume_claim {
        Some(source) => Some((source.claim_name.clone(), false)),
        None => volume.ephemeral.is_some().then(|| (format!("{name}-{}", volume.name), true)),
    };
    volumes.filter_map(claim).collect()
}

/// The pod that a template describes, for its owner; its name begins with the owner's.
pub fn from_template<O: Form>(template: &PodTemplateSpec, owner: &O) -> Pod {
    let metadata = template.metadata.clone().unwrap_or_default();
    let name = owner.metadata().name.as_deref().unwrap_or_default();
    let metadata = ObjectMeta {
        namespace: owner.metadata().namespace.clone(),
        generate_name: Some(format!("{name}-")),
        labels: metadata.labels,
        annotations: metadata.annotations,
        finalizers: metadata.finalizers,
        owner_references: Some(vec![controller_ref(owner)]),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}

/// The reference that makes an object its controller.
pub fn controller_ref<O: Form>(owner: &O) -> OwnerReference {
    let metadata = owner.metadata();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (name, uid) = (text(&metadata.name), text(&metadata.uid));
    api::owner::controller_ref(O::API_VERSION, O::KIND, &name, &uid)
}
