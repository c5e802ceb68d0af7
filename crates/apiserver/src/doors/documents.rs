//! Everything that is not a resource: discovery, OpenAPI, version, health.
use crate::answer::{self, Answer};
use crate::asked::Received;
use crate::call::is_built_in;
use crate::doors::debug;
use crate::doors::health;
use crate::guard::fairness;
use crate::guard::service_account;
use crate::pass::aggregation;
use crate::server::ApiServer;
use crate::state::openapi::Document;
use api::codec::object::Encoding;
use api::content;
use api::discovery;
use api::openapi::proto;
use api::status::Status;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

/// What is served beside the API itself, as `/statusz` lists it.
pub const PATHS: &[&str] =
    &["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"];

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
    let registry = api.registry();
    let found = match parts[..] {
        ["api"] => discover(api, received, true, json!(discovery::versions(&host(received))))?,
        ["apis"] => {
            let groups = aggregation::groups(api, json!(discovery::groups(&registry)));
            discover(api, received, false, groups)?
        }
        ["api", "v1"] => plain(received, json!(discovery::resources(&registry, "", "v1")))?,
        ["apis", name] => {
            let own = discovery::group(&registry, name).map(|group| json!(group));
            match aggregation::group(api, name, own) {
                Some(group) => plain(received, group)?,
                None => return Err(missing()),
            }
        }
        ["apis", group, version] => match discovery::resources(&registry, group, version) {
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
            let page = api.metrics().page(api).await + &aggregation::metrics(api).await;
            answer::bytes(StatusCode::OK, media, page)
        }
        ["statusz" | "flagz"] => zpage(api, received)?,
        ["openapi", "v2"] if let Some(whole) = aggregation::openapi_whole(api, &registry).await => {
            match proto::is_asked_for(received.header(header::ACCEPT)) {
                false => tagged(whole.json.clone(), JSON, received),
                true => tagged(whole.protobuf(), proto::MEDIA_TYPE, received),
            }
        }
        ["openapi", "v2"] if proto::is_asked_for(received.header(header::ACCEPT)) => {
            tagged(api.openapi().v2_protobuf(&registry), proto::MEDIA_TYPE, received)
        }
        ["openapi", "v2"] => tagged(api.openapi().v2(&registry), JSON, received),
        ["openapi", "v3"] => {
            tagged(with_others(api, api.openapi().v3_index(&registry)), JSON, received)
        }
        ["openapi", "v3", ref path @ ..] => {
            let (path, accept) = (path.join("/"), received.header(header::ACCEPT));
            let tag = received.header(header::IF_NONE_MATCH);
            match aggregation::openapi_document(api, &path, accept, tag).await {
                Some(answer) => answer,
                None => {
                    let found = api.openapi().v3(&registry, &path);
                    tagged(found.ok_or_else(missing)?, JSON, received)
                }
            }
        }
        _ => return Err(missing()),
    };
    Ok(found)
}

/// What this server says of itself, in the form that the client asks for.
fn zpage(api: &ApiServer, received: &Received) -> Result<Answer, Status> {
    let accept = received.header(header::ACCEPT);
    let page = api.zpages().page(&received.path, accept, Timestamp::now()).ok_or_else(missing)?;
    let code = StatusCode::from_u16(page.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = answer::bytes(code, page.content_type, page.body);
    for (name, value) in page.headers {
        if let Ok(value) = value.parse() {
            answer.headers_mut().insert(name, value);
        }
    }
    Ok(answer)
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

/// Whether nobody is there who could say that a document is missing.
pub fn is_nobodys(path: &str) -> bool {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    match (parts.next(), parts.next()) {
        (Some("api" | "version"), _) => false,
        (Some("apis"), Some(group)) => !is_built_in(group),
        _ => true,
    }
}

/// What there is at a path that leads nowhere: no `Status`, but a page.
pub fn nowhere() -> Answer {
    answer::bytes(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n")
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
fn discover(
    api: &ApiServer,
    received: &Received,
    core: bool,
    unaggregated: Value,
) -> Result<Answer, Status> {
    let accepted = content::negotiate(received.header(header::ACCEPT), &content::DISCOVERY)?;
    match accepted.target {
        Some(target) => {
            let mut list = json!(discovery::aggregated(&api.registry(), core));
            if !core {
                list = aggregation::aggregated(api, list);
            }
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

/// The index with what other servers describe.
fn with_others(api: &ApiServer, own: Document) -> Document {
    if api.extend().aggregation.current().is_empty() {
        return own;
    }
    let Ok(index) = serde_json::from_slice(&own.bytes) else { return own };
    Document::of(aggregation::openapi_index(api, index).to_string().into_bytes())
}
