//! Keeps what is in force in step with the FlowSchemas and PriorityLevelConfigurations in the store.
use super::Fairness;
use super::configure::MANDATORY;
use crate::bootstrap::flow;
use crate::following::follow;
use crate::objects;
use crate::resources::ApiServer;
use crate::verbs;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use jiff::Timestamp;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

const KINDS: [&str; 2] = ["FlowSchema", "PriorityLevelConfiguration"];

fn resource(kind: &str) -> &'static Resource {
    find_kind("flowcontrol.apiserver.k8s.io/v1", kind).expect("the kinds are in the registry")
}

/// Reads the objects, and follows them from then on.
pub async fn start(api: &ApiServer, fairness: &Arc<Fairness>) -> Result<(), Status> {
    refresh(api, fairness).await?;
    let lending = (api.clone(), fairness.clone());
    tokio::spawn(async move {
        let (api, fairness) = lending;
        tokio::select! {
            () = api.stopping() => {}
            () = fairness.lend_while_pressed() => {}
        }
    });
    let server = (api.clone(), fairness.clone());
    follow(api, &KINDS.map(resource), move |_| {
        let (api, fairness) = server.clone();
        async move {
            if let Err(error) = refresh(&api, &fairness).await {
                tracing::warn!(%error, "failed to read flow schemas and priority levels");
            }
        }
    })
    .await
}

async fn list<T: DeserializeOwned>(api: &ApiServer, kind: &str) -> Result<Vec<T>, Status> {
    let all = objects::readable(api, resource(kind), "").await?;
    // An object that cannot be read is not in force; the others are.
    Ok(all.into_iter().filter_map(|object| serde_json::from_value(object).ok()).collect())
}

async fn refresh(api: &ApiServer, fairness: &Fairness) -> Result<(), Status> {
    let schemas: Vec<FlowSchema> = list(api, KINDS[0]).await?;
    let levels: Vec<PriorityLevelConfiguration> = list(api, KINDS[1]).await?;
    let dangling = fairness.configure(&schemas, &levels);
    for object in flow::objects() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, kind) = (text(&object["metadata"]["name"]), text(&object["kind"]));
        let known = match kind.as_str() {
            "FlowSchema" => schemas.iter().any(|s| s.metadata.name.as_deref() == Some(&name)),
            _ => levels.iter().any(|level| level.metadata.name.as_deref() == Some(&name)),
        };
        if MANDATORY.contains(&name.as_str()) && !known {
            verbs::first(api, resource(&kind), object).await?;
        }
    }
    for (schema, level, is_dangling) in dangling {
        let found = schemas.iter().find(|s| s.metadata.name.as_deref() == Some(&schema));
        if let Some(found) = found {
            say_dangling(api, found, &schema, &level, is_dangling).await;
        }
    }
    Ok(())
}

/// Keeps the condition `Dangling` of a schema: whether its level is missing.
async fn say_dangling(
    api: &ApiServer,
    known: &FlowSchema,
    name: &str,
    level: &str,
    dangling: bool,
) {
    let (status, reason, end) = match dangling {
        true => ("True", "NotFound", "but there is no such object"),
        false => ("False", "Found", "and it exists"),
    };
    let message = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {level:?} {end}"
    );
    let said = known.status.as_ref().and_then(|status| status.conditions.as_ref());
    let said = said.and_then(|all| all.iter().find(|c| c.type_ == "Dangling"));
    if said.is_some_and(|c| {
        c.status.as_deref() == Some(status) && c.message.as_deref() == Some(&message)
    }) {
        return;
    }
    let condition = json!({
        "type": "Dangling", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": api::time::format(Timestamp::now().as_second()),
    });
    let written = objects::modify(api, resource("FlowSchema"), ("", name), false, |schema| {
        if !schema["status"].is_object() {
            schema["status"] = json!({});
        }
        let mut all = schema["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.retain(|condition| condition["type"] != "Dangling");
        all.push(condition.clone());
        schema["status"]["conditions"] = all.into();
        Ok(())
    });
    if let Err(error) = written.await {
        tracing::debug!(%error, name, "failed to say whether a flow schema is dangling");
    }
}
