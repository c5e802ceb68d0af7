//! The binding subresource: puts a pod on a node, once.
use crate::admission;
use crate::answer;
use crate::state::objects;
use crate::verbs::object::{decode_as, metadata, text};
use crate::verbs::{Context, Outgoing};
use api::field::{Error, Path, aggregate};
use api::group::GroupResource;
use api::kinds::find_kind;
use api::schema::builtin;
use api::status::Status;
use jiff::Timestamp;
use serde_json::{Value, json};

pub async fn run(context: Context<'_>) -> Outgoing {
    let call = context.call;
    let view = context.own_view()?;
    let ty = builtin().named("core/v1.Binding").expect("a binding is in the facts");
    let (mut binding, mut warnings) = decode_as(context, ty, "v1", "Binding")?;
    if !call.name.is_empty() && text(&binding, "name") != call.name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    warnings.extend(admission::pass(context, &mut binding).await?);
    let name = text(&binding, "name");
    validate(&binding)?;
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    let pods = find_kind("v1", "Pod").expect("pods are in the registry");
    let place = (call.namespace.as_str(), name);
    objects::modify(context.api, pods, place, call.is_dry_run(), |pod| bind(pod, &binding)).await?;
    Ok((answer::done(&view), warnings))
}

fn validate(binding: &Value) -> Result<(), Status> {
    let path = Path::new("target");
    let mut errors = Vec::new();
    let kind = binding["target"]["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "" | "Node") {
        errors.push(Error::not_supported(&path.child("kind"), kind, ["Node", "<empty>"]));
    }
    let name = binding["target"]["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    } else if matches!(kind, "" | "Node") {
        let faults = api::names::name_is_dns_subdomain(name, false);
        errors.extend(faults.into_iter().map(|f| Error::invalid(&path.child("name"), name, f)));
    }
    // Upstream sends these as a plain error, which makes it a fault of the server.
    let fault = |message: String| Status { code: 500, message, ..Status::default() };
    aggregate(&errors).map_or(Ok(()), |text| Err(fault(text)))
}

fn bind(pod: &mut Value, binding: &Value) -> Result<(), Status> {
    let name = text(pod, "name").to_owned();
    let refused =
        |cause: String| Err(Status::conflict(GroupResource::new("", "pods/binding"), &name, cause));
    for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, found) = (text(binding, field), text(pod, field));
        if !wanted.is_empty() && wanted != found {
            let key = format!("/pods/{}/{name}", text(pod, "namespace"));
            let cause = format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            return Err(Status::conflict(GroupResource::new("", "pods"), &name, cause));
        }
    }
    if !text(pod, "deletionTimestamp").is_empty() {
        return refused(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return refused(format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return refused(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    if let Value::Object(status) = &mut pod["status"] {
        status.remove("nominatedNodeName");
    }
    for field in ["annotations", "labels"] {
        if let Value::Object(given) = &binding["metadata"][field] {
            let all = metadata(pod).entry(field).or_insert_with(|| json!({}));
            for (key, value) in given {
                all[key] = value.clone();
            }
        }
    }
    put_condition(pod, json!({ "type": "PodScheduled", "status": "True" }), Timestamp::now());
    Ok(())
}

/// Sets a condition of a pod; its time changes with its status only.
pub fn put_condition(pod: &mut Value, mut condition: Value, now: Timestamp) {
    let conditions = &mut pod["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Value::Array(all) = conditions else { return };
    condition["lastTransitionTime"] = api::time::format(now.as_second()).into();
    match all.iter_mut().find(|known| known["type"] == condition["type"]) {
        None => all.push(condition),
        Some(known) => {
            if known["status"] == condition["status"] {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
    }
}
