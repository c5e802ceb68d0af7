//! Requests that are a little wrong, made from right ones: every kind, verb and subresource, in three
//! encodings. The same seed gives the same requests.
use crate::client::{Connection, JSON, PROTOBUF};
use crate::sample::{self, Random};
use anyhow::{Context, Result};
use api::codec::object::{Encoding, encode};
use api::kinds::{RESOURCES, Resource, Verb};
use bytes::Bytes;
use http::{HeaderValue, Method};
use http_body_util::BodyExt;
use serde_json::{Value, json};

/// What is sent; an empty content type stands for none.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: Method,
    pub path: String,
    pub content_type: &'static str,
    pub body: Bytes,
}

pub struct Requests(Random);

/// Few enough that a request finds what another has made.
const NAMES: &[&str] = &["a", "b", "c"];

const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// What a query may say, right and wrong.
const QUERIES: &[&str] = &[
    "dryRun=All",
    "dryRun=x",
    "fieldManager=me",
    "fieldManager=%00",
    "fieldValidation=Strict",
    "fieldValidation=Ignore",
    "force=true",
    "limit=1",
    "limit=-1",
    "limit=x",
    "continue=x",
    "resourceVersion=0",
    "resourceVersion=1",
    "resourceVersion=x",
    "resourceVersionMatch=Exact",
    "labelSelector=a%3Db",
    "labelSelector=%28%28",
    "fieldSelector=metadata.name%3Da",
    "fieldSelector=x%3D%3D%3D",
    "pretty=true",
    "propagationPolicy=Orphan",
    "gracePeriodSeconds=-1",
    "timeoutSeconds=1",
    "orphanDependents=maybe",
    "a=%ff",
];

/// What is put in the middle of a body.
const SCRAPS: &[&[u8]] = &[
    b"\xff\xfe",
    b"\0",
    b"{",
    b"[[[[[[[[",
    b"\"",
    b"1e999999",
    b"-0",
    b"null",
    b"99999999999999999999",
    b"\\ud800",
    b"k8s\0",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b": &a [*a]",
    b"\n---\n",
];

impl Requests {
    pub fn new(seed: u64) -> Requests {
        Requests(Random::new(seed))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.0.below(from.len() as u64) as usize]
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.0.below(many) == 0
    }

    pub fn next_request(&mut self) -> Request {
        let resource = &RESOURCES[self.0.below(RESOURCES.len() as u64) as usize];
        let sub = match resource.subresources.len() {
            0 => None,
            some if self.one_in(3) => {
                Some(&resource.subresources[self.0.below(some as u64) as usize])
            }
            _ => None,
        };
        // A stream would wait for somebody to end it.
        let sub = sub
            .filter(|sub| !matches!(sub.name, "log" | "exec" | "attach" | "portforward" | "proxy"));
        let verbs = sub.map_or(resource.verbs, |sub| sub.verbs);
        // A watch lasts for a second at least.
        let verbs: Vec<Verb> = verbs.iter().filter(|verb| *verb != Verb::Watch).collect();
        if verbs.is_empty() {
            return self.next_request();
        }
        let verb = self.pick(&verbs);
        let foreign = sub.and_then(|sub| sub.kind);
        let (name, ty) = (self.pick(NAMES), foreign.map_or(resource.ty(), |kind| kind.ty()));
        let on_collection = matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection)
            || verb == Verb::Create && sub.is_none();
        let mut path = place(resource);
        if !on_collection {
            path = format!("{path}/{name}");
        }
        if let Some(sub) = sub {
            path = format!("{path}/{}", sub.name);
        }
        let mut query: Vec<&str> = Vec::new();
        while self.one_in(3) {
            query.push(self.pick(QUERIES));
        }
        if !query.is_empty() {
            path = format!("{path}?{}", query.join("&"));
        }
        let method = match verb {
            Verb::Get | Verb::List | Verb::Watch => Method::GET,
            Verb::Create => Method::POST,
            Verb::Update => Method::PUT,
            Verb::Patch => Method::PATCH,
            Verb::Delete | Verb::DeleteCollection => Method::DELETE,
        };
        let mut object = sample::object(ty, &mut self.0);
        if let Value::Object(fields) = &mut object {
            let (version, kind) = match foreign {
                Some(kind) => (format!("{}/{}", kind.group, kind.version), kind.kind),
                None => (resource.api_version(), resource.kind),
            };
            fields.insert("apiVersion".into(), version.into());
            fields.insert("kind".into(), kind.into());
            if self.one_in(2) {
                fields.insert("metadata".into(), json!({ "name": name }));
            }
        }
        let (content_type, body) = match verb {
            Verb::Patch => self.patch(&object),
            _ => {
                let encoding = self.pick(Encoding::ALL);
                (encoding.media_type(), encode(&object, encoding, ty))
            }
        };
        let body = if self.one_in(2) { self.spoil(body) } else { body };
        Request { method, path, content_type, body: body.into() }
    }

    fn patch(&mut self, object: &Value) -> (&'static str, Vec<u8>) {
        let language = self.pick(PATCHES);
        if language != PATCHES[0] {
            return (language, object.to_string().into_bytes());
        }
        let mut operations = Vec::new();
        for _ in 0..1 + self.0.below(6) {
            let op = self.pick(&["add", "remove", "replace", "move", "copy", "test", "x"]);
            let path =
                self.pick(&["/metadata/labels", "/spec", "/metadata", "", "/spec/-", "/a/b/c"]);
            let from = self.pick(&["/metadata", "/spec", "/metadata/name", ""]);
            operations.push(json!({ "op": op, "path": path, "from": from, "value": object }));
        }
        (language, json!(operations).to_string().into_bytes())
    }

    /// The body with something in it that does not belong there, or without something.
    fn spoil(&mut self, mut body: Vec<u8>) -> Vec<u8> {
        for _ in 0..1 + self.0.below(3) {
            let at = self.0.below(body.len() as u64 + 1) as usize;
            match self.0.below(5) {
                0 => body.truncate(at),
                1 => {
                    let scrap = self.pick(SCRAPS);
                    body.splice(at..at, scrap.iter().copied());
                }
                2 => {
                    let end = (at + self.0.below(64) as usize).min(body.len());
                    let copy = body[at..end].to_vec();
                    body.splice(at..at, copy);
                }
                3 => {
                    let depth = 1 + self.0.below(400) as usize;
                    body.splice(at..at, std::iter::repeat_n(b'[', depth));
                }
                _ => {
                    if let Some(byte) = body.get_mut(at) {
                        *byte ^= 1 << self.0.below(8);
                    }
                }
            }
        }
        body
    }
}

