//! The scale subresource: one number of a workload, read and written as `autoscaling/v1.Scale`.
use crate::answer;
use crate::state::another;
use crate::state::scale::{paths, put, scale_of};
use crate::state::stored;
use crate::verbs::object::{check_name, decode_as, place, text};
use crate::verbs::patch::{Patch, Shape};
use crate::verbs::write::{self, Owner};
use crate::verbs::{Context, Outgoing, current};
use api::codec::object::{self as codec, Encoding, TypeMeta};
use api::custom::scale_of_path;
use api::kinds::{Resource, Verb};
use api::schema::builtin;
use api::status::Status;
use http::{StatusCode, header};
use serde_json::Value;

pub async fn run(context: Context<'_>) -> Outgoing {
    let call = context.call;
    let view = context.own_view()?;
    let ty = builtin().named("autoscaling/v1.Scale").expect("a scale is in the facts");
    if call.verb == Verb::Get {
        let found = current(context.api, &call.resource, &call.namespace, &call.name).await?;
        let object = stored::decode(&found, &call.resource)?;
        check_replicas(&object, &call.resource)?;
        let scale = scale_of(&object, &call.resource);
        return Ok((answer::of_type(StatusCode::OK, scale, ty, &view), Vec::new()));
    }
    let old = write::old(context).await?;
    let written = if call.verb == Verb::Update {
        check_type(context)?;
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

/// What says that it is something else is no scale.
fn check_type(context: Context<'_>) -> Result<(), Status> {
    let received = context.received;
    let found = match &received.given {
        Some(given) => TypeMeta::of(given),
        None => {
            let content_type = received.header(header::CONTENT_TYPE);
            let encoding = Encoding::of_request(content_type, Encoding::ALL)?;
            // What cannot be read is told of by whoever reads it.
            codec::type_meta(&received.body, encoding).unwrap_or_default()
        }
    };
    let or = |said: String, own: &str| if said.is_empty() { own.to_owned() } else { said };
    let found = TypeMeta {
        api_version: or(found.api_version, "autoscaling/v1"),
        kind: or(found.kind, "Scale"),
    };
    let fault = another::unregistered(&found)
        .or_else(|| another::unconvertible(&found, "autoscaling", "Scale"));
    let Some(fault) = fault else { return Ok(()) };
    let (kind, (_, version)) = (&found.kind, found.group_version());
    Err(Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a Scale: {fault}"
    )))
}

/// The workload with the replicas that are wanted. A client that names a version means the
/// workload's.
fn scaled(workload: &Value, wanted: &Value, resource: &Resource) -> Result<Value, Status> {
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    let custom = paths(resource);
    // The rules of a custom object say the same of its own field.
    if replicas < 0 && custom.is_none() {
        let path = api::field::Path::new("spec");
        let path = path.child("replicas");
        let kind = api::group::GroupKind::new("autoscaling", "Scale");
        let detail = "must be greater than or equal to 0";
        let error = api::field::Error::invalid(&path, replicas, detail);
        return Err(Status::invalid(kind, text(workload, "name"), &[error]));
    }
    let mut scaled = workload.clone();
    match custom {
        Some(paths) => put(&mut scaled, &paths.spec_replicas, replicas.into()),
        None => scaled["spec"]["replicas"] = replicas.into(),
    }
    // A custom object is never written without a version: it keeps the one that was found.
    if custom.is_none() || !text(wanted, "resourceVersion").is_empty() {
        scaled["metadata"]["resourceVersion"] = text(wanted, "resourceVersion").into();
    }
    if !text(wanted, "uid").is_empty() {
        scaled["metadata"]["uid"] = text(wanted, "uid").into();
    }
    Ok(scaled)
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
