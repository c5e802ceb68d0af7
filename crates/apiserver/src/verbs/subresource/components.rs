//! Component statuses: not stored, but asked for. Upstream's components answer on this machine, and the
//! store is asked as the health check asks it.
use crate::answer;
use crate::ground::kubeconfig::Client;
use crate::ground::towards::Tls;
use crate::server::ApiServer;
use crate::state::selection::Selection;
use crate::verbs::{Context, Outgoing, unsupported};
use api::kinds::Verb;
use api::status::Status;
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;
use store::{Key, KeyValue, Slot};

const PATIENCE: Duration = Duration::from_secs(20);
const DEPRECATED: &str = "v1 ComponentStatus is deprecated in v1.19+";

/// Name, and where it says whether it is well; the store is not asked over the wire.
const COMPONENTS: &[(&str, Option<&str>)] = &[
    ("controller-manager", Some("https://127.0.0.1:10257/healthz")),
    ("scheduler", Some("https://127.0.0.1:10259/healthz")),
    ("etcd-0", None),
];

pub async fn run(context: Context<'_>) -> Outgoing {
    let (api, call) = (context.api, context.call);
    let view = context.view()?;
    let answer = match call.verb {
        Verb::Get => {
            let found = COMPONENTS.iter().find(|(name, _)| *name == call.name);
            let missing = || Status::not_found(call.resource.group_resource(), &call.name);
            let (name, place) = found.ok_or_else(missing)?;
            answer::object(StatusCode::OK, status(api, name, *place).await, &call.resource, &view)
        }
        Verb::List => {
            let selection = Selection::new(&call.list_options()?.selectors, &call.resource)?;
            let all = COMPONENTS.iter().map(|(name, place)| status(api, name, *place));
            let mut all = join_all(all).await;
            all.retain(|status| selection.matches(&as_stored(status)));
            answer::list_of(all, &call.resource, &view)
        }
        _ => return Err(unsupported(call)),
    };
    Ok((answer, vec![DEPRECATED.to_owned()]))
}

/// As selectors look at objects.
fn as_stored(status: &Value) -> KeyValue {
    let value = status.to_string().into_bytes().into();
    let key = Key::from("");
    let slot = Slot::default();
    KeyValue { key, value, create_revision: 0, mod_revision: 0, version: 0, lease: 0, slot }
}

async fn status(api: &ApiServer, name: &str, place: Option<&str>) -> Value {
    let asked = async {
        match place {
            Some(place) => probe(place).await.map_err(|cause| ("message", cause)),
            None => api.store().revision().await.map(drop).map_err(|e| ("error", e.to_string())),
        }
    };
    let asked = tokio::time::timeout(PATIENCE, asked).await;
    let mut condition = json!({ "type": "Healthy", "status": "True", "message": "ok" });
    if let Err((field, cause)) =
        asked.unwrap_or_else(|_| Err(("message", "it does not answer".into())))
    {
        condition = json!({ "type": "Healthy", "status": "False", field: cause });
    }
    json!({ "kind": "ComponentStatus", "apiVersion": "v1", "metadata": { "name": name },
        "conditions": [condition] })
}

async fn probe(place: &str) -> Result<(), String> {
    let failed = |cause: &dyn std::fmt::Display| format!("Get {place:?}: {cause}");
    let tls = Tls::Unverified.config().map_err(|error| failed(&error))?;
    let client = Client::to(place, tls.as_ref().clone()).map_err(|error| failed(&error))?;
    let answer = client.get().await.map_err(|error| {
        let host = place.trim_start_matches("https://").split('/').next().unwrap_or_default();
        match error.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                failed(&format!("dial tcp {host}: connect: connection refused"))
            }
            _ => failed(&error),
        }
    })?;
    match answer.status().is_success() {
        true => Ok(()),
        false => Err(format!("HTTP probe failed with statuscode: {}", answer.status().as_u16())),
    }
}
