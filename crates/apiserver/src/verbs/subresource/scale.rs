//! The scale subresource: one number of a workload, read and written as `autoscaling/v1.Scale`.
use crate::answer::{self, View};
use crate::stored;
use crate::verbs::object::{check_name, decode_as, place, text};
use crate::verbs::patch::{Patch, Shape};
use crate::verbs::write::{self, Owner};
use crate::verbs::{Context, Outgoing, current};
use api::custom::{Scale, scale_of_path};
use api::kinds::{Resource, Verb};
use api::schema::builtin;
use api::selector::label::Selector;
use api::status::Status;
use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

pub async fn run(context: Context<'_>) -> Outgoing {
    let call = context.call;
    let view = View::of(context)?;
    let ty = builtin().named("autoscaling/v1.Scale").expect("a scale is in the facts");
    let old = current(context.api, &call.resource, &call.namespace, &call.name).await?;
    if call.verb == Verb::Get {
        let object = stored::decode(&old, &call.resource)?;
        check_replicas(&object, &call.resource)?;
        let scale = scale_of(&object, &call.resource);
        return Ok((answer::of_type(StatusCode::OK, scale, ty, &view), Vec::new()));
    }
    let written = if call.verb == Verb::Update {
        let (mut wanted, warnings) = decode_as(context, ty, "autoscaling/v1", "Scale")?;
        place(&mut wanted, call)?;
        check_name(&wanted, call)?;
        write::update(context, old, Owner::Client, |workload| {
            Ok((scaled(workload, &wanted, &call.resource)?, warnings.clone()))
        })
        .await?
    } else {
        let patch = Patch::read(context)?;
        write::update(context, old, Owner::Client, |workload| {
            let wanted = patch.applied_to(scale_of(workload, &call.resource), ty)?;
            let (mut wanted, warnings) = patch.decoded(wanted, Shape::Other(ty), call)?;
            place(&mut wanted, call)?;
            check_name(&wanted, call)?;
            Ok((scaled(workload, &wanted, &call.resource)?, warnings))
        })
        .await?
    };
    let scale = scale_of(&written.object, &call.resource);
    Ok((answer::of_type(StatusCode::OK, scale, ty, &view), written.warnings))
}

/// The workload with the replicas that are wanted. A client that names a version means the
/// workload's.
fn scaled(workload: &Value, wanted: &Value, resource: &Resource) -> Result<Value, Status> {
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let path = api::field::Path::new("spec");
        let path = path.child("replicas");
        let kind = api::group::GroupKind::new("autoscaling", "Scale");
        let detail = "must be greater than or equal to 0";
        let error = api::field::Error::invalid(&path, replicas, detail);
        return Err(Status::invalid(kind, text(workload, "name"), &[error]));
    }
    let mut scaled = workload.clone();
    match paths(resource) {
        Some(paths) => put(&mut scaled, &paths.spec_replicas, replicas.into()),
        None => scaled["spec"]["replicas"] = replicas.into(),
    }
    scaled["metadata"]["resourceVersion"] = text(wanted, "resourceVersion").into();
    if !text(wanted, "uid").is_empty() {
        scaled["metadata"]["uid"] = text(wanted, "uid").into();
    }
    Ok(scaled)
}

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
fn paths(resource: &Resource) -> Option<&Scale> {
    resource.definition.as_ref()?.version.scale.as_ref()
}

/// A custom object without replicas has no scale.
fn check_replicas(object: &Value, resource: &Resource) -> Result<(), Status> {
    match paths(resource) {
        Some(paths) if scale_of_path(object, &paths.spec_replicas).is_none() => {
            let path = &paths.spec_replicas;
            let text = format!("the spec replicas field {path:?} does not exist");
            Err(Status::internal_error(text))
        }
        _ => Ok(()),
    }
}

fn put(object: &mut Value, path: &str, value: Value) {
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
    if resource.is("", "ReplicationController") {
        let labels = serde_json::from_value(selector.clone()).unwrap_or_default();
        return Selector::from_set(&labels).to_string();
    }
    let selector: Option<LabelSelector> = serde_json::from_value(selector.clone()).ok();
    Selector::from_label_selector(selector.as_ref()).map(|s| s.to_string()).unwrap_or_default()
}
