//! One request, start to finish.
//!
//! What a connection brings is read here and answered in HTTP; [`within`](crate::doors::within) is the other
//! door, for whoever is in the same process. Both pass the same stages.
use crate::answer::budget::Held;
use crate::answer::gzip;
use crate::answer::{self, Answer, with_warnings};
use crate::asked::{Context, Received};
use crate::call::{Call, text};
use crate::doors::delegated;
use crate::doors::documents;
use crate::doors::listen::Connection;
use crate::doors::request::{self, Target};
use crate::guard::audit::Trail;
use crate::guard::authn::{self, User};
use crate::guard::authz::{self, Attributes};
use crate::guard::fairness::{self, Admitted, Class};
use crate::guard::in_flight;
use crate::pass::proxy;
use crate::pass::tunnels;
use crate::server::ApiServer;
use crate::state::metrics;
use crate::verbs::{self, Outgoing};
use api::codec::object::Encoding;
use api::content;
use api::kinds::Verb;
use api::status::Status;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What one request may carry: upstream's limit.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// A body that is larger is read and judged beside the connections, not between them: it may take a
/// while, and others have their turns meanwhile.
const HEAVY: usize = 64 << 10;

const TEXT: &str = "text/plain; charset=utf-8";
const PANIC: &str = "This request caused apiserver to panic. Look in the logs for details.\n";

/// What a panic left behind.
type Panic = Box<dyn Any + Send>;

/// Serves a request; a failure becomes a `Status` in the encoding the client reads.
///
/// What only reads ends with its client. What writes is finished and recorded whatever its client
/// does meanwhile: a change that nobody waits for any more is still a change.
pub async fn serve(api: ApiServer, connection: &Connection, request: Request<Incoming>) -> Answer {
    let mut exchange = Exchange::new(api, request.headers());
    let beginning = begin(&mut exchange, connection, request);
    let outcome = match AssertUnwindSafe(beginning).catch_unwind().await {
        Ok(Ok(Step::Answered(answer))) => Ok(Ok(answer)),
        Ok(Ok(Step::Ready(ready))) => {
            let heavy = ready.received.body.len() > HEAVY;
            // In a place of its own: it is handed from here to whoever finishes it.
            let finishing = Box::pin(async move {
                let outcome = AssertUnwindSafe(ready.run(&mut exchange)).catch_unwind().await;
                exchange.end(outcome).await
            });
            // It ends with an answer: panics are caught within.
            return connection.lane.finish(heavy, finishing).await.unwrap_or_else(panicked);
        }
        Ok(Err(status)) => Ok(Err(status)),
        Err(cause) => Err(cause),
    };
    exchange.end(outcome).await
}

fn panicked() -> Answer {
    answer::bytes(StatusCode::INTERNAL_SERVER_ERROR, TEXT, PANIC)
}

/// What goes with a request from its head to its answer.
struct Exchange {
    api: ApiServer,
    trail: Trail,
    /// In what encoding a failure is told.
    fallback: Encoding,
    takes_gzip: bool,
    class: Option<Class>,
    /// What was remarked on a request that was refused.
    remarks: Vec<String>,
}

impl Exchange {
    fn new(api: ApiServer, headers: &HeaderMap) -> Exchange {
        let fallback = content::negotiate(text(headers, header::ACCEPT), &content::PLAIN)
            .map_or(Encoding::Json, |accepted| accepted.encoding);
        let takes_gzip = gzip::is_taken(text(headers, header::ACCEPT_ENCODING));
        let trail = Trail::new(api.audit().clone(), headers);
        Exchange { api, trail, fallback, takes_gzip, class: None, remarks: Vec::new() }
    }

    /// The answer as it leaves; what came of the request is recorded first.
    async fn end(mut self, outcome: Result<Result<Answer, Status>, Panic>) -> Answer {
        let mut answer = match outcome {
            Ok(Ok(answer)) => self.trail.answered(answer, None).await,
            Ok(Err(status)) => {
                let answer = with_warnings(answer::failure(&status, self.fallback), &self.remarks);
                self.trail.answered(answer, Some(&status)).await
            }
            // The connection, and whatever else is on it, lives on.
            Err(cause) => {
                self.trail.panicked(cause.downcast_ref::<&str>().unwrap_or(&"")).await;
                self.trail.answered(panicked(), None).await
            }
        };
        if let Some(class) = self.class {
            class.write_into(answer.headers_mut());
        }
        if self.takes_gzip { gzip::compress(answer) } else { answer }
    }
}

