//! One request, start to finish.
use super::body::{self, Body};
use super::connection::{Client, IDLE};
use super::endpoint::Failure;
use super::{headers, passing};
use crate::filters::{Cors, Filter, Place};
use crate::host;
use crate::matching::{self, Asked};
use crate::path::Path;
use crate::table::{Action, Backend, Clients, Destination, Port, Rule, To};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Pods that are tried until one takes a connection.
pub const ATTEMPTS: usize = 3;
/// How long a copy may take whose answer nobody reads.
const COPY: Duration = Duration::from_secs(30);

/// How a request came to us.
pub struct Came {
    pub client: Client,
    /// Whom the client looked for when it said hello.
    pub name: Option<String>,
    /// What it had to prove.
    pub clients: Option<Arc<Clients>>,
    pub scheme: &'static str,
}

/// Whatever becomes of a request, its client gets an answer.
pub async fn answer(came: &Arc<Came>, request: Request<Incoming>) -> Response<Body> {
    let is_old = request.version() < Version::HTTP_11;
    let mut response = match respond(came, request).await {
        Ok(response) => response,
        Err(code) => said(code),
    };
    if is_old && response.status() == StatusCode::SWITCHING_PROTOCOLS {
        response = said(StatusCode::BAD_GATEWAY);
    }
    *response.version_mut() = Version::HTTP_11;
    response
}

