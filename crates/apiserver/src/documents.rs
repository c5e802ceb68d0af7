//! Everything that is not a resource: discovery, OpenAPI, version, health.
use crate::answer::{self, Answer};
use crate::resources::ApiServer;
use crate::serve::Received;
use api::codec::object::Encoding;
use api::content;
use api::openapi::{proto, v2, v3};
use api::status::Status;
use api::{discovery, kinds};
use bytes::Bytes;
use http::{StatusCode, header};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

pub fn serve(api: &ApiServer, received: &Received) -> Result<Answer, Status> {
    let parts: Vec<&str> = received.path.split('/').filter(|part| !part.is_empty()).collect();
    let found = match parts[..] {
        ["api"] => discover(received, true, json!(discovery::versions(&host(received))))?,
        ["apis"] => discover(received, false, json!(discovery::groups()))?,
        ["api", "v1"] => plain(received, json!(discovery::resources("", "v1")))?,
        ["apis", group] => match discovery::group(group) {
            Some(group) => plain(received, json!(group))?,
            None => return Err(missing()),
        },
        ["apis", group, version] => match discovery::resources(group, version) {
            Some(list) => plain(received, json!(list))?,
            None => return Err(missing()),
        },
        ["version"] => json_text(&version()),
        ["healthz" | "livez"] => text("ok"),
        ["readyz"] if api.is_stopping() => {
            return Ok(answer::bytes(
                StatusCode::INTERNAL_SERVER_ERROR,
                "text/plain",
                "shutting down",
            ));
        }
        ["readyz"] => text("ok"),
        ["openapi", "v2"] if proto::is_asked_for(received.header(header::ACCEPT)) => {
            let body = cached("v2.pb", || proto::encode(&v2::document()));
            answer::bytes(StatusCode::OK, proto::MEDIA_TYPE, body)
        }
        ["openapi", "v2"] => json_text_of(cached("v2", || v2::document().to_string().into_bytes())),
        ["openapi", "v3"] => json_text(&openapi_index()),
        ["openapi", "v3", ref path @ ..] => openapi(&path.join("/"))?,
        _ => return Err(missing()),
    };
    Ok(found)
}

fn missing() -> Status {
    let mut status = Status::not_found(Default::default(), "");
    status.message = "the server could not find the requested resource".into();
    status
}

fn host(received: &Received) -> String {
    received.header(header::HOST).to_owned()
}

/// Discovery of everything at once, for the clients that ask for it.
fn discover(received: &Received, core: bool, unaggregated: Value) -> Result<Answer, Status> {
    let accepted = content::negotiate(received.header(header::ACCEPT), &content::DISCOVERY)?;
    match accepted.target {
        Some(target) => {
            let list = json!(discovery::aggregated(core));
            let mut answer = answer::value(StatusCode::OK, list, None, Encoding::Json);
            let media = format!(
                "application/json;g={};v={};as={}",
                target.group, target.version, target.kind
            );
            if let Ok(media) = media.parse() {
                answer.headers_mut().insert(header::CONTENT_TYPE, media);
            }
            Ok(answer)
        }
        None => plain(received, unaggregated),
    }
}

fn plain(received: &Received, value: Value) -> Result<Answer, Status> {
    let accepted = content::negotiate(received.header(header::ACCEPT), &content::PLAIN)?;
    let ty = value["kind"].as_str().and_then(answer::meta_type);
    Ok(answer::value(StatusCode::OK, value, ty, accepted.encoding))
}

fn text(body: &'static str) -> Answer {
    answer::bytes(StatusCode::OK, "text/plain; charset=utf-8", body)
}

fn json_text(value: &Value) -> Answer {
    json_text_of(value.to_string().into())
}

fn json_text_of(text: Bytes) -> Answer {
    answer::bytes(StatusCode::OK, "application/json", text)
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "37", "gitVersion": format!("{}+skiff", api::VERSION),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, goarch()),
    })
}

/// The platform in Go's words, which clients compare.
fn goarch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A document is made once, when it is first asked for.
fn cached(name: &str, make: impl FnOnce() -> Vec<u8>) -> Bytes {
    static DOCUMENTS: LazyLock<Mutex<HashMap<String, Bytes>>> = LazyLock::new(Mutex::default);
    let mut documents = DOCUMENTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    documents.entry(name.to_owned()).or_insert_with(|| make().into()).clone()
}

fn openapi_index() -> Value {
    let paths: Map<String, Value> = v3::index()
        .into_iter()
        .map(|(path, _, _)| {
            let url = format!("/openapi/v3/{path}?hash={}", api::VERSION);
            (path, json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

fn openapi(path: &str) -> Result<Answer, Status> {
    let found = v3::index().into_iter().find(|(known, _, _)| known == path);
    let (path, group, version) = found.ok_or_else(missing)?;
    debug_assert!(kinds::groups().iter().any(|(known, _)| *known == group));
    Ok(json_text_of(cached(&path, || v3::document(group, version).to_string().into_bytes())))
}
