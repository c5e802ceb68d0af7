//! The scale subresource: one number of a workload, read and written as `autoscaling/v1.Scale`.
use super::change;
use super::object::{self, text};
use super::read::current;
use crate::answer::{self, Answer};
use crate::request::Call;
use crate::resources::ApiServer;
use crate::serve::{Received, accepted};
use crate::stored;
use api::codec::json;
use api::codec::object::{self as codec, Encoding};
use api::content::PatchType;
use api::kinds::{Resource, Verb};
use api::patch::json_patch::{self, Limits};
use api::patch::{merge, strategic};
use api::schema::TypeRef;
use api::selector::label::Selector;
use api::status::Status;
use http::{StatusCode, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

pub async fn run(api: &ApiServer, call: &Call, received: &Received) -> Result<Answer, Status> {
    let ty =
        call.subresource.and_then(|s| s.kind).map(|kind| kind.ty()).unwrap_or(call.resource.ty());
    let old = current(api, call.resource, &call.namespace, &call.name).await?;
    let workload = stored::decode(&old, call.resource)?;
    let scale = scale_of(&workload, call.resource);
    if call.verb == Verb::Get {
        return Ok(answer::object(StatusCode::OK, scale, ty, &accepted(received)?));
    }
    let wanted = wanted(call, received, scale, ty)?;
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    let mut changed = workload;
    changed["spec"]["replicas"] = replicas.into();
    // A client that names a version means the workload's.
    changed["metadata"]["resourceVersion"] = text(&wanted, "resourceVersion").into();
    let changed = change::replace_from(api, call, received, &old, changed).await?;
    let scale = scale_of(&changed, call.resource);
    Ok(answer::object(StatusCode::OK, scale, ty, &accepted(received)?))
}

/// The scale that the client wants.
fn wanted(
    call: &Call,
    received: &Received,
    scale: Value,
    ty: TypeRef<'_>,
) -> Result<Value, Status> {
    let invalid = |error: &dyn std::fmt::Display| Status::bad_request(error.to_string());
    let content_type = received.header(header::CONTENT_TYPE);
    if call.verb == Verb::Update {
        let encoding = Encoding::of_request(content_type, Encoding::ALL)?;
        let decoded = codec::decode(&received.body, encoding, ty).map_err(|e| invalid(&e))?;
        return Ok(decoded.value);
    }
    let patch_type = PatchType::of_request(content_type, PatchType::ALL)?;
    let patch = json::decode_untyped(&received.body).map_err(|e| invalid(&e))?.value;
    match patch_type {
        PatchType::Json => {
            let limits = Limits::default();
            let patch = json_patch::Patch::decode(patch, &limits).map_err(|e| invalid(&e))?;
            patch.apply(scale, &limits).map_err(|e| invalid(&e))
        }
        PatchType::StrategicMerge => Ok(strategic::merge(scale, patch, ty)?),
        PatchType::Merge | PatchType::Apply => {
            let mut scale = scale;
            merge::apply(&mut scale, &patch).map_err(|e| invalid(&e))?;
            Ok(scale)
        }
    }
}

fn scale_of(workload: &Value, resource: &Resource) -> Value {
    let metadata = &workload["metadata"];
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": { "replicas": object::replicas(workload) },
        "status": {
            "replicas": workload["status"]["replicas"].as_i64().unwrap_or(0),
            "selector": selector_of(workload, resource),
        },
    })
}

/// The pods' selector as text: a map in a ReplicationController, a LabelSelector elsewhere.
fn selector_of(workload: &Value, resource: &Resource) -> String {
    let selector = &workload["spec"]["selector"];
    if resource.kind == "ReplicationController" {
        let labels = serde_json::from_value(selector.clone()).unwrap_or_default();
        return Selector::from_set(&labels).to_string();
    }
    let selector: Option<LabelSelector> = serde_json::from_value(selector.clone()).ok();
    Selector::from_label_selector(selector.as_ref()).map(|s| s.to_string()).unwrap_or_default()
}
