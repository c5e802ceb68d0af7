//! What goes with a request: its audit ID, and what is recorded about it.
use super::Audit;
use super::event::{Event, Level, ObjectReference, ResponseStatus, Stage, UserInfo};
use super::policy::Verdict;
use crate::answer::{Answer, full};
use crate::authn::User;
use crate::authz::{Attributes, Decision, What};
use crate::holding;
use api::codec::{protobuf, yaml};
use api::kinds::find_kind;
use api::status::Status;
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};

const HEADER: &str = "audit-id";
const MAX_USER_AGENT: usize = 1024;
/// What takes longer is annotated with how long.
const LONG: SignedDuration = SignedDuration::from_millis(500);

/// One request's way through the server.
pub struct Trail {
    id: HeaderValue,
    received: Timestamp,
    audit: Arc<Audit>,
    record: Option<Arc<Record>>,
    runs_long: bool,
}

/// What is recorded about a request.
pub struct Record {
    audit: Arc<Audit>,
    verdict: Verdict,
    event: Mutex<Event>,
}

impl Trail {
    /// A client, or a server in front of this one, may bring an ID of its own.
    pub fn new(audit: Arc<Audit>, headers: &HeaderMap) -> Trail {
        let brought = headers.get(HEADER).filter(|id| !id.is_empty()).cloned();
        // Digits and dashes: it is a header's value.
        let made = || HeaderValue::from_str(&crate::verbs::uuid()).expect("visible ASCII");
        let id = brought.unwrap_or_else(made);
        Trail { id, received: Timestamp::now(), audit, record: None, runs_long: false }
    }

    /// The record, for stages that add to it.
    pub fn record(&self) -> Option<Arc<Record>> {
        self.record.clone()
    }

    /// Begins to record, if the policy says so. Whoever must be recorded and cannot be is refused.
    pub async fn begin<B>(
        &mut self,
        user: &User,
        wanted: &Attributes,
        request: &Request<B>,
        runs_long: bool,
    ) -> Result<(), Status> {
        self.runs_long = runs_long;
        self.describe(Some(user), wanted, request);
        match &self.record {
            Some(record) if !record.emit(Stage::RequestReceived).await => {
                self.audit.counts.rejected.fetch_add(1, Relaxed);
                Err(Status::internal_error("failed to store audit event"))
            }
            _ => Ok(()),
        }
    }

    fn describe<B>(&mut self, user: Option<&User>, wanted: &Attributes, request: &Request<B>) {
        let Some(policy) = self.audit.policy.as_ref().filter(|_| self.audit.is_on()) else {
            return;
        };
        let verdict = policy.evaluate(user, wanted);
        self.audit.counts.levels[verdict.level as usize].fetch_add(1, Relaxed);
        if verdict.level == Level::None {
            return;
        }
        let id = String::from_utf8_lossy(self.id.as_bytes()).into_owned();
        let mut event = Event::new(verdict.level, id, self.received);
        describe(&mut event, user, wanted, request);
        let record = Record { audit: self.audit.clone(), verdict, event: Mutex::new(event) };
        self.record = Some(Arc::new(record));
    }

    /// Nobody knows who asks: all that is recorded is that he tried.
    pub async fn unauthenticated<B>(
        &mut self,
        wanted: &Attributes,
        request: &Request<B>,
        status: &Status,
    ) {
        self.describe(None, wanted, request);
        // The answer is no further event.
        let Some(record) = self.record.take() else { return };
        record.lock().response_status = Some(status.into());
        record.emit(Stage::ResponseStarted).await;
    }

    pub async fn panicked(&mut self, cause: &str) {
        let Some(record) = self.record.take() else { return };
        let mut status = Status::internal_error("");
        status.message = format!("APIServer panic'd: {cause}");
        record.lock().response_status = Some(ResponseStatus::from(&status));
        record.emit(Stage::Panic).await;
    }

