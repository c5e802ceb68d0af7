//! What a pod's runtime class brings: its overhead, and where it can run.
use super::{Attributes, Operation, push};
use crate::state::objects;
use api::kinds::find_kind;
use api::status::Status;
use serde_json::{Map, Value};

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

fn concerns(attributes: &Attributes<'_>) -> bool {
    attributes.is("", "Pod") && !attributes.is_part() && attributes.operation == Operation::Create
}

/// The class that the pod names.
async fn class(attributes: &Attributes<'_>) -> Result<Option<Value>, Status> {
    let pod = attributes.object.as_deref();
    let Some(name) = pod.and_then(|pod| pod["spec"]["runtimeClassName"].as_str()) else {
        return Ok(None);
    };
    if name.is_empty() {
        let message = "resource name may not be empty".to_owned();
        return Err(Status { code: 500, message, ..Status::default() });
    }
    let resource = find_kind("node.k8s.io/v1", "RuntimeClass").expect("in the registry");
    match objects::get(attributes.api, resource, "", name).await {
        Ok(class) => Ok(Some(class)),
        Err(status) if status.is_not_found() => {
            Err(attributes.forbidden(format!("pod rejected: RuntimeClass {name:?} not found")))
        }
        Err(status) => Err(status),
    }
}

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !concerns(attributes) {
        return Ok(());
    }
    let Some(class) = class(attributes).await? else { return Ok(()) };
    let overhead = &class["overhead"]["podFixed"];
    let scheduling = &class["scheduling"];
    let Some(pod) = attributes.object.as_deref_mut() else { return Ok(()) };
    if overhead.is_object() {
        if pod["spec"]["overhead"].as_object().is_some_and(|o| !o.is_empty())
            && pod["spec"]["overhead"] != *overhead
        {
            return Err(attributes.forbidden(MISMATCH));
        }
        pod["spec"]["overhead"] = overhead.clone();
    }
    if let Some(wanted) = scheduling["nodeSelector"].as_object() {
        let mut selector: Map<String, Value> =
            pod["spec"]["nodeSelector"].as_object().cloned().unwrap_or_default();
        for (key, value) in wanted {
            if let Some(given) = selector.get(key).filter(|given| *given != value) {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let text = format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    text(value),
                    text(given)
                );
                return Err(attributes.forbidden(text));
            }
            selector.insert(key.clone(), value.clone());
        }
        pod["spec"]["nodeSelector"] = selector.into();
    }
    for toleration in scheduling["tolerations"].as_array().into_iter().flatten() {
        let known = pod["spec"]["tolerations"].as_array();
        if !known.is_some_and(|known| known.contains(toleration)) {
            push(&mut pod["spec"]["tolerations"], toleration.clone());
        }
    }
    Ok(())
}

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !concerns(attributes) {
        return Ok(());
    }
    let class = class(attributes).await?;
    let expected = class.as_ref().and_then(|class| class["overhead"].get("podFixed"));
    let pod = attributes.object.as_deref().unwrap_or(&Value::Null);
    match (expected, pod["spec"].get("overhead")) {
        (None, None) => Ok(()),
        (Some(expected), Some(given)) if expected == given => Ok(()),
        (Some(_), _) => Err(attributes.forbidden(MISMATCH)),
        (None, Some(_)) => Err(attributes.forbidden(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        )),
    }
}
