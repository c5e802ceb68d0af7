//! One request, start to finish.
use crate::answer::{self, Answer};
use crate::audit::{Record, Trail};
use crate::authn::{self, Peer, User};
use crate::authz::{self, Attributes};
use crate::fairness::{self, Admitted, Class};
use crate::request::{self, Call, Target};
use crate::resources::ApiServer;
use crate::turns::Lane;
use crate::verbs::{self, Context};
use crate::{documents, gzip, in_flight, metrics, proxy};
use api::codec::object::Encoding;
use api::content::{self, PatchType};
use api::kinds::Verb;
use api::status::Status;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What one request may carry: upstream's limit.
const MAX_BODY: usize = 3 * 1024 * 1024;

const TEXT: &str = "text/plain; charset=utf-8";
const PANIC: &str = "This request caused apiserver to panic. Look in the logs for details.\n";

/// A request whose body has been read.
pub struct Received {
    pub user: Arc<User>,
    /// What is recorded about it, if anything is.
    pub audit: Option<Arc<Record>>,
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// What was remarked on a request that is refused after all.
    pub remarks: Mutex<Vec<String>>,
    /// The connection itself, for whoever goes on with it in another protocol.
    pub upgrade: Mutex<Option<OnUpgrade>>,
}

impl Received {
    /// Remembers what was remarked, in case that the request is refused.
    pub fn remark(&self, warnings: &[String]) {
        if !warnings.is_empty() {
            self.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(warnings);
        }
    }

    pub fn header(&self, name: header::HeaderName) -> &str {
        text(&self.headers, name)
    }
}

/// The value of a header; empty if there is none. One that cannot be read is not the same as none: it
/// is like nothing that anybody knows.
fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    let value = headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
    std::str::from_utf8(value).unwrap_or("\u{fffd}")
}

/// Serves a request; a failure becomes a `Status` in the encoding the client reads. `connection`
/// says what its other end has proved, `lane` whose turns it takes.
pub async fn serve(
    api: ApiServer,
    connection: &Peer,
    lane: &Lane,
    request: Request<Incoming>,
) -> Answer {
    let headers = request.headers();
    let fallback = content::negotiate(text(headers, header::ACCEPT), &content::PLAIN)
        .map_or(Encoding::Json, |accepted| accepted.encoding);
    let takes_gzip = gzip::is_taken(text(headers, header::ACCEPT_ENCODING));
    let mut trail = Trail::new(api.audit().clone(), headers);
    let mut class = None;
    let mut remarks = Vec::new();
    let serving =
        serve_request(&api, connection, lane, request, &mut trail, &mut class, &mut remarks);
    let mut answer = match AssertUnwindSafe(serving).catch_unwind().await {
        Ok(Ok(answer)) => trail.answered(answer, None).await,
        Ok(Err(status)) => {
            let answer = with_warnings(answer::failure(&status, fallback), &remarks);
            trail.answered(answer, Some(&status)).await
        }
        // The connection, and whatever else is on it, lives on.
        Err(cause) => {
            trail.panicked(cause.downcast_ref::<&str>().unwrap_or(&"")).await;
            trail
                .answered(answer::bytes(StatusCode::INTERNAL_SERVER_ERROR, TEXT, PANIC), None)
                .await
        }
    };
    if let Some(class) = class {
        class.write_into(answer.headers_mut());
    }
    if takes_gzip { gzip::compress(answer).await } else { answer }
}

async fn serve_request(
    api: &ApiServer,
    connection: &Peer,
    lane: &Lane,
    request: Request<Incoming>,
    trail: &mut Trail,
    class: &mut Option<Class>,
    remarks: &mut Vec<String>,
) -> Result<Answer, Status> {
    let headers = request.headers();
    let uri = request.uri();
    let user = authn::identify(api, connection, headers, uri.path()).await;
    let target = request::parse(request.method(), uri.path(), uri.query().unwrap_or_default());
    let (wanted, runs_long) = match &target {
        Target::Call(call) => (Attributes::of_call(call), metrics::is_long(call)),
        Target::Unserved(unserved) => (Attributes::of_unserved(unserved), false),
        Target::Document => (Attributes::of_path(request.method(), uri.path()), false),
    };
    let user = match user {
        Ok(user) => user,
        Err(status) => {
            trail.unauthenticated(&wanted, &request, &status).await;
            return Err(status);
        }
    };
    trail.begin(&user, &wanted, &request, runs_long).await?;
    let user = act_as(api, user, headers, trail).await?;
    lane.belongs_to(&user.name);
    let seat = wait_for_seat(api, &user, &wanted, &target, class).await?;
    authorize(api, &user, &wanted, trail).await?;
    let call = match target {
        Target::Document => {
            let received = receive(user, request, trail).await?;
            return Box::pin(documents::serve(api, &received)).await;
        }
        Target::Unserved(unserved) => return Err(unserved.status()),
        Target::Call(call) => call,
    };
    proxy::check_stream(api, &user, &call).await?;
    let is_apply = headers.get(header::CONTENT_TYPE).is_some_and(|media| {
        media.as_bytes().starts_with(PatchType::Apply.media_type().as_bytes())
    });
    let begun = Instant::now();
    let outcome = answer_call(api, &call, user, request, trail, remarks).await;
    let code = match &outcome {
        Ok(answer) => answer.status().as_u16(),
        Err(status) => u16::try_from(status.code).unwrap_or(500),
    };
    api.metrics().answered(&call, is_apply, code, begun.elapsed());
    match (outcome, seat) {
        // The work of a list is in sending it.
        (Ok(answer), Some(seat)) if call.verb == Verb::List => {
            Ok(seat.until_sent(answer, api.request_timeout()))
        }
        (outcome, _) => outcome,
    }
}

