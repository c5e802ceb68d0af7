//! How other servers describe themselves, among what is described here.
//!
//! Nothing is read before somebody asks, and nobody waits long for a server that does not answer: its
//! part is left out until it was read, or what was read of it before is shown. What it says is taken apart and only what is its
//! own is kept: paths of its group, and what they refer to. A reference that leads nowhere becomes an
//! object of any kind, because one such reference makes the whole document useless to its readers.
use super::{Remote, Remotes};
use crate::answer::Answer;
use crate::server::ApiServer;
use crate::state::openapi::Document;
use api::kinds::Registry;
use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A description is asked for again after so long, and one that did not come after so long.
const FRESH: Duration = Duration::from_secs(60);
const FAILED: Duration = Duration::from_secs(10);
/// Who asks for everything waits so long for a part that was never read.
const HASTE: Duration = Duration::from_secs(1);

/// A description as it was read.
#[derive(Clone)]
pub struct Fetched {
    tag: String,
    document: Arc<Value>,
}

/// How far we are with a server's description.
#[derive(Default)]
pub struct Reading {
    fetched: Mutex<Option<Fetched>>,
    /// When it is to be read again.
    due: Mutex<Option<Instant>>,
    /// Held by the one that reads it.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Reading {
    fn fetched(&self) -> MutexGuard<'_, Option<Fetched>> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is to be read now; nobody else is told so before that is `due` again.
    fn begin(&self) -> bool {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = due.is_none_or(|due| due <= Instant::now());
        if is_due {
            *due = Some(Instant::now() + FAILED);
        }
        is_due
    }

    fn end(&self, fetched: Option<Fetched>) {
        if fetched.is_some() {
            *self.fetched() = fetched;
        }
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + FRESH);
    }
}

/// Finds out where a server describes itself.
pub async fn look(api: &ApiServer, remote: &Remote) {
    let found = async {
        let answer = remote.get(api, "/openapi/v3", "application/json", "").await.ok()?;
        let index = answer.json().filter(|_| answer.head.status.is_success())?;
        let path = remote.root();
        let url = index["paths"][path.trim_start_matches('/')]["serverRelativeURL"].as_str()?;
        url.starts_with("/openapi/v3/").then(|| url.to_owned())
    };
    let found = found.await;
    let mut known = remote.known.openapi_v3.lock().unwrap_or_else(PoisonError::into_inner);
    if found.is_some() {
        *known = found;
    }
}

/// `/openapi/v3`: the index of this server's own with the documents of others.
pub fn index(api: &ApiServer, mut own: Value) -> Value {
    for remote in api.extend().aggregation.current().values() {
        let known = remote.known.openapi_v3.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(url) = known {
            let query = url.split_once('?').map_or(String::new(), |(_, query)| format!("?{query}"));
            let path = remote.root();
            let url = format!("/openapi/v3{path}{query}");
            own["paths"][path.trim_start_matches('/')] = json!({ "serverRelativeURL": url });
        }
    }
    own
}

/// `/openapi/v3/{path}`, if another server describes that.
pub async fn document(api: &ApiServer, path: &str, accept: &str, tag: &str) -> Option<Answer> {
    let remote = api.extend().aggregation.find(&format!("/{path}"))?;
    let path = format!("/openapi/v3{}", remote.root());
    let answer = remote.get(api, &path, accept, tag).await;
    match answer {
        Ok(answer) => Some(answer.into_answer()),
        Err(cause) => {
            tracing::debug!(name = remote.name, cause, "no description");
            None
        }
    }
}

/// One document of everything, in both its encodings.
pub struct Whole {
    made_from: String,
    pub json: Document,
    protobuf: OnceLock<Document>,
}

impl Whole {
    /// The same as protobuf, made when it is first asked for.
    pub fn protobuf(&self) -> Document {
        let made = || {
            let document = api::depth::read(&self.json.bytes).unwrap_or_default();
            Document::of(api::openapi::proto::encode(&document))
        };
        self.protobuf.get_or_init(made).clone()
    }
}

/// The last one that was made.
#[derive(Default)]
pub struct Latest(Mutex<Option<Arc<Whole>>>);

/// `/openapi/v2` with the parts of others; nothing if there are none.
pub async fn whole(api: &ApiServer, registry: &Registry) -> Option<Arc<Whole>> {
    let remotes = api.extend().aggregation.current();
    if remotes.is_empty() {
        return None;
    }
    join_all(remotes.values().map(|remote| read(api, remote))).await;
    let parts = known(&remotes);
    if parts.is_empty() {
        return None;
    }
    let tags: Vec<String> =
        parts.iter().map(|(root, fetched)| format!("{root}={}", fetched.tag)).collect();
    let made_from = format!("{} {}", registry.generation(), tags.join(" "));
    let latest = &api.extend().aggregation.openapi_v2;
    let lock = || latest.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().clone().filter(|known| known.made_from == made_from) {
        return Some(known);
    }
    let mut document: Value = api::depth::read(&api.openapi().v2(registry).bytes).ok()?;
    for (root, fetched) in &parts {
        merge(&mut document, &fetched.document, root);
    }
    let json = Document::of(document.to_string().into_bytes());
    let whole = Arc::new(Whole { made_from, json, protobuf: OnceLock::new() });
    *lock() = Some(whole.clone());
    Some(whole)
}

fn known(remotes: &Remotes) -> BTreeMap<String, Fetched> {
    let known =
        |remote: &Arc<Remote>| Some((remote.root(), remote.known.openapi_v2.fetched().clone()?));
    remotes.values().filter_map(known).collect()
}

