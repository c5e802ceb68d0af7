//! One number of a workload, as the `autoscaling/v1.Scale` that it is seen as.
use super::peculiar;
use api::custom::{Scale, scale_of_path};
use api::kinds::Resource;
use api::selector::label::Selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

/// A workload's scale.
pub fn scale_of(workload: &Value, resource: &Resource) -> Value {
    let metadata = &workload["metadata"];
    let at = |path: &str| scale_of_path(workload, path).and_then(Value::as_i64).unwrap_or(0);
    let (replicas, current) = match paths(resource) {
        Some(paths) => (at(&paths.spec_replicas), at(&paths.status_replicas)),
        None => (at(".spec.replicas"), at(".status.replicas")),
    };
    let mut scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": { "replicas": replicas },
        "status": {
            "replicas": current,
            "selector": selector_of(workload, resource),
        },
    });
    // None is not written.
    if replicas == 0 {
        scale["spec"] = json!({});
    }
    if let Some(status) = scale["status"].as_object_mut().filter(|_| paths(resource).is_some()) {
        status.retain(|name, value| name != "selector" || value != "");
    }
    scale
}

/// Puts the number of a scale into its workload.
pub fn put_replicas(workload: &mut Value, scale: &Value, resource: &Resource) {
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    let path = paths(resource).map_or(".spec.replicas", |paths| &paths.spec_replicas);
    put(workload, path, replicas.into());
}

/// Where a custom resource keeps what its scale is about.
pub fn paths(resource: &Resource) -> Option<&Scale> {
    resource.definition.as_ref()?.version.scale.as_ref()
}

pub fn put(object: &mut Value, path: &str, value: Value) {
    let path = path.strip_prefix('.').unwrap_or(path);
    let mut place = object;
    for name in path.split('.') {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[name];
    }
    *place = value;
}

/// The pods' selector as text: a map in a ReplicationController, a LabelSelector elsewhere.
fn selector_of(workload: &Value, resource: &Resource) -> String {
    if let Some(paths) = paths(resource) {
        let selector = scale_of_path(workload, &paths.selector).and_then(Value::as_str);
        return selector.unwrap_or_default().to_owned();
    }
    let selector = &workload["spec"]["selector"];
    if peculiar::of(resource).selects_by_map {
        let labels = serde_json::from_value(selector.clone()).unwrap_or_default();
        return Selector::from_set(&labels).to_string();
    }
    let selector: Option<LabelSelector> = serde_json::from_value(selector.clone()).ok();
    Selector::from_label_selector(selector.as_ref()).map(|s| s.to_string()).unwrap_or_default()
}