    /// Records how a request was answered, and tells the client under which ID. What runs long is
    /// complete when its last byte is sent.
    pub async fn answered(&self, mut answer: Answer, failure: Option<&Status>) -> Answer {
        answer.headers_mut().entry(HEADER).or_insert_with(|| self.id.clone());
        let Some(record) = &self.record else { return answer };
        if let Some(status) = failure {
            record.lock().response_status = Some(ResponseStatus::from(status));
        }
        let code = i32::from(answer.status().as_u16());
        record.lock().response_status.get_or_insert_default().code = code;
        if self.runs_long {
            record.emit(Stage::ResponseStarted).await;
            return holding::until_sent(answer, Followed(record.clone()));
        }
        if record.verdict.level == Level::RequestResponse && record.is_about_resource() {
            answer = record.with_response_object(answer).await;
        }
        record.emit(Stage::ResponseComplete).await;
        answer
    }
}

fn describe<B>(event: &mut Event, user: Option<&User>, wanted: &Attributes, request: &Request<B>) {
    let headers = request.headers();
    event.verb.clone_from(&wanted.verb);
    event.request_uri =
        request.uri().path_and_query().map_or_else(String::new, |path| path.as_str().to_owned());
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    event.user_agent = agent.unwrap_or_default().to_owned();
    if event.user_agent.len() > MAX_USER_AGENT {
        // A header's text is ASCII.
        event.user_agent.truncate(MAX_USER_AGENT);
        event.user_agent.push_str("...TRUNCATED");
    }
    event.source_ips = source_ips(headers, request.extensions().get::<SocketAddr>().copied());
    event.user = user.map(UserInfo::from).unwrap_or_default();
    if let What::Resource { group, version, resource, subresource, namespace, name } = &wanted.what
    {
        event.object_ref = Some(ObjectReference {
            resource: resource.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
            api_group: group.clone(),
            api_version: version.clone(),
            subresource: subresource.clone(),
            ..ObjectReference::default()
        });
    }
}

/// Whom the request came through, the nearest last. All but that one are the client's word.
fn source_ips(headers: &HeaderMap, peer: Option<SocketAddr>) -> Vec<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let forwarded = text("x-forwarded-for").unwrap_or_default();
    let mut all: Vec<IpAddr> =
        forwarded.split(',').filter_map(|part| part.trim().parse().ok()).collect();
    if let Some(real) = text("x-real-ip").and_then(|real| real.parse().ok())
        && !all.contains(&real)
    {
        all.push(real);
    }
    if let Some(peer) = peer.map(|peer| peer.ip().to_canonical())
        && all.last() != Some(&peer)
    {
        all.push(peer);
    }
    all.iter().map(ToString::to_string).collect()
}

impl Record {
    fn lock(&self) -> MutexGuard<'_, Event> {
        self.event.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Says something about the request under a key of the speaker's own; the first word counts.
    pub fn annotate(&self, key: &str, value: impl Into<String>) {
        self.lock().annotations.entry(key.to_owned()).or_insert_with(|| value.into());
    }

    pub fn impersonated(&self, user: &User) {
        self.lock().impersonated_user = Some(user.into());
    }

    pub fn decided(&self, decision: &Decision) {
        let word = if decision.allowed { "allow" } else { "forbid" };
        self.annotate("authorization.k8s.io/decision", word);
        self.annotate("authorization.k8s.io/reason", decision.reason.clone());
    }

    /// The object that a client sent.
    pub fn request_object(&self, object: &Value) {
        let mut event = self.lock();
        let known = event.object_ref.get_or_insert_default();
        let metadata = &object["metadata"];
        for (place, field) in [
            (&mut known.namespace, "namespace"),
            (&mut known.name, "name"),
            (&mut known.uid, "uid"),
            (&mut known.resource_version, "resourceVersion"),
        ] {
            if let (true, Some(text)) = (place.is_empty(), metadata[field].as_str()) {
                text.clone_into(place);
            }
        }
        if event.level >= Level::Request {
            event.request_object = self.raw(object.clone());
        }
    }

