//! Requests that others answer: a pod's logs and streams (its kubelet), and whatever pods, services
//! and nodes serve themselves.
//!
//! ```text
//!  call ─► location (kubelet, endpoint) ─► forward: headers and bodies passed on;
//!                                          an upgrade (WebSocket, SPDY) becomes a pipe of bytes
//! ```
//! The bytes of a stream are not looked at: which protocol they are is between the client and the
//! one who answers.
mod endpoint;
mod forward;
mod kubelet;
mod links;

pub use forward::forward;

use crate::admission;
use crate::answer::Answer;
use crate::answer::websocket;
use crate::call::Call;
use crate::call::Query;
use crate::extend::backend::Pool;
use crate::ground::towards::Tls;
use crate::ground::tunnels::Way;
use crate::guard::authn::User;
use crate::guard::authz::{self, Attributes};
use crate::server::ApiServer;
use api::kinds::Verb;
use api::status::Status;
use http::{HeaderValue, Method, Request, StatusCode, header};
use hyper::body::Incoming;
use links::Seen;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where a request goes.
pub struct Location {
    pub tls: Option<Tls>,
    pub host: String,
    pub port: u16,
    /// Path and query.
    pub path: String,
    /// What the host was found to be when it was checked; else it is looked up.
    pub addresses: Vec<SocketAddr>,
    /// Where our client sees what is there, if that may be a page.
    pub seen: Option<Seen>,
    /// Where connections to it are kept; without, each request has one of its own.
    pub pool: Option<Arc<Pool>>,
    /// How it is reached if it cannot be dialled.
    pub way: Option<Way>,
}

/// A WebSocket is opened with GET, and yet it runs commands: that takes the right to create.
pub async fn check_stream(api: &ApiServer, user: &User, call: &Call) -> Result<(), Status> {
    let streams = ["exec", "attach", "portforward"];
    let is_stream = call.subresource.is_some_and(|s| streams.contains(&s.name));
    if !is_stream || call.verb == Verb::Create {
        return Ok(());
    }
    let wanted = Attributes { verb: "create".into(), ..Attributes::of_call(call) };
    authz::check(api, user, &wanted).await
}

pub async fn run(
    api: &ApiServer,
    call: &Call,
    user: &User,
    mut request: Request<Incoming>,
) -> Result<Answer, Status> {
    // Logs are read; all else connects.
    if call.subresource.is_some_and(|subresource| subresource.name != "log") {
        admission::connect(api, call, user, request.uri().query().unwrap_or_default()).await?;
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    let subresource = call.subresource.map_or("", |subresource| subresource.name);
    let location = match (call.resource.built_in(), subresource) {
        (("", "Pod"), "log") => match kubelet::logs(api, call, &Query::parse(&query)).await? {
            Some(location) => location,
            // A pod that is on no node has said nothing yet.
            None => return Ok(nothing()),
        },
        (("", "Pod"), "proxy") => endpoint::pod(api, call).await?.at(call, &request),
        (("", "Service"), "proxy") => endpoint::service(api, call).await?.at(call, &request),
        (("", "Node"), "proxy") => kubelet::node(api, call).await?.at(call, &request),
        _ => kubelet::stream(api, call, &query).await?,
    };
    if subresource == "proxy"
        && let Some(answer) = folder(call, &request)
    {
        return Ok(answer);
    }
    // Who a proxy in front of us spoke for is nobody's business behind us.
    if let Some(front_proxy) = &api.authentication().front_proxy {
        front_proxy.remove(request.headers_mut());
    }
    if subresource != "log" {
        return forward(location, request).await;
    }
    // A log is read, whatever it is read over: the kubelet is asked for the text.
    let socket = websocket::requested(&mut request);
    let answer = logs_answer(forward(location, request).await?, call).await?;
    match socket {
        Some(socket) => Ok(socket.stream(answer.into_body())),
        None => Ok(answer),
    }
}

fn nothing() -> Answer {
    let mut answer = Answer::new(crate::answer::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

impl Location {
    fn new(tls: Option<Tls>, host: &str, port: u16) -> Location {
        let (path, addresses, seen, pool) = (String::new(), Vec::new(), None, None);
        Location { tls, host: host.to_owned(), port, path, addresses, seen, pool, way: None }
    }

    /// Host and port as a URL has them.
    fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The path below `/proxy` is the path there.
    fn at<B>(mut self, call: &Call, request: &Request<B>) -> Location {
        let uri = request.uri();
        self.path = format!("/{}", call.rest);
        if let Some(query) = uri.query().filter(|query| !query.is_empty()) {
            self.path = format!("{}?{query}", self.path);
        }
        let at = uri.path().strip_suffix(&*format!("/{}", call.rest)).unwrap_or(uri.path());
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.or(uri.authority().map(|authority| authority.as_str()));
        self.seen = Some(Seen {
            at: at.trim_end_matches('/').to_owned(),
            server: self.authority(),
            host: host.unwrap_or_default().to_owned(),
        });
        self
    }
}

/// A page is a folder: its relative links would lead beside `/proxy` without a slash after it.
fn folder<B>(call: &Call, request: &Request<B>) -> Option<Answer> {
    let (uri, method) = (request.uri(), request.method());
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let upgrades = request.headers().contains_key(header::UPGRADE);
    if !is_read || upgrades || !call.rest.is_empty() || uri.path().ends_with('/') {
        return None;
    }
    let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
    let place = HeaderValue::try_from(format!("{}/{query}", uri.path())).ok()?;
    let mut answer = Answer::new(crate::answer::empty());
    *answer.status_mut() = StatusCode::MOVED_PERMANENTLY;
    answer.headers_mut().insert(header::LOCATION, place);
    Some(answer)
}

/// What a kubelet refuses becomes a `Status`; what it says is plain text.
async fn logs_answer(mut answer: Answer, call: &Call) -> Result<Answer, Status> {
    let code = answer.status();
    if !code.is_success() {
        use http_body_util::BodyExt;
        let body = http_body_util::Limited::new(answer.into_body(), 64 * 1024).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        let said = String::from_utf8_lossy(&body);
        // `GenericHttpResponseChecker` of upstream's: these two are told in the kubelet's words.
        match code {
            StatusCode::BAD_REQUEST => return Err(Status::bad_request(said)),
            StatusCode::INTERNAL_SERVER_ERROR => return Err(Status::internal_error(said)),
            _ => {}
        }
        return Err(api::status::ServerResponse {
            code: i32::from(code.as_u16()),
            verb: "GET",
            resource: api::group::GroupResource::new("", "pods/log"),
            name: &call.name,
            body: said.trim(),
            ..Default::default()
        }
        .into());
    }
    let plain = http::HeaderValue::from_static("text/plain");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    Ok(answer)
}

/// `name`, `name:port` or `scheme:name:port`.
fn split(id: &str) -> Option<(bool, &str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    match parts[..] {
        [name] if !name.is_empty() => Some((false, name, "")),
        [name, port] if !name.is_empty() => Some((false, name, port)),
        [scheme @ ("" | "http" | "https"), name, port] if !name.is_empty() => {
            Some((scheme == "https", name, port))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_name_may_carry_a_scheme_and_a_port() {
        assert_eq!(split("web"), Some((false, "web", "")));
        assert_eq!(split("web:80"), Some((false, "web", "80")));
        assert_eq!(split("https:web:443"), Some((true, "web", "443")));
        assert_eq!(split(":web:80"), Some((false, "web", "80")));
        for bad in ["", "ftp:web:1", "a:b:c:d", ":80"] {
            assert_eq!(split(bad), None, "{bad}");
        }
    }
}