/// Has a server's description read, unless that was done just now. Only what was never read is waited
/// for, and not for long: it goes on being read.
async fn read(api: &ApiServer, remote: &Arc<Remote>) {
    let reading = &remote.known.openapi_v2;
    if remote.is_available && reading.begin() {
        let turn = reading.turn.clone().lock_owned().await;
        let (api, remote) = (api.clone(), remote.clone());
        tokio::spawn(async move {
            fetch(&api, &remote).await;
            drop(turn);
        });
    }
    if reading.fetched().is_none() {
        let _ = tokio::time::timeout(HASTE, reading.turn.lock()).await;
    }
}

async fn fetch(api: &ApiServer, remote: &Remote) {
    let reading = &remote.known.openapi_v2;
    let before = reading.fetched().clone();
    let tag = before.as_ref().map_or("", |before| &before.tag);
    let Ok(answer) = remote.get(api, "/openapi/v2", "application/json", tag).await else { return };
    if answer.head.status == http::StatusCode::NOT_MODIFIED {
        return reading.end(None);
    }
    let document = answer.json().filter(|_| answer.head.status.is_success());
    let Some(document) = document.filter(|document| document["paths"].is_object()) else { return };
    let tag = answer.header(http::header::ETAG).to_owned();
    reading.end(Some(Fetched { tag, document: Arc::new(document) }));
}

/// Puts the paths below `root`, and what they refer to, into a document.
fn merge(own: &mut Value, other: &Value, root: &str) {
    let mut parts = Parts { other, own, renamed: BTreeMap::new(), wanted: Vec::new() };
    let below = format!("{root}/");
    let paths = other["paths"].as_object().into_iter().flatten();
    let paths: Vec<_> =
        paths.filter(|(path, _)| *path == root || path.starts_with(&below)).collect();
    let mut added = Map::new();
    for (path, item) in paths {
        added.insert(path.clone(), parts.adopted(item));
    }
    while let Some((section, from, to)) = parts.wanted.pop() {
        let definition = parts.adopted(&other[&section][&from]);
        parts.own[&section][&to] = definition;
    }
    if let Some(paths) = own["paths"].as_object_mut() {
        paths.append(&mut added);
    }
}

struct Parts<'a> {
    other: &'a Value,
    own: &'a mut Value,
    /// What something of a section of the other document is called in ours.
    renamed: BTreeMap<(String, String), String>,
    /// What is still to be brought over: section, its name there, its name here.
    wanted: Vec<(String, String, String)>,
}

impl Parts<'_> {
    /// A value of the other document with references as they are in ours.
    fn adopted(&mut self, value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| self.adopted(item)).collect(),
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    return self.reference(reference);
                }
                let fields = fields.iter().map(|(name, field)| (name.clone(), self.adopted(field)));
                Value::Object(fields.collect())
            }
            plain => plain.clone(),
        }
    }

    fn reference(&mut self, reference: &str) -> Value {
        let place = reference.strip_prefix("#/").and_then(|place| place.split_once('/'));
        let Some((section @ ("definitions" | "parameters"), name)) = place else {
            return json!({ "type": "object" });
        };
        let name = name.replace("~1", "/").replace("~0", "~");
        let key = (section.to_owned(), name.clone());
        if let Some(known) = self.renamed.get(&key) {
            return json!({ "$ref": format!("#/{section}/{known}") });
        }
        let Some(definition) = self.other[section].get(&name) else {
            return json!({ "type": "object" });
        };
        // Two servers may call different things by one name.
        let mut here = name.clone();
        let mut count = 1;
        while let Some(known) = self.own[section].get(&here) {
            if known == definition {
                break;
            }
            count += 1;
            here = format!("{name}_v{count}");
        }
        if self.own[section].get(&here).is_none() {
            // Its place is taken at once, for those that refer to themselves.
            self.own[section][&here] = Value::Null;
            self.wanted.push((section.to_owned(), name, here.clone()));
        }
        self.renamed.insert(key, here.clone());
        json!({ "$ref": format!("#/{section}/{here}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(name: &str) -> Value {
        json!({ "$ref": format!("#/definitions/{name}") })
    }

    #[test]
    fn a_server_brings_its_own_paths_and_what_they_refer_to() {
        let mut own = json!({
            "paths": { "/apis/": { "get": 1 } },
            "definitions": { "Meta": { "type": "object", "x": 1 }, "Time": { "type": "string" } },
        });
        let other = json!({
            "paths": {
                "/apis/e.io/v1/things": { "get": reference("Thing"), "post": reference("No~1where") },
                "/apis/e.io/v2/things": { "get": reference("Other") },
                "/apis/apps/v1/deployments": { "get": 2 },
            },
            "definitions": {
                "Thing": { "properties": { "meta": reference("Meta"), "time": reference("Time"),
                    "child": reference("Thing"), "else": { "$ref": "https://e.io/x" } } },
                "Meta": { "type": "object", "x": 2 }, "Time": { "type": "string" },
                "Other": {}, "Unused": {},
            },
        });
        merge(&mut own, &other, "/apis/e.io/v1");
        let any = json!({ "type": "object" });
        assert_eq!(
            own,
            json!({
                "paths": { "/apis/": { "get": 1 },
                    "/apis/e.io/v1/things": { "get": reference("Thing"), "post": any } },
                "definitions": {
                    "Meta": { "type": "object", "x": 1 }, "Time": { "type": "string" },
                    "Meta_v2": { "type": "object", "x": 2 },
                    "Thing": { "properties": { "meta": reference("Meta_v2"),
                        "time": reference("Time"), "child": reference("Thing"), "else": any } },
                },
            })
        );
    }
}
