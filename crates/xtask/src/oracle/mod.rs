//! Two API servers, the same requests, and whether they answer alike.
//!
//! One is ours, the other upstream's, which is right by definition. `objects.jsonl` holds valid
//! objects of every kind; from each come requests that are a little wrong ([`mutate`]): every field
//! of the schema absent, empty, too long, negative, doubled, unknown. Each is sent to both servers
//! as a create, as an update and as each kind of patch, dry; status, causes and the object in the
//! answer are compared ([`compare`]). What differs for a reason is listed in `known.txt`; anything
//! else is printed and makes the chore fail.
//!
//! The other server must not have admission plugins that ours lacks: see CONTRIBUTING.md.
mod compare;
mod mutate;

use bytes::Bytes;
use compare::{Difference, Known, differences};
use http::{HeaderValue, Method};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use testkit::client::{Connection, Endpoint};

const OBJECTS: &str = include_str!("objects.jsonl");
/// The namespace that both servers get for it.
const NAMESPACE: &str = "oracle";
/// So many differences of one kind are shown.
const SHOWN: usize = 12;

/// How many requests a kind got, and how many were answered alike.
#[derive(Default)]
struct Count {
    requests: usize,
    equal: usize,
    known: usize,
}

pub fn run(ours: &Path, theirs: &Path, kind: &str) -> Result<(), String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|e| e.to_string())?;
    runtime.block_on(compare_all(ours, theirs, kind)).map_err(|e| format!("{e:#}"))
}

async fn compare_all(ours: &Path, theirs: &Path, only: &str) -> anyhow::Result<()> {
    let mut pair = Pair::open(ours, theirs).await?;
    pair.prepare().await?;
    let known = Known::read();
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let mut failures = 0;
    for line in OBJECTS.lines() {
        let object: Value = serde_json::from_str(line)?;
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        if !only.is_empty() && kind != only {
            continue;
        }
        let count = counts.entry(kind.clone()).or_default();
        let mut shown = 0;
        for request in requests(&object) {
            // A server that breaks off has no opinion; if it is ours, that is a fault.
            let (mine, Some(right)) = pair.ask(&request).await? else { continue };
            count.requests += 1;
            let mine = mine.unwrap_or(Said { code: 0, body: Value::Null });
            let found = differences(&mine, &right);
            let unknown: Vec<&Difference> =
                found.iter().filter(|difference| !known.covers(&kind, difference)).collect();
            match (found.is_empty(), unknown.is_empty()) {
                (true, _) => count.equal += 1,
                (false, true) => count.known += 1,
                (false, false) => {
                    failures += 1;
                    shown += 1;
                    if shown <= SHOWN {
                        println!("{kind}: {}", request.about);
                        unknown.iter().for_each(|difference| println!("    {difference}"));
                    }
                }
            }
        }
    }
    println!("{:<36}{:>9}{:>9}{:>9}{:>9}", "kind", "requests", "equal", "known", "differ");
    let mut sum = Count::default();
    for (kind, Count { requests, equal, known }) in &counts {
        println!("{kind:<36}{requests:>9}{equal:>9}{known:>9}{:>9}", requests - equal - known);
        sum.requests += requests;
        sum.equal += equal;
        sum.known += known;
    }
    let Count { requests, equal, known } = sum;
    println!("{:<36}{requests:>9}{equal:>9}{known:>9}{:>9}", "all", requests - equal - known);
    anyhow::ensure!(failures == 0, "{failures} answers differ");
    Ok(())
}

/// A request for both servers.
struct Request {
    method: Method,
    path: String,
    content_type: &'static str,
    body: Bytes,
    about: String,
}