/// What a request has come to when all is known of it.
enum Step {
    Answered(Answer),
    /// It is to be done whatever its client does meanwhile.
    Ready(Box<Ready>),
}

/// Who is asking, for what, whether he may, and what he sends: the order matters. Nothing is read
/// from a client who may not ask, and nobody has a seat while he is waited for.
async fn begin(
    exchange: &mut Exchange,
    connection: &Connection,
    request: Request<Incoming>,
) -> Result<Step, Status> {
    let api = &exchange.api;
    let trail = &mut exchange.trail;
    let headers = request.headers();
    let uri = request.uri();
    let user = authn::identify(api, &connection.peer, headers, uri.path()).await;
    let query = uri.query().unwrap_or_default();
    let target = request::parse(&api.registry(), request.method(), uri.path(), query);
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
    if !user.is_anonymous() {
        connection.stranger.is_known();
    }
    trail.begin(&user, &wanted, &request, runs_long).await?;
    let user = act_as(api, user, headers, &wanted, trail).await?;
    connection.lane.belongs_to(&user.name);
    if uri.path() == client::tunnel::PATH {
        return tunnels::open(api, &connection.peer, &user, &wanted, request).map(Step::Answered);
    }
    authorize(api, &user, &wanted, trail).await?;
    if let Some(remote) = api.extend().aggregation.find(request.uri().path()) {
        let class = &mut exchange.class;
        let passing = delegated::pass(api, &remote, &user, &wanted, request, class);
        return Box::pin(passing).await.map(Step::Answered);
    }
    let call = match target {
        Target::Document => {
            let _seat = wait_for_seat(api, &user, &wanted, None, &mut exchange.class).await?;
            let received = receive(api, user, request, trail, false).await?;
            let found = Box::pin(documents::serve(api, &received)).await;
            return match found {
                Err(status) if status.is_not_found() && documents::is_nobodys(&received.path) => {
                    Ok(Step::Answered(documents::nowhere()))
                }
                found => found.map(Step::Answered),
            };
        }
        Target::Unserved(unserved) if unserved.leads_nowhere(&api.registry()) => {
            return Ok(Step::Answered(documents::nowhere()));
        }
        Target::Unserved(unserved) => return Err(unserved.status(&api.registry())),
        Target::Call(call) => *call,
    };
    proxy::check_stream(api, &user, &call).await?;
    if call.is_passed_on() {
        let begun = Instant::now();
        let outcome = Box::pin(proxy::run(api, &call, &user, request)).await;
        api.metrics().answered(&call, false, code_of(&outcome), begun.elapsed());
        return outcome.map(Step::Answered);
    }
    let needs_body = !in_flight::reads(call.verb);
    let received = receive(api, user, request, trail, needs_body).await?;
    let user = &received.user;
    let seat = wait_for_seat(api, user, &wanted, Some(&call), &mut exchange.class).await?;
    let ready = Ready { call, received, seat };
    if in_flight::reads(ready.call.verb) {
        return ready.run(exchange).await.map(Step::Answered);
    }
    Ok(Step::Ready(Box::new(ready)))
}

/// A request on a resource that has everything it needs.
struct Ready {
    call: Call,
    received: Received,
    seat: Option<Admitted>,
}

/// Who the request is from, if its user may act as somebody else and does.
async fn act_as(
    api: &ApiServer,
    user: Arc<User>,
    headers: &HeaderMap,
    wanted: &Attributes,
    trail: &Trail,
) -> Result<Arc<User>, Status> {
    let Some(acting) = authn::impersonate(api, &user, headers, wanted).await? else {
        return Ok(user);
    };
    if let Some(record) = trail.record() {
        record.impersonated(&acting.user, &acting.constraint);
    }
    Ok(acting.user)
}

