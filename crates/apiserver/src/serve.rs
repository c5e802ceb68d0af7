//! One request, start to finish.
use crate::answer::{self, Answer};
use crate::authn::{self, Peer, User};
use crate::authz::{self, Attributes};
use crate::request::{self, Call, Target};
use crate::resources::ApiServer;
use crate::verbs::{self, Context};
use crate::{documents, gzip, metrics, proxy};
use api::codec::object::Encoding;
use api::content::{self, PatchType};
use api::status::Status;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What one request may carry: upstream's limit.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// A request whose body has been read.
pub struct Received {
    pub user: Arc<User>,
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The connection itself, for whoever goes on with it in another protocol.
    pub upgrade: Mutex<Option<OnUpgrade>>,
}

impl Received {
    pub fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Serves a request; a failure becomes a `Status` in the encoding the client reads. `connection`
/// says what its other end has proved.
pub async fn serve(api: ApiServer, connection: &Peer, request: Request<Incoming>) -> Answer {
    let headers = request.headers();
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let fallback = content::negotiate(text(header::ACCEPT), &content::PLAIN)
        .map_or(Encoding::Json, |accepted| accepted.encoding);
    let takes_gzip = gzip::is_taken(text(header::ACCEPT_ENCODING));
    let answer = match serve_request(&api, connection, request).await {
        Ok(answer) => answer,
        Err(status) => answer::failure(&status, fallback),
    };
    if takes_gzip { gzip::compress(answer).await } else { answer }
}

async fn serve_request(
    api: &ApiServer,
    connection: &Peer,
    request: Request<Incoming>,
) -> Result<Answer, Status> {
    let uri = request.uri();
    let user = authn::identify(api, connection, request.headers(), uri.path()).await?;
    let target = request::parse(request.method(), uri.path(), uri.query().unwrap_or_default())?;
    let call = match target {
        Target::Document => {
            authz::check(api, &user, &Attributes::of_path(request.method(), uri.path())).await?;
            return documents::serve(api, &receive(user, request).await?).await;
        }
        Target::Call(call) => call,
    };
    authz::check(api, &user, &Attributes::of_call(&call)).await?;
    proxy::check_stream(api, &user, &call).await?;
    let is_apply = request.headers().get(header::CONTENT_TYPE).is_some_and(|media| {
        media.as_bytes().starts_with(PatchType::Apply.media_type().as_bytes())
    });
    let begun = Instant::now();
    let outcome = answer_call(api, &call, user, request).await;
    let code = match &outcome {
        Ok(answer) => answer.status().as_u16(),
        Err(status) => u16::try_from(status.code).unwrap_or(500),
    };
    api.metrics().answered(&call, is_apply, code, begun.elapsed());
    outcome
}

/// A request on a resource, within its limits.
async fn answer_call(
    api: &ApiServer,
    call: &Call,
    user: Arc<User>,
    request: Request<Incoming>,
) -> Result<Answer, Status> {
    if proxy::handles(call) {
        return proxy::run(api, call, request).await;
    }
    let run = async {
        let received = receive(user, request).await?;
        let context = Context { api, call, received: &received };
        let (answer, warnings) = verbs::run(context).await?;
        Ok(with_warnings(answer, &warnings))
    };
    if metrics::is_long(call) {
        return run.await;
    }
    let _seat = api.in_flight().seat(call.verb)?;
    match tokio::time::timeout(api.request_timeout(), run).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Status::timeout("request did not complete within the allotted timeout", 0)),
    }
}

async fn receive(user: Arc<User>, mut request: Request<Incoming>) -> Result<Received, Status> {
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
        method: head.method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        body: body.to_bytes(),
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
