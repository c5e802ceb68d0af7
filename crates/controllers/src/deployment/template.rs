//! Which set belongs to which template.
use crate::pods::controller_ref;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

pub const HASH: &str = "pod-template-hash";
const LONGEST_NAME: usize = 253;

/// The same template, but for the label that tells sets apart.
pub fn is_same(one: &PodTemplateSpec, other: &PodTemplateSpec) -> bool {
    let bare = |template: &PodTemplateSpec| {
        let mut template = template.clone();
        let metadata = template.metadata.get_or_insert_default();
        if let Some(labels) = &mut metadata.labels {
            labels.remove(HASH);
        }
        metadata.labels = metadata.labels.take().filter(|labels| !labels.is_empty());
        metadata.annotations = metadata.annotations.take().filter(|all| !all.is_empty());
        metadata.creation_timestamp = None;
        template
    };
    one == other || bare(one) == bare(other)
}

/// The label's value: of the template, and of how often another template had the same.
pub fn hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    api::hash::of_template(&json!(template), collisions)
}

/// The set of the deployment's template, with nothing in it yet.
pub fn new_set(deployment: &Deployment, collisions: Option<i32>) -> ReplicaSet {
    let hash = hash(&deployment.spec.template, collisions);
    let mut template = deployment.spec.template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH.to_owned(), hash.clone());
    let labels = labels.clone();
    let mut selector = deployment.spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(HASH.to_owned(), hash.clone());
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let name = name.get(..LONGEST_NAME - 1 - hash.len()).unwrap_or(name);
    let metadata = ObjectMeta {
        name: Some(format!("{name}-{hash}")),
        namespace: deployment.metadata.namespace.clone(),
        labels: Some(labels),
        owner_references: Some(vec![controller_ref(deployment)]),
        ..ObjectMeta::default()
    };
    let spec = ReplicaSetSpec {
        replicas: Some(0),
        min_ready_seconds: deployment.spec.min_ready_seconds,
        selector,
        template: Some(template),
    };
    ReplicaSet { metadata, spec, status: None }
}
