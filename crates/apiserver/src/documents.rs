//! Everything that is not a resource: discovery, OpenAPI, version, health.
use crate::answer::{self, Answer};
use crate::resources::ApiServer;
use crate::serve::Received;
use crate::service_account;
use crate::{debug, fairness, health};
use api::codec::object::Encoding;
use api::content;
use api::discovery;
use api::openapi::{proto, v2, v3};
use api::status::Status;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

pub async fn serve(api: &ApiServer, received: &Received) -> Result<Answer, Status> {
    let parts: Vec<&str> = received.path.split('/').filter(|part| !part.is_empty()).collect();
    if let ["debug", "api_priority_and_fairness", table] = &parts[..] {
        return fairness_table(api, table);
    }
    if let ["debug", path @ ..] = &parts[..] {
        return debug::serve(api, received, path).await;
    }
    if !matches!(received.method, Method::GET | Method::HEAD) {
        return Err(missing());
    }
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
        [".well-known", "openid-configuration"] => {
            json_text(&service_account::configuration(api.issuer()))
        }
        ["openid", "v1", "jwks"] => {
            let keys = service_account::jwks(api.issuer()).to_string();
            answer::bytes(StatusCode::OK, "application/jwk-set+json", keys)
        }
        ["version"] => json_text(&version()),
        [endpoint @ ("healthz" | "livez" | "readyz")] => {
            health::serve(api, endpoint, None, received).await?
        }
        [endpoint @ ("healthz" | "livez" | "readyz"), check] => {
            health::serve(api, endpoint, Some(check), received).await?
        }
        ["metrics"] => {
            let media = "text/plain; version=0.0.4; charset=utf-8";
            answer::bytes(StatusCode::OK, media, api.metrics().page(api).await)
        }
        ["openapi", "v2"] if proto::is_asked_for(received.header(header::ACCEPT)) => {
            let document = cached("v2.pb", || proto::encode(&v2::document()));
            tagged(document, proto::MEDIA_TYPE, received)
        }
        ["openapi", "v2"] => {
            let document = cached("v2", || v2::document().to_string().into_bytes());
            tagged(document, JSON, received)
        }
        ["openapi", "v3"] => {
            let document = cached("v3", || openapi_index().to_string().into_bytes());
            tagged(document, JSON, received)
        }
        ["openapi", "v3", ref path @ ..] => openapi(&path.join("/"), received)?,
        _ => return Err(missing()),
    };
    Ok(found)
}

/// What waits, and for what.
fn fairness_table(api: &ApiServer, table: &str) -> Result<Answer, Status> {
    let fairness = api.fairness().ok_or_else(missing)?;
    let text = match table {
        "dump_priority_levels" => fairness::priority_levels(fairness),
        "dump_queues" => fairness::dump_queues(fairness),
        "dump_requests" => fairness::dump_requests(fairness),
        _ => return Err(missing()),
    };
    Ok(answer::bytes(StatusCode::OK, "text/plain; charset=utf-8", text))
}

pub fn missing() -> Status {
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

fn json_text(value: &Value) -> Answer {
    answer::bytes(StatusCode::OK, JSON, value.to_string())
}

const JSON: &str = "application/json";

/// A document that a client may have already: it says which one it has.
fn tagged(document: Document, media: &'static str, received: &Received) -> Answer {
    let Document { bytes, hash } = document;
    let tag = format!("\"{hash}\"");
    let known = received.header(header::IF_NONE_MATCH).split(',').any(|known| known.trim() == tag);
    let mut answer = match known {
        true => answer::bytes(StatusCode::NOT_MODIFIED, media, Bytes::new()),
        false => answer::bytes(StatusCode::OK, media, bytes),
    };
    let headers = answer.headers_mut();
    if let Ok(tag) = tag.parse() {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    // The address names the content, so what is there never changes.
    if received.query.contains(&format!("hash={hash}")) {
        let forever = HeaderValue::from_static("public, immutable");
        headers.insert(header::CACHE_CONTROL, forever);
    }
    answer
}

/// A document and what it is known by.
#[derive(Clone)]
struct Document {
    bytes: Bytes,
    hash: String,
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
fn cached(name: &str, make: impl FnOnce() -> Vec<u8>) -> Document {
    static DOCUMENTS: LazyLock<Mutex<HashMap<String, Document>>> = LazyLock::new(Mutex::default);
    let lock = || DOCUMENTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(known) = lock().get(name) {
        return known.clone();
    }
    let bytes = Bytes::from(make());
    let hash = Sha256::digest(&bytes)[..16].iter().map(|byte| format!("{byte:02X}")).collect();
    lock().entry(name.to_owned()).or_insert(Document { bytes, hash }).clone()
}

/// Every document by its path, each with its hash in the address.
fn openapi_index() -> Value {
    let paths: Map<String, Value> = v3::index()
        .into_iter()
        .map(|(path, group, version)| {
            let hash = document(&path, group, version).hash;
            let url = format!("/openapi/v3/{path}?hash={hash}");
            (path, json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

fn document(path: &str, group: &str, version: &str) -> Document {
    cached(path, || v3::document(group, version).to_string().into_bytes())
}

fn openapi(path: &str, received: &Received) -> Result<Answer, Status> {
    let found = v3::index().into_iter().find(|(known, _, _)| known == path);
    let (path, group, version) = found.ok_or_else(missing)?;
    Ok(tagged(document(&path, group, version), JSON, received))
}