/// The path of a resource's objects, in the namespace `default` if they are in one.
pub fn place(resource: &Resource) -> String {
    let version = resource.api_version();
    let prefix = if version.contains('/') { "/apis" } else { "/api" };
    let namespace = if resource.is_namespaced() { "/namespaces/default" } else { "" };
    format!("{prefix}/{version}{namespace}/{}", resource.plural)
}

/// What came of many requests.
#[derive(Debug, Default)]
pub struct Report {
    pub written: usize,
    pub refused: usize,
    /// Answers that no request should get, with the request.
    pub faults: Vec<String>,
}

/// Sends so many requests, then reads everything that they have left.
pub async fn run(connection: &mut Connection, seed: u64, count: usize) -> Result<Report> {
    let mut requests = Requests::new(seed);
    let mut report = Report::default();
    for number in 0..count {
        let Request { method, path, content_type, body } = requests.next_request();
        let media = HeaderValue::from_static(content_type);
        let asked = format!("{number}: {method} {path} {content_type}: {}", body.escape_ascii());
        let asking = connection.ask(method.clone(), &path, media, body);
        let (code, answer) = asking.await.with_context(|| asked.clone())?;
        match code {
            200..400 if method != Method::GET => report.written += 1,
            200..500 => report.refused += 1,
            _ if is_upstreams(&answer) => report.refused += 1,
            _ => report.faults.push(format!("{asked}: {code} {}", answer.escape_ascii())),
        }
    }
    for resource in RESOURCES.iter().filter(|resource| resource.verbs.contains(Verb::List)) {
        for accept in [JSON, PROTOBUF, TABLE] {
            let path = place(resource);
            let answer =
                connection.exchange(Method::GET, &path, accept, JSON, Bytes::new()).await?;
            if answer.status() != 200 {
                report.faults.push(format!("list {path}: {}", answer.status()));
            }
            answer.into_body().collect().await.with_context(|| path)?;
        }
    }
    Ok(report)
}

const TABLE: HeaderValue = HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io");

/// Upstream calls some faults of a client its own, and clients know the texts.
fn is_upstreams(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    ["strconv.Parse", "failed to convert", "unable to convert", "Non-matching dry-run", "target."]
        .iter()
        .any(|known| text.contains(known))
}