/// Everything that is asked about one valid object.
fn requests(object: &Value) -> Vec<Request> {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let Some(resource) = api::kinds::find_kind(api_version, kind) else { return Vec::new() };
    let root = match resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    let place = match resource.is_namespaced() {
        true => format!("{root}/namespaces/{NAMESPACE}/{}", resource.plural),
        false => format!("{root}/{}", resource.plural),
    };
    let create = |object: &Value, about: String| Request {
        method: Method::POST,
        path: format!("{place}?dryRun=All&fieldValidation=Strict"),
        content_type: "application/json",
        body: object.to_string().into(),
        about: format!("create {about}"),
    };
    let mut all = vec![create(object, "as it is".into())];
    for mutation in mutate::all(object, resource.ty()) {
        all.push(create(&mutation.object, mutation.about));
    }
    // An apply creates what is not there: the one patch that needs no object.
    let mut applied = object.clone();
    applied["metadata"]["name"] = "applied".into();
    all.push(Request {
        method: Method::PATCH,
        path: format!("{place}/applied?dryRun=All&fieldManager=oracle"),
        content_type: "application/apply-patch+yaml",
        body: applied.to_string().into(),
        about: "apply".into(),
    });
    for (content_type, body) in [
        ("application/merge-patch+json", "{}"),
        ("application/json-patch+json", "[]"),
        ("application/strategic-merge-patch+json", "{}"),
    ] {
        all.push(Request {
            method: Method::PATCH,
            path: format!("{place}/absent?dryRun=All"),
            content_type,
            body: body.into(),
            about: format!("{content_type} of nothing"),
        });
    }
    all
}

/// The two servers.
struct Pair {
    ours: Server,
    theirs: Server,
}

struct Server {
    endpoint: Arc<Endpoint>,
    connection: Connection,
}

/// What a server said.
pub struct Said {
    pub code: u16,
    pub body: Value,
}

impl Server {
    async fn open(kubeconfig: &Path) -> anyhow::Result<Server> {
        let endpoint = Arc::new(Endpoint::read(kubeconfig, false)?);
        let connection = Connection::open(&endpoint).await?;
        Ok(Server { endpoint, connection })
    }

    /// A server may close a connection between two requests: then the request goes on another.
    async fn ask(&mut self, request: &Request) -> anyhow::Result<Option<Said>> {
        let Request { method, path, content_type, body, about } = request;
        let media = HeaderValue::from_static(content_type);
        let first = self.connection.ask(method.clone(), path, media.clone(), body.clone()).await;
        let (code, body) = match first {
            Ok(answer) => answer,
            Err(_) => {
                self.connection = Connection::open(&self.endpoint).await?;
                match self.connection.ask(method.clone(), path, media, body.clone()).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        // Whatever happened there, the next request needs a connection.
                        self.connection = Connection::open(&self.endpoint).await?;
                        println!("{} does not answer: {about}", self.endpoint.name);
                        return Ok(None);
                    }
                }
            }
        };
        Ok(Some(Said { code, body: serde_json::from_slice(&body).unwrap_or(Value::Null) }))
    }
}

impl Pair {
    async fn open(ours: &Path, theirs: &Path) -> anyhow::Result<Pair> {
        Ok(Pair { ours: Server::open(ours).await?, theirs: Server::open(theirs).await? })
    }

    /// A namespace, and the account that pods in it act as.
    async fn prepare(&mut self) -> anyhow::Result<()> {
        let namespace = json!({ "metadata": { "name": NAMESPACE } });
        let account = json!({ "metadata": { "name": "default" } });
        let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
        for (path, object) in [("/api/v1/namespaces", namespace), (accounts.as_str(), account)] {
            let request = Request {
                method: Method::POST,
                path: path.into(),
                content_type: "application/json",
                body: object.to_string().into(),
                about: "a place to work in".into(),
            };
            let (ours, theirs) = self.ask(&request).await?;
            for Said { code, body } in [ours, theirs].into_iter().flatten() {
                anyhow::ensure!(matches!(code, 201 | 409), "{path}: {code}: {body}");
            }
        }
        Ok(())
    }

    async fn ask(&mut self, request: &Request) -> anyhow::Result<(Option<Said>, Option<Said>)> {
        tokio::try_join!(self.ours.ask(request), self.theirs.ask(request))
    }
}
