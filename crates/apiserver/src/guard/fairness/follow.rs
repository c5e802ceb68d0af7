//! Keeps what is in force in step with the FlowSchemas and PriorityLevelConfigurations in the store.
use super::Fairness;
use super::configure::MANDATORY;
use crate::guard::fairness::flow;
use crate::server::ApiServer;
use crate::state::following::{self, Kept};
use crate::state::objects;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use jiff::Timestamp;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use serde_json::{Value, json};
use std::sync::Arc;
use store::Key;

const VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

fn resource(kind: &str) -> &'static Resource {
    find_kind(VERSION, kind).expect("the kinds are in the registry")
}

/// Reads the objects, and follows them from then on.
pub async fn start(api: &ApiServer, fairness: &Arc<Fairness>) -> Result<(), Status> {
    following::keep::<Configured>(api).await?;
    let lending = (api.clone(), fairness.clone());
    tokio::spawn(async move {
        let (api, fairness) = lending;
        tokio::select! {
            () = api.stopping() => {}
            () = fairness.lend_while_pressed() => {}
        }
    });
    Ok(())
}

/// The objects as they are now.
#[derive(Default)]
struct Configured {
    schemas: Kept<FlowSchema>,
    levels: Kept<PriorityLevelConfiguration>,
}

impl following::Index for Configured {
    const KINDS: &'static [(&'static str, &'static str)] =
        &[(VERSION, "FlowSchema"), (VERSION, "PriorityLevelConfiguration")];

    fn take(&mut self, kind: &'static Resource, key: &Key, object: Option<Value>) {
        match kind.plural {
            "flowschemas" => self.schemas.take(key, object),
            _ => self.levels.take(key, object),
        }
    }

    async fn settle(&mut self, api: &ApiServer) {
        let Some(fairness) = api.fairness() else { return };
        let dangling = fairness.configure(self.schemas.iter(), self.levels.iter());
        if let Err(error) = self.mend(api).await {
            tracing::warn!(%error, "failed to write what flow control cannot be without");
        }
        for (schema, level, is_dangling) in dangling {
            let found = self.schemas.iter().find(|s| s.metadata.name.as_deref() == Some(&schema));
            if let Some(found) = found {
                say_dangling(api, found, &schema, &level, is_dangling).await;
            }
        }
    }
}

impl Configured {
    /// Writes what must be there and is not.
    async fn mend(&self, api: &ApiServer) -> Result<(), Status> {
        for object in flow::objects() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (name, kind) = (text(&object["metadata"]["name"]), text(&object["kind"]));
            if !MANDATORY.contains(&name.as_str()) {
                continue;
            }
            let name = Some(name.as_str());
            let known = match kind.as_str() {
                "FlowSchema" => self.schemas.iter().any(|s| s.metadata.name.as_deref() == name),
                _ => self.levels.iter().any(|level| level.metadata.name.as_deref() == name),
            };
            if !known {
                objects::first(api, resource(&kind), object).await?;
            }
        }
        Ok(())
    }
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