/// A place among those who are served, given back when the answer is made.
pub async fn wait_for_seat(
    api: &ApiServer,
    user: &User,
    wanted: &Attributes,
    call: Option<&Call>,
    class: &mut Option<Class>,
) -> Result<Option<Admitted>, Status> {
    let Some(fairness) = api.fairness() else { return Ok(None) };
    let (list, mutating) = match call {
        Some(call) => (verbs::list_of(api, call).await, !in_flight::reads(call.verb)),
        None => (None, !wanted.only_reads()),
    };
    let width = |most| list.map_or(1, |list| fairness::of_list(list, most));
    let (found, admitted) = fairness.admit(user, wanted, mutating, width).await;
    *class = Some(found);
    admitted.map(Some)
}

pub async fn authorize(
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

impl Ready {
    async fn run(self, exchange: &mut Exchange) -> Result<Answer, Status> {
        let api = &exchange.api;
        let begun = Instant::now();
        let (call, received) = (&self.call, &self.received);
        let outcome = match within_limits(Context { api, call, received }).await {
            Ok((answer, warnings)) => Ok(with_warnings(answer, &warnings)),
            Err(status) => {
                exchange.remarks = received.take_remarks();
                Err(status)
            }
        };
        api.metrics().answered(call, received.is_apply(), code_of(&outcome), begun.elapsed());
        match (outcome, self.seat) {
            // The work of a list is in sending it.
            (Ok(answer), Some(seat)) if self.call.verb == Verb::List => {
                Ok(seat.until_sent(answer, api.request_timeout()))
            }
            (outcome, _) => outcome,
        }
    }
}

fn code_of(outcome: &Result<Answer, Status>) -> u16 {
    match outcome {
        Ok(answer) => answer.status().as_u16(),
        Err(status) => u16::try_from(status.code).unwrap_or(500),
    }
}

/// Runs a call's verb, in as long as a request may take; what is remarked comes with the answer.
pub async fn within_limits(context: Context<'_>) -> Outgoing {
    let Context { api, call, received } = context;
    let run = async {
        let (answer, mut warnings) = verbs::run(context).await?;
        warnings.extend(received.take_remarks());
        Ok((answer, warnings))
    };
    if metrics::is_long(call) {
        return run.await;
    }
    let _seat = match api.fairness() {
        Some(_) => None,
        None => Some(api.in_flight().seat(call.verb)?),
    };
    tokio::time::timeout(api.request_timeout(), run).await.unwrap_or_else(|_| Err(too_late()))
}

pub fn too_late() -> Status {
    Status::timeout("request did not complete within the allotted timeout", 0)
}

/// The request with its body, if anybody needs it. A client has as long for it as for all the rest,
/// and all of them together as much memory as lists have.
async fn receive(
    api: &ApiServer,
    user: Arc<User>,
    mut request: Request<Incoming>,
    trail: &Trail,
    needs_body: bool,
) -> Result<Received, Status> {
    let wants_upgrade = request.headers().contains_key(header::UPGRADE);
    let upgrade = Mutex::new(wants_upgrade.then(|| hyper::upgrade::on(&mut request)));
    let (head, body) = request.into_parts();
    let (body, held) = match needs_body && !body.is_end_stream() {
        true => read_body(api, body).await?,
        false => (Bytes::new(), Held::default()),
    };
    Ok(Received {
        user,
        audit: trail.record(),
        method: head.method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        body,
        given: None,
        remarks: Mutex::default(),
        upgrade,
        held,
    })
}

async fn read_body(api: &ApiServer, body: Incoming) -> Result<(Bytes, Held), Status> {
    let too_large = || Status::request_entity_too_large(format!("limit is {MAX_BODY}"));
    let most = body.size_hint().upper().unwrap_or(MAX_BODY as u64);
    if most > MAX_BODY as u64 {
        return Err(too_large());
    }
    let held = api.bodies().take(most).await?;
    let reading = Limited::new(body, MAX_BODY).collect();
    match tokio::time::timeout(api.request_timeout(), reading).await {
        Ok(Ok(body)) => Ok((body.to_bytes(), held)),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(Status::bad_request(format!("unable to read the body: {error}"))),
        Err(_) => Err(too_late()),
    }
}
