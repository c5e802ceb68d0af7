//! A pod's priority is what its class says; at most one class is the default.
use super::{Attributes, Operation};
use crate::server::ApiServer;
use crate::state::objects;
use crate::state::stored;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use memchr::memmem;
use serde_json::Value;
use std::sync::Arc;
use store::KeyValue;
use store::cache::At;

fn classes() -> &'static Resource {
    find_kind("scheduling.k8s.io/v1", "PriorityClass").expect("classes are in the registry")
}

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.is("", "Pod") || attributes.is_part() {
        return Ok(());
    }
    let api = attributes.api;
    let (operation, old) = (attributes.operation, attributes.old);
    let Some(pod) = attributes.object.as_deref_mut() else { return Ok(()) };
    if let (Operation::Update, Some(old)) = (operation, old) {
        // A client that leaves them out does not mean to change them.
        for field in ["priority", "preemptionPolicy"] {
            if pod["spec"].get(field).is_none() && old["spec"].get(field).is_some() {
                pod["spec"][field] = old["spec"][field].clone();
            }
        }
        return Ok(());
    }
    let name = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let class = match name.as_str() {
        "" => default_class(api).await?,
        name => match objects::get(api, classes(), "", name).await {
            Ok(class) => Some(class),
            Err(status) if status.is_not_found() => {
                let text = format!("no PriorityClass with name {name} was found");
                return Err(attributes.forbidden(text));
            }
            Err(status) => return Err(status),
        },
    };
    let value = class.as_ref().and_then(|class| class["value"].as_i64()).unwrap_or(0);
    let policy = match &class {
        Some(class) => class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority"),
        None => "PreemptLowerPriority",
    };
    if let Some(given) = pod["spec"]["priority"].as_i64().filter(|given| *given != value) {
        return Err(attributes.forbidden(format!("the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name")));
    }
    if let Some(given) = pod["spec"]["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        let text = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(attributes.forbidden(text));
    }
    if let Some(class) = &class {
        pod["spec"]["priorityClassName"] = class["metadata"]["name"].clone();
    }
    pod["spec"]["priority"] = value.into();
    pod["spec"]["preemptionPolicy"] = policy.into();
    Ok(())
}

/// Of several defaults the lowest counts.
async fn default_class(api: &ApiServer) -> Result<Option<Value>, Status> {
    let all = objects::stored(api, classes(), "", At::Latest).await?;
    // Every pod without a class asks, and most clusters have no default: few need be read whole.
    let may_be =
        |class: &&Arc<KeyValue>| memmem::find(&class.value, b"\"globalDefault\"").is_some();
    let read = |class: &Arc<KeyValue>| stored::decode(class, classes());
    let all = all.iter().filter(may_be).map(read).collect::<Result<Vec<Value>, Status>>()?;
    let defaults = all.into_iter().filter(|class| class["globalDefault"] == true);
    Ok(defaults.min_by_key(|class| class["value"].as_i64().unwrap_or(0)))
}

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let is_default = |class: &Value| class["globalDefault"] == true;
    if !attributes.is("scheduling.k8s.io", "PriorityClass") {
        return Ok(());
    }
    let Some(class) = attributes.object.as_deref().filter(|class| is_default(class)) else {
        return Ok(());
    };
    if let Some(other) = default_class(attributes.api).await?
        && other["metadata"]["name"] != class["metadata"]["name"]
    {
        let name = other["metadata"]["name"].as_str().unwrap_or_default();
        return Err(attributes.forbidden(format!(
            "PriorityClass {name} is already marked as default. Only one default can exist"
        )));
    }
    Ok(())
}