    /// The patch that a client sent.
    pub fn request_patch(&self, patch: &Value) {
        if self.verdict.level >= Level::Request {
            self.lock().request_object = raw(patch);
        }
    }

    /// A `Status` that is the answer, and no failure.
    pub fn response_status(&self, status: &Status) {
        self.lock().response_status = Some(status.into());
    }

    fn is_about_resource(&self) -> bool {
        self.lock().object_ref.is_some()
    }

    fn raw(&self, mut object: Value) -> Option<Box<RawValue>> {
        if self.verdict.omit_managed_fields {
            without_managed_fields(&mut object);
            for item in object["items"].as_array_mut().into_iter().flatten() {
                without_managed_fields(item);
            }
            for row in object["rows"].as_array_mut().into_iter().flatten() {
                without_managed_fields(&mut row["object"]);
            }
        }
        raw(&object)
    }

    /// Reads what is about to be sent.
    async fn with_response_object(&self, answer: Answer) -> Answer {
        let (head, body) = answer.into_parts();
        // What has a length is in memory already.
        if body.size_hint().exact().is_none() {
            return Answer::from_parts(head, body);
        }
        let Ok(body) = body.collect().await else { return Answer::from_parts(head, full("")) };
        let bytes = body.to_bytes();
        if let Some(object) = tree_of(&bytes, head.headers.get(header::CONTENT_TYPE)) {
            self.lock().response_object = self.raw(object);
        }
        Answer::from_parts(head, full(bytes))
    }

    /// What took long is worth a word.
    fn note_latency(&self) {
        let begun = self.lock().request_received_timestamp.0;
        let took = Timestamp::now().duration_since(begun);
        if took > LONG {
            let nanos = i64::try_from(took.as_nanos()).unwrap_or(i64::MAX);
            let text = api::duration::Duration { nanos }.to_string();
            self.annotate("apiserver.latency.k8s.io/total", text);
        }
    }

    async fn emit(&self, stage: Stage) -> bool {
        if stage == Stage::ResponseComplete {
            self.note_latency();
        }
        if self.verdict.omit_stages.contains(&stage) {
            return true;
        }
        self.audit.counts.events.fetch_add(1, Relaxed);
        let mut stored = true;
        for backend in &self.audit.backends {
            let line = {
                let mut event = self.lock();
                event.stage = stage;
                event.stage_timestamp.0 = Timestamp::now();
                backend.line(&event)
            };
            stored &= match line {
                Some(line) => backend.take(line).await,
                None => true,
            };
        }
        stored
    }
}

fn raw(object: &Value) -> Option<Box<RawValue>> {
    serde_json::value::to_raw_value(object).ok()
}

fn without_managed_fields(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
}

fn tree_of(bytes: &[u8], media: Option<&HeaderValue>) -> Option<Value> {
    let media = media.and_then(|media| media.to_str().ok()).unwrap_or_default();
    if protobuf::is_protobuf(bytes) {
        let meta = protobuf::type_meta(bytes).ok()?;
        let ty = match find_kind(&meta.api_version, &meta.kind) {
            Some(resource) => Some(resource.ty()),
            None if meta.kind == "Status" => crate::answer::meta_type("Status"),
            None => {
                let item = meta.kind.strip_suffix("List")?;
                find_kind(&meta.api_version, item)?.list_ty()
            }
        };
        return protobuf::decode(bytes, ty?).ok();
    }
    match media {
        media if media.contains("yaml") => yaml::decode_untyped(bytes).ok().map(|d| d.value),
        media if media.contains("json") => serde_json::from_slice(bytes).ok(),
        _ => Some(json!(String::from_utf8_lossy(bytes))),
    }
}

/// Whose end is an event.
struct Followed(Arc<Record>);

impl Drop for Followed {
    fn drop(&mut self) {
        let record = self.0.clone();
        // At the process' end there is nobody left to write it.
        if let Ok(tasks) = tokio::runtime::Handle::try_current() {
            tasks.spawn(async move { record.emit(Stage::ResponseComplete).await });
        }
    }
}
