//! The scale subresource: one number of a workload, read and written as `autoscaling/v1.Scale`.
use crate::answer::{self, View};
use crate::stored;
use crate::verbs::object::{check_name, decode_as, place, text};
use crate::verbs::patch::Patch;
use crate::verbs::write::{self, Owner};
use crate::verbs::{Context, Outgoing, current};
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
    let old = current(context.api, call.resource, &call.namespace, &call.name).await?;
    if call.verb == Verb::Get {
        let scale = scale_of(&stored::decode(&old, call.resource)?, call.resource);
        return Ok((answer::of_type(StatusCode::OK, scale, ty, &view), Vec::new()));
    }
    let written = if call.verb == Verb::Update {
        let (mut wanted, warnings) = decode_as(context, ty, "autoscaling/v1", "Scale")?;
        place(&mut wanted, call)?;
        check_name(&wanted, call)?;
        write::update(context, old, Owner::Client, |workload| {
            Ok((scaled(workload, &wanted)?, warnings.clone()))
        })
        .await?
    } else {
        let patch = Patch::read(context)?;
        write::update(context, old, Owner::Client, |workload| {
            let wanted = patch.applied_to(scale_of(workload, call.resource), ty)?;
            let (mut wanted, warnings) = patch.decoded(wanted, ty, call)?;
            place(&mut wanted, call)?;
            check_name(&wanted, call)?;
            Ok((scaled(workload, &wanted)?, warnings))
        })
        .await?
    };
    let scale = scale_of(&written.object, call.resource);
    Ok((answer::of_type(StatusCode::OK, scale, ty, &view), written.warnings))
}

/// The workload with the replicas that are wanted. A client that names a version means the
/// workload's.
fn scaled(workload: &Value, wanted: &Value) -> Result<Value, Status> {
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
    scaled["spec"]["replicas"] = replicas.into();
    scaled["metadata"]["resourceVersion"] = text(wanted, "resourceVersion").into();
    if !text(wanted, "uid").is_empty() {
        scaled["metadata"]["uid"] = text(wanted, "uid").into();
    }
    Ok(scaled)
}

fn scale_of(workload: &Value, resource: &Resource) -> Value {
    let metadata = &workload["metadata"];
    let mut scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": { "replicas": workload["spec"]["replicas"].as_i64().unwrap_or(0) },
        "status": {
            "replicas": workload["status"]["replicas"].as_i64().unwrap_or(0),
            "selector": selector_of(workload, resource),
        },
    });
    // None is not written.
    if workload["spec"]["replicas"].as_i64().unwrap_or(0) == 0 {
        scale["spec"] = json!({});
    }
    scale
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