/// Who the request is from, if its user may act as somebody else and does.
async fn act_as(
    api: &ApiServer,
    user: Arc<User>,
    headers: &HeaderMap,
    trail: &Trail,
) -> Result<Arc<User>, Status> {
    let acting = authn::impersonate(api, user.clone(), headers).await?;
    if let Some(record) = trail.record().filter(|_| !Arc::ptr_eq(&user, &acting)) {
        record.impersonated(&acting);
    }
    Ok(acting)
}

/// A place among those who are served, given back when the answer is made. What lasts as long as its
/// client likes has none; a watch has one until it has begun.
async fn wait_for_seat(
    api: &ApiServer,
    user: &User,
    wanted: &Attributes,
    target: &Target,
    class: &mut Option<Class>,
) -> Result<Option<Admitted>, Status> {
    let Some(fairness) = api.fairness() else { return Ok(None) };
    let (list, mutating) = match target {
        Target::Call(call) if proxy::handles(call) => return Ok(None),
        Target::Call(call) => (verbs::list_of(api, call).await, !in_flight::reads(call.verb)),
        Target::Unserved(_) | Target::Document => (None, false),
    };
    let width = |most| list.map_or(1, |list| fairness::of_list(list, most));
    let (found, admitted) = fairness.admit(user, wanted, mutating, width).await;
    *class = Some(found);
    admitted.map(Some)
}

async fn authorize(
    api: &ApiServer,
    user: &User,
    wanted: &Attributes,
    trail: &Trail,
) -> Result<(), Status> {
    let decision = authz::decide(api, user, wanted).await;
    if let Some(record) = trail.record() {
        record.decided(&decision);
    }
    if decision.allowed { Ok(()) } else { Err(authz::refusal(user, wanted, &decision.reason)) }
}

/// A request on a resource, within its limits.
async fn answer_call(
    api: &ApiServer,
    call: &Call,
    user: Arc<User>,
    request: Request<Incoming>,
    trail: &Trail,
    remarks: &mut Vec<String>,
) -> Result<Answer, Status> {
    if proxy::handles(call) {
        return Box::pin(proxy::run(api, call, &user, request)).await;
    }
    let run = async {
        let received = receive(user, request, trail).await?;
        let context = Context { api, call, received: &received };
        let outcome = verbs::run(context).await;
        let (answer, warnings) = match outcome {
            Ok(done) => done,
            Err(status) => {
                *remarks = received.remarks.into_inner().unwrap_or_default();
                return Err(status);
            }
        };
        Ok(with_warnings(answer, &warnings))
    };
    if metrics::is_long(call) {
        return run.await;
    }
    let _seat = match api.fairness() {
        Some(_) => None,
        None => Some(api.in_flight().seat(call.verb)?),
    };
    match tokio::time::timeout(api.request_timeout(), run).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Status::timeout("request did not complete within the allotted timeout", 0)),
    }
}

async fn receive(
    user: Arc<User>,
    mut request: Request<Incoming>,
    trail: &Trail,
) -> Result<Received, Status> {
    let wants_upgrade = request.headers().contains_key(header::UPGRADE);
    let upgrade = Mutex::new(wants_upgrade.then(|| hyper::upgrade::on(&mut request)));
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            Status::request_entity_too_large(format!("limit is {MAX_BODY}"))
        } else {
            Status::bad_request(format!("unable to read the body: {error}"))
        }
    })?;
    Ok(Received {
        user,
        audit: trail.record(),
        method: head.method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        body: body.to_bytes(),
        remarks: Mutex::default(),
        upgrade,
    })
}

/// RFC 7234 warnings, as kubectl prints them.
fn with_warnings(mut answer: Answer, warnings: &[String]) -> Answer {
    for warning in warnings {
        let text = format!("299 - {warning:?}");
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            answer.headers_mut().append(header::WARNING, value);
        }
    }
    answer
}
