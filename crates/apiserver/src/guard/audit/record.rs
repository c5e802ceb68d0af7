//! What is recorded about a request, as later stages tell it.
use super::Audit;
use super::event::{AuthenticationMetadata, Event, Level, ObjectReference, ResponseStatus, Stage};
use super::policy::Verdict;
use crate::answer::{Answer, full};
use crate::guard::authn::User;
use crate::guard::authz::Decision;
use api::codec::{protobuf, yaml};
use api::kinds::find_kind;
use api::status::Status;
use http::{HeaderValue, header};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};

/// What takes longer is annotated with how long.
const LONG: SignedDuration = SignedDuration::from_millis(500);

/// What is recorded about a request.
pub struct Record {
    audit: Arc<Audit>,
    verdict: Verdict,
    event: Mutex<Event>,
}

impl Record {
    pub(super) fn new(audit: Arc<Audit>, verdict: Verdict, event: Event) -> Arc<Record> {
        Arc::new(Record { audit, verdict, event: Mutex::new(event) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Event> {
        self.event.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Says something about the request under a key of the speaker's own; the first word counts.
    pub fn annotate(&self, key: &str, value: impl Into<String>) {
        self.lock().annotations.entry(key.to_owned()).or_insert_with(|| value.into());
    }

    /// Whether the log is to have what the client sent.
    pub fn has_request_object(&self) -> bool {
        self.verdict.level >= Level::Request
    }

    /// Somebody acts as this user; `constraint` is the constrained right to that, if it is one.
    pub fn impersonated(&self, user: &User, constraint: &str) {
        let mut event = self.lock();
        event.impersonated_user = Some(user.into());
        if !constraint.is_empty() {
            let impersonation_constraint = constraint.to_owned();
            event.authentication_metadata =
                Some(AuthenticationMetadata { impersonation_constraint });
        }
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

    /// A `Status` that is the answer, failure or not. What it says may quote the object that it is
    /// about; of what is secret that is recorded only where the object itself would be.
    pub fn response_status(&self, status: &Status) {
        let mut event = self.lock();
        let mut response = ResponseStatus::from(status);
        let is_secret = event.object_ref.as_ref().is_some_and(ObjectReference::is_secret);
        if is_secret && event.level < Level::RequestResponse {
            response.forget_quotes();
        }
        event.response_status = Some(response);
    }

    pub fn wants_response_object(&self) -> bool {
        self.verdict.level == Level::RequestResponse && self.lock().object_ref.is_some()
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

    /// What is answered to somebody for whom nothing is sent.
    pub fn response_object(&self, object: Value) {
        self.lock().response_object = self.raw(object);
    }

    /// Reads what is about to be sent.
    pub async fn with_response_object(&self, answer: Answer) -> Answer {
        let (head, body) = answer.into_parts();
        // What has an end is in memory already.
        if body.size_hint().upper().is_none() {
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

    /// Writes an event; says whether the request may go on.
    pub(super) async fn emit(&self, stage: Stage) -> bool {
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
        media if media.contains("json") => api::depth::read(bytes).ok(),
        _ => Some(json!(String::from_utf8_lossy(bytes))),
    }
}
