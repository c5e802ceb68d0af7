//! What goes with a request: its audit ID, and what is recorded about it.
use super::Audit;
use super::event::{Event, Level, ObjectReference, Stage, UserInfo};
use super::record::Record;
use crate::answer::Answer;
use crate::answer::holding;
use crate::guard::authn::User;
use crate::guard::authz::{Attributes, What};
use api::status::Status;
use http::{HeaderMap, HeaderValue, Request, header};
use jiff::Timestamp;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const HEADER: &str = "audit-id";
const MAX_USER_AGENT: usize = 1024;

/// One request's way through the server.
pub struct Trail {
    id: HeaderValue,
    received: Timestamp,
    audit: Arc<Audit>,
    record: Option<Arc<Record>>,
    runs_long: bool,
}

impl Trail {
    /// A client, or a server in front of this one, may bring an ID of its own.
    pub fn new(audit: Arc<Audit>, headers: &HeaderMap) -> Trail {
        let brought = headers.get(HEADER).filter(|id| !id.is_empty()).cloned();
        // Digits and dashes: it is a header's value.
        let made = || HeaderValue::from_str(&crate::ground::uuid()).expect("visible ASCII");
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
        self.record = Some(Record::new(self.audit.clone(), verdict, event));
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
        record.response_status(status);
        record.emit(Stage::ResponseStarted).await;
    }

    pub async fn panicked(&mut self, cause: &str) {
        let Some(record) = self.record.take() else { return };
        let mut status = Status::internal_error("");
        status.message = format!("APIServer panic'd: {cause}");
        record.response_status(&status);
        record.emit(Stage::Panic).await;
    }

    /// Records how a request ended that nothing was sent for. What runs long is complete when what comes
    /// back is dropped.
    pub async fn ended(&self, code: u16, failure: Option<&Status>) -> Lasting {
        let Some(record) = &self.record else { return Lasting(None) };
        if let Some(status) = failure {
            record.response_status(status);
        }
        record.lock().response_status.get_or_insert_default().code = i32::from(code);
        if self.runs_long && failure.is_none() {
            record.emit(Stage::ResponseStarted).await;
            return Lasting(Some(Followed(record.clone())));
        }
        record.emit(Stage::ResponseComplete).await;
        Lasting(None)
    }

    /// Records how a request was answered, and tells the client under which ID. What runs long is
    /// complete when its last byte is sent.
    pub async fn answered(&self, mut answer: Answer, failure: Option<&Status>) -> Answer {
        answer.headers_mut().entry(HEADER).or_insert_with(|| self.id.clone());
        let Some(record) = &self.record else { return answer };
        if let Some(status) = failure {
            record.response_status(status);
        }
        let code = i32::from(answer.status().as_u16());
        record.lock().response_status.get_or_insert_default().code = code;
        if self.runs_long {
            record.emit(Stage::ResponseStarted).await;
            return holding::until_sent(answer, Followed(record.clone()));
        }
        if record.wants_response_object() {
            answer = record.with_response_object(answer).await;
        }
        record.emit(Stage::ResponseComplete).await;
        answer
    }
}

/// Holds the record of what runs long until that is over.
pub struct Lasting(#[expect(dead_code, reason = "it is there to be dropped")] Option<Followed>);

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