/// An answer of our own.
fn said(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(body::text(format!("{code}\n")));
    *response.status_mut() = code;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

async fn respond(
    came: &Arc<Came>,
    request: Request<Incoming>,
) -> Result<Response<Body>, StatusCode> {
    if request.method() == Method::CONNECT {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let authority = authority(&request)?;
    let asked_host = host::of_authority(authority.as_str());
    let path = Path::read(request.uri().path()).map_err(|_| StatusCode::BAD_REQUEST)?;
    let query = request.uri().query().map(str::to_owned);
    let table = came.client.proxy.table();
    let port = table.ports.get(&came.client.site).ok_or(StatusCode::NOT_FOUND)?;
    if is_misdirected(port, came.name.as_deref(), &asked_host) {
        return Err(StatusCode::MISDIRECTED_REQUEST);
    }
    let asked = Asked {
        host: &asked_host,
        path: &path.matched,
        method: request.method(),
        headers: request.headers(),
        query: query.as_deref().unwrap_or_default(),
        clients: came.clients.as_deref(),
    };
    let (rule, prefix) = match matching::find(&port.hosts, &asked) {
        Some(found) => (found.rule.clone(), found.prefix),
        None => return Err(StatusCode::NOT_FOUND),
    };
    drop(table);
    let exchange = Exchange { came, rule: &rule, host: asked_host, authority, path, query, prefix };
    exchange.run(request).await
}

/// Whom a request is for. HTTP/1.1 says so in one header, HTTP/2 in a field of its own; an address in the
/// request line counts for more than a header (RFC 9112, 3.2.2).
fn authority<B>(request: &Request<B>) -> Result<Authority, StatusCode> {
    let mut all = request.headers().get_all(header::HOST).iter();
    let authority = match (request.uri().authority(), all.next(), all.next()) {
        (Some(authority), _, None) => Ok(authority.clone()),
        (None, Some(one), None) => Authority::try_from(one.as_bytes()),
        // Before HTTP/1.1 nobody had to say.
        (None, None, _) if request.version() < Version::HTTP_11 => Authority::try_from("invalid"),
        _ => return Err(StatusCode::BAD_REQUEST),
    };
    authority
        .ok()
        .filter(|authority| !authority.as_str().contains('@'))
        .ok_or(StatusCode::BAD_REQUEST)
}

/// The connection was made to another listener than the one that the request is for.
fn is_misdirected(port: &Port, name: Option<&str>, asked: &str) -> bool {
    let (Some(tls), Some(name)) = (&port.tls, name) else { return false };
    name != asked && tls.listener(name) != tls.listener(asked)
}

struct Exchange<'a> {
    came: &'a Arc<Came>,
    rule: &'a Rule,
    host: String,
    authority: Authority,
    path: Path,
    query: Option<String>,
    prefix: usize,
}

/// A request on its way: everything about it but where it goes.
struct Outgoing {
    method: Method,
    authority: Authority,
    path: String,
    query: Option<String>,
    headers: HeaderMap,
    body: Body,
    upgrade: Option<(HeaderValue, OnUpgrade)>,
}

impl Exchange<'_> {
    async fn run(self, request: Request<Incoming>) -> Result<Response<Body>, StatusCode> {
        let action = &self.rule.action;
        let asked = request.headers().clone();
        let cors = action.filters.iter().find_map(|filter| match filter {
            Filter::Cors(cors) => Some(cors),
            _ => None,
        });
        let is_preflight = Cors::is_preflight(request.method(), &asked);
        if let Some(cors) = cors.filter(|_| is_preflight) {
            let mut response = Response::new(body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            cors.answer(&asked, true, response.headers_mut());
            return Ok(response);
        }
        if let Some(redirect) = self.redirect(&action.filters) {
            return Ok(redirect);
        }
        let backend = choose(&action.backends).ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
        if let Some(redirect) = self.redirect(&backend.filters) {
            return Ok(redirect);
        }
        let filters: Vec<&Filter> = action.filters.iter().chain(&backend.filters).collect();
        let destination = match &backend.to {
            To::Service(destination) => destination,
            To::Nobody(code) => return Err(*code),
        };
        let mut outgoing = self.outgoing(request);
        filters.iter().for_each(|filter| self.change(filter, &mut outgoing));
        self.mirror(&filters, &mut outgoing);
        let sending = self.send(outgoing, destination, action);
        let mut response = match action.request_timeout {
            Some(limit) => match tokio::time::timeout(limit, sending).await {
                Ok(outcome) => outcome?,
                Err(_) => return Err(StatusCode::GATEWAY_TIMEOUT),
            },
            None => sending.await?,
        };
        for filter in filters {
            match filter {
                Filter::ResponseHeaders(change) => change.apply(response.headers_mut()),
                Filter::Cors(cors) => cors.answer(&asked, false, response.headers_mut()),
                _ => {}
            }
        }
        Ok(response)
    }

    fn redirect(&self, filters: &[Filter]) -> Option<Response<Body>> {
        let redirect = filters.iter().find_map(|filter| match filter {
            Filter::Redirect(redirect) => Some(redirect),
            _ => None,
        })?;
        let location = redirect.location(&Place {
            scheme: self.came.scheme,
            host: &self.host,
            port: self.came.client.site.port,
            path: &self.path.matched,
            query: self.query.as_deref(),
            prefix: self.prefix,
        });
        let mut response = Response::new(body::empty());
        *response.status_mut() = redirect.code;
        let location = HeaderValue::try_from(location).ok()?;
        response.headers_mut().insert(header::LOCATION, location);
        Some(response)
    }

    fn outgoing(&self, mut request: Request<Incoming>) -> Outgoing {
        let upgrade = headers::upgrade(&request).map(|to| (to, hyper::upgrade::on(&mut request)));
        let (mut parts, incoming) = request.into_parts();
        headers::strip(&mut parts.headers);
        parts.headers.remove(header::HOST);
        // Who sends it has been told to go on by us.
        parts.headers.remove(header::EXPECT);
        let client = &self.came.client;
        let host = self.authority.as_str();
        let port = client.site.port;
        headers::introduce(&mut parts.headers, client.peer, host, port, self.came.scheme);
        Outgoing {
            method: parts.method,
            authority: self.authority.clone(),
            path: self.path.sent.clone(),
            query: self.query.clone(),
            headers: parts.headers,
            body: body::patient(incoming, IDLE),
            upgrade,
        }
    }

    fn change(&self, filter: &Filter, outgoing: &mut Outgoing) {
        match filter {
            Filter::RequestHeaders(change) => change.apply(&mut outgoing.headers),
            Filter::Rewrite { host, path } => {
                let host = host.as_ref().and_then(|host| Authority::try_from(host.as_bytes()).ok());
                if let Some(host) = host {
                    outgoing.authority = host;
                }
                if let Some(change) = path {
                    outgoing.path = change.apply(&self.path.matched, self.prefix);
                }
            }
            _ => {}
        }
    }

    /// Sends copies, whose answers nobody reads.
    fn mirror(&self, filters: &[&Filter], outgoing: &mut Outgoing) {
        for filter in filters {
            let Filter::Mirror { to: To::Service(to), numerator, denominator } = filter else {
                continue;
            };
            if fastrand::u32(..(*denominator).max(1)) >= *numerator {
                continue;
            }
            let (original, copy) =
                body::copied(std::mem::replace(&mut outgoing.body, body::empty()));
            outgoing.body = original;
            let copy = Outgoing {
                method: outgoing.method.clone(),
                authority: outgoing.authority.clone(),
                path: outgoing.path.clone(),
                query: outgoing.query.clone(),
                headers: outgoing.headers.clone(),
                body: copy,
                upgrade: None,
            };
            let (came, to) = (self.came.clone(), to.clone());
            tokio::spawn(async move {
                let sent = deliver(&came, copy, &to, None);
                let _ = tokio::time::timeout(COPY, sent).await;
            });
        }
    }

    async fn send(
        &self,
        outgoing: Outgoing,
        destination: &Arc<Destination>,
        action: &Action,
    ) -> Result<Response<Body>, StatusCode> {
        deliver(self.came, outgoing, destination, action.backend_timeout).await
    }
}

/// One of several, by their weights.
pub fn choose(backends: &[Backend]) -> Option<&Backend> {
    let total: u64 = backends.iter().map(|backend| u64::from(backend.weight)).sum();
    if total == 0 {
        return None;
    }
    let mut at = fastrand::u64(..total);
    backends.iter().find(|backend| {
        let weight = u64::from(backend.weight);
        let is_it = at < weight;
        at = at.saturating_sub(weight);
        is_it
    })
}

/// Asks pods of a service until one takes a connection; what was sent is never sent again.
async fn deliver(
    came: &Arc<Came>,
    mut outgoing: Outgoing,
    destination: &Arc<Destination>,
    limit: Option<Duration>,
) -> Result<Response<Body>, StatusCode> {
    let upstream = came.client.proxy.upstream(destination);
    let upstream = upstream.ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    let upgrade = outgoing.upgrade.take();
    let mut outgoing = Some(outgoing);
    let mut tried: Vec<SocketAddr> = Vec::new();
    let mut unsent: Option<Request<Body>> = None;
    loop {
        let Some(endpoint) = upstream.choose(&tried).filter(|_| tried.len() < ATTEMPTS) else {
            // Those there are take no connections.
            return Err(match tried.is_empty() {
                true => StatusCode::SERVICE_UNAVAILABLE,
                false => StatusCode::BAD_GATEWAY,
            });
        };
        let request = match (unsent.take(), outgoing.take()) {
            (Some(request), _) => request,
            (None, Some(outgoing)) => {
                let to = upgrade.as_ref().map(|(to, _)| to);
                written(outgoing, endpoint.speaks_http2(), to)?
            }
            (None, None) => return Err(StatusCode::BAD_GATEWAY),
        };
        let working = endpoint.begin();
        let sending = endpoint.send(request);
        let outcome = match limit {
            Some(limit) => match tokio::time::timeout(limit, sending).await {
                Ok(outcome) => outcome,
                Err(_) => return Err(StatusCode::GATEWAY_TIMEOUT),
            },
            None => sending.await,
        };
        match outcome {
            Ok(response) => return Ok(received(response, upgrade, working)),
            Err(Failure::Unreached(request, error)) => {
                tracing::debug!(address = %endpoint.address, %error, "a pod takes no connection");
                unsent = Some(*request);
                tried.push(endpoint.address);
            }
            Err(Failure::Broken(error)) => {
                tracing::debug!(address = %endpoint.address, %error, "a pod gives no answer");
                return Err(StatusCode::BAD_GATEWAY);
            }
        }
    }
}

/// A request as the pod's protocol has it.
fn written(
    outgoing: Outgoing,
    is_http2: bool,
    upgrade: Option<&HeaderValue>,
) -> Result<Request<Body>, StatusCode> {
    let path = match &outgoing.query {
        Some(query) => format!("{}?{query}", outgoing.path),
        None => outgoing.path,
    };
    let path = PathAndQuery::try_from(path).map_err(|_| StatusCode::BAD_REQUEST)?;
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(path);
    let mut headers = outgoing.headers;
    if is_http2 {
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(outgoing.authority);
    } else {
        let host = HeaderValue::try_from(outgoing.authority.as_str());
        headers.insert(header::HOST, host.map_err(|_| StatusCode::BAD_REQUEST)?);
        if let Some(upgrade) = upgrade {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, upgrade.clone());
        }
    }
    // What it says it is long, it is; else it comes in pieces.
    if outgoing.body.is_end_stream() && outgoing.body.size_hint().exact() == Some(0) {
        headers.remove(header::CONTENT_LENGTH);
        if !matches!(outgoing.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::DELETE)
        {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
    }
    let mut request = Request::new(outgoing.body);
    *request.method_mut() = outgoing.method;
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| StatusCode::BAD_REQUEST)?;
    *request.version_mut() = if is_http2 { Version::HTTP_2 } else { Version::HTTP_11 };
    *request.headers_mut() = headers;
    Ok(request)
}

fn received<G: Send + Unpin + 'static>(
    mut response: Response<Incoming>,
    upgrade: Option<(HeaderValue, OnUpgrade)>,
    working: G,
) -> Response<Body> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some((_, client)) = upgrade else { return said(StatusCode::BAD_GATEWAY) };
        let pod = hyper::upgrade::on(&mut response);
        let to = response.headers().get(header::UPGRADE).cloned();
        let (mut parts, _) = response.into_parts();
        headers::strip(&mut parts.headers);
        if let Some(to) = to {
            parts.headers.insert(header::UPGRADE, to);
        }
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        tokio::spawn(async move {
            if let (Ok(client), Ok(pod)) = tokio::join!(client, pod) {
                passing::carry(TokioIo::new(client), TokioIo::new(pod)).await;
            }
            drop(working);
        });
        return Response::from_parts(parts, body::empty());
    }
    let (mut parts, incoming) = response.into_parts();
    headers::strip(&mut parts.headers);
    Response::from_parts(parts, body::held(incoming, working))
}
