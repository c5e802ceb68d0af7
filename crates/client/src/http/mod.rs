//! HTTP to one server: connections that are shared, kept and given up in time.
//!
//! It knows nothing of Kubernetes, so that whoever has to call something over HTTP can use it: an
//! API server, a webhook, a kubelet. Over HTTP/2 all requests share a connection, and another is
//! opened before a server would make streams wait; over HTTP/1.1 each request has one to itself.
//! A connection is made with what [`Tls`] says at that moment; when that changes, older ones get
//! no new requests and end with what is under way.
mod body;
mod connect;
pub mod proxy;
pub mod tls;

pub use body::Body;
pub use tls::Tls;

use ::http::{HeaderValue, Request, Response, Uri, header};
use bytes::Bytes;
use connect::{Sender, Way};
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use parking_lot::Mutex;
use proxy::{Kind, Proxy};
use rustls::ClientConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Streams that are open at once on a connection: upstream's API server allows 100 (`MaxConcurrentStreams` in
/// apiserver/pkg/server/secure_serving.go), others in Go 250, ours 1000 or more. One more would wait until a
/// watch ends, and a component has more watches than that.
const STREAMS: usize = 90;
/// Connections of HTTP/1.1 that wait for the next request.
const IDLE: usize = 16;
/// A request that no server has seen is sent again, on another connection.
const TRIES: usize = 3;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0:?} is no address of a server: {1}")]
    Address(String, String),
    #[error("failed to connect to {address}: {source}")]
    Connect { address: String, source: std::io::Error },
    #[error("failed to set up TLS: {0}")]
    Tls(String),
    #[error("{0} does not answer in time")]
    Timeout(String),
    #[error("request to {address} failed: {source}")]
    Exchange { address: String, source: hyper::Error },
}

impl Error {
    /// No server has seen the request.
    pub fn is_unsent(&self) -> bool {
        match self {
            Error::Exchange { source, .. } => source.is_canceled(),
            Error::Timeout(_) => false,
            _ => true,
        }
    }
}

/// How to reach a server.
#[derive(Clone)]
pub struct Settings {
    pub tls: Arc<dyn Tls>,
    /// Where it really is, whatever its name resolves to.
    pub address: Option<SocketAddr>,
    /// Whom its certificate is to name, if not the host.
    pub server_name: Option<String>,
    pub connect_timeout: Duration,
    /// HTTP/2 is spoken if the server does.
    pub http2: bool,
    /// How connections are made, if not by dialling its address: it is in this process, or reached through
    /// a tunnel.
    pub dial: Option<Dial>,
    /// Servers that do as well where this one cannot be reached.
    pub others: Option<Others>,
    /// What is on the way to the server.
    pub proxy: Proxy,
}

/// Servers of the same cluster: where they are now, and the name that all their certificates have.
#[derive(Clone)]
pub struct Others {
    pub addresses: Arc<dyn Fn() -> Vec<SocketAddr> + Send + Sync>,
    pub server_name: String,
}

/// Makes a connection that is no socket.
pub type Dial = Arc<dyn Fn() -> tokio::io::DuplexStream + Send + Sync>;

impl Settings {
    pub fn new(tls: Arc<dyn Tls>) -> Settings {
        let connect_timeout = Duration::from_secs(30);
        Settings {
            tls,
            address: None,
            server_name: None,
            connect_timeout,
            http2: true,
            dial: None,
            others: None,
            proxy: Proxy::None,
        }
    }
}

/// Connections to one server. Cheap to clone; a clone shares them.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    server: Uri,
    authority: HeaderValue,
    settings: Settings,
    proxy: Option<proxy::Url>,
    open: Mutex<Open>,
    /// One connection is made at a time: who waits meanwhile may share it.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Open {
    /// What the connections were made with.
    tls: Option<Arc<ClientConfig>>,
    http1: Vec<http1::SendRequest<Full<Bytes>>>,
    http2: Vec<(http2::SendRequest<Full<Bytes>>, Arc<AtomicUsize>)>,
}

impl Pool {
    /// `server` has a scheme and a host, and maybe a path that all requests are below.
    pub fn new(server: &str, settings: Settings) -> Result<Pool, Error> {
        let wrong = |cause: &str| Error::Address(server.to_owned(), cause.to_owned());
        let uri: Uri =
            server.parse().map_err(|error: ::http::uri::InvalidUri| wrong(&error.to_string()))?;
        let authority = uri.authority().ok_or_else(|| wrong("it has no host"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(wrong("it begins with neither http:// nor https://"));
        }
        let authority =
            HeaderValue::try_from(authority.as_str()).map_err(|e| wrong(&e.to_string()))?;
        let (open, connecting) = (Mutex::default(), tokio::sync::Mutex::new(()));
        // Who has another way to it than by its name needs none through a proxy.
        let has_own_way = settings.dial.is_some() || settings.address.is_some();
        let proxy = if has_own_way { None } else { settings.proxy.to(&uri) };
        let shared = Shared { server: uri, authority, settings, proxy, open, connecting };
        Ok(Pool { shared: Arc::new(shared) })
    }

    /// `host:port`, for messages and metrics.
    pub fn authority(&self) -> &str {
        self.shared.server.authority().map_or("", |authority| authority.as_str())
    }

    /// Sends a request whose URI is a path, and returns the head of its answer.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, Error> {
        let mut request = request.map(Full::new);
        let may_repeat = request.method().is_safe();
        for attempt in 1.. {
            let sender = self.sender(attempt > 1).await?;
            // A server may close a connection in the very moment in which a request is sent: what
            // changes nothing is then sent again, as Go does.
            let copy = (may_repeat && attempt < TRIES).then(|| request.clone());
            let sent = match sender {
                Sender::Http2(mut sender, streams) => {
                    self.address(&mut request, true)?;
                    let lease = body::Lease::stream(streams);
                    let sent = sender.try_send_request(request).await;
                    sent.map(|answer| answer.map(|incoming| Body::new(incoming, lease)))
                }
                Sender::Http1(mut sender) => {
                    self.address(&mut request, false)?;
                    self.address_proxy(&mut request)?;
                    let sent = sender.try_send_request(request).await;
                    let lease = || body::Lease::connection(self.clone(), sender);
                    sent.map(|answer| answer.map(|incoming| Body::new(incoming, lease())))
                }
            };
            match sent {
                Ok(answer) => return Ok(answer),
                Err(mut failed) => match (failed.take_message(), copy) {
                    // It was closed while it was idle: nobody has seen the request.
                    (Some(unsent), _) if attempt < TRIES => request = unsent,
                    (None, Some(copy)) if is_cut(failed.error()) => request = copy,
                    _ => return Err(self.failed(failed.into_error())),
                },
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Sends a request that makes a connection something else (`101 Switching Protocols`): always
    /// over HTTP/1.1, on a connection of its own. The answer may be a refusal.
    pub async fn upgrade(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<hyper::body::Incoming>, Error> {
        let mut request = request.map(Full::new);
        self.address(&mut request, false)?;
        let way = Way {
            tls: self.tls()?,
            http2: false,
            proxy: self.shared.proxy.as_ref(),
            passes: false,
        };
        match connect::open(&self.shared.server, &self.shared.settings, way).await? {
            Sender::Http1(mut sender) => {
                sender.send_request(request).await.map_err(|error| self.failed(error))
            }
            Sender::Http2(..) => Err(Error::Tls("HTTP/2 was not offered and is spoken".to_owned())),
        }
    }

    fn failed(&self, source: hyper::Error) -> Error {
        Error::Exchange { address: self.authority().to_owned(), source }
    }

    fn tls(&self) -> Result<Option<Arc<ClientConfig>>, Error> {
        match self.shared.server.scheme_str() {
            Some("https") => self.shared.settings.tls.config().map(Some).map_err(Error::Tls),
            _ => Ok(None),
        }
    }

    /// A connection that is open, or a new one.
    async fn sender(&self, is_retry: bool) -> Result<Sender, Error> {
        let tls = self.tls()?;
        if !is_retry && let Some(sender) = self.shared.open.lock().take(&tls) {
            return Ok(sender);
        }
        let settings = &self.shared.settings;
        let _turn = match settings.http2 && (tls.is_some() || settings.dial.is_some()) {
            true => Some(self.shared.connecting.lock().await),
            false => None,
        };
        // Somebody else may have made one while we waited.
        if let Some(sender @ Sender::Http2(..)) = self.shared.open.lock().take(&tls) {
            return Ok(sender);
        }
        let server = &self.shared.server;
        let way = Way {
            tls: tls.clone(),
            http2: settings.http2,
            proxy: self.shared.proxy.as_ref(),
            passes: self.passes_on(),
        };
        let connected = connect::open(server, settings, way);
        let timeout = tokio::time::timeout(settings.connect_timeout, connected).await;
        let sender = timeout.map_err(|_| Error::Timeout(self.authority().to_owned()))??;
        if let Sender::Http2(sender, streams) = &sender {
            let mut open = self.shared.open.lock();
            open.is_of(&tls);
            open.http2.push((sender.clone(), streams.clone()));
        }
        Ok(sender)
    }

    /// The path below the server's own, in the form that the protocol wants.
    fn address(&self, request: &mut Request<Full<Bytes>>, http2: bool) -> Result<(), Error> {
        let server = &self.shared.server;
        let wanted = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let wrong = |error: ::http::Error| Error::Address(wanted.to_owned(), error.to_string());
        let is_new =
            request.uri().authority().is_none() && !request.headers().contains_key(header::HOST);
        let path = match server.path().trim_end_matches('/') {
            prefix if is_new && !prefix.is_empty() => format!("{prefix}{wanted}"),
            _ => wanted.to_owned(),
        };
        let uri = Uri::builder().path_and_query(path);
        if http2 {
            let scheme = server.scheme().cloned().unwrap_or(::http::uri::Scheme::HTTPS);
            let authority = self.authority().to_owned();
            *request.uri_mut() = uri.scheme(scheme).authority(authority).build().map_err(wrong)?;
            request.headers_mut().remove(header::HOST);
        } else {
            *request.uri_mut() = uri.build().map_err(wrong)?;
            request.headers_mut().insert(header::HOST, self.shared.authority.clone());
        }
        Ok(())
    }

    /// Whether requests are handed to a proxy that sends them on: those without TLS.
    fn passes_on(&self) -> bool {
        let is_plain = self.shared.server.scheme_str() == Some("http");
        is_plain && self.shared.proxy.as_ref().is_some_and(|proxy| proxy.kind != Kind::Socks)
    }

    /// A proxy that sends requests on reads the whole address in them, and who asks.
    fn address_proxy(&self, request: &mut Request<Full<Bytes>>) -> Result<(), Error> {
        let Some(proxy) = self.shared.proxy.as_ref().filter(|_| self.passes_on()) else {
            return Ok(());
        };
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let wrong = |error: &dyn std::fmt::Display| Error::Address(path.clone(), error.to_string());
        let uri = Uri::builder().scheme("http").authority(self.authority()).path_and_query(&*path);
        *request.uri_mut() = uri.build().map_err(|error| wrong(&error))?;
        if let Some(authorization) = proxy.authorization() {
            let mut value = HeaderValue::try_from(authorization).map_err(|error| wrong(&error))?;
            value.set_sensitive(true);
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, value);
        }
        Ok(())
    }

    fn give_back(&self, sender: http1::SendRequest<Full<Bytes>>) {
        let mut open = self.shared.open.lock();
        if open.http1.len() < IDLE && !sender.is_closed() {
            open.http1.push(sender);
        }
    }
}

/// The connection ended before an answer began.
fn is_cut(error: &hyper::Error) -> bool {
    error.is_incomplete_message() || error.is_closed() || error.is_canceled()
}

impl Open {
    /// Forgets connections that were made with other settings.
    fn is_of(&mut self, tls: &Option<Arc<ClientConfig>>) {
        let is_same = match (&self.tls, tls) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            *self = Open { tls: tls.clone(), ..Open::default() };
        }
    }

    fn take(&mut self, tls: &Option<Arc<ClientConfig>>) -> Option<Sender> {
        self.is_of(tls);
        self.http2.retain(|(sender, _)| !sender.is_closed());
        let mut free =
            self.http2.iter().filter(|(_, streams)| streams.load(Ordering::Relaxed) < STREAMS);
        if let Some((sender, streams)) = free.next() {
            return Some(Sender::Http2(sender.clone(), streams.clone()));
        }
        loop {
            let sender = self.http1.pop()?;
            if sender.is_ready() {
                return Some(Sender::Http1(sender));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tls::{Believed, Files};
    use http_body_util::combinators::BoxBody;
    use http_body_util::{BodyExt, StreamBody};
    use hyper::body::{Frame, Incoming};
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use std::convert::Infallible;

    /// As many streams as upstream's API server allows.
    const ALLOWED: u32 = 100;

    /// `/watch` never ends, all else is answered at once.
    async fn answer(
        request: Request<Incoming>,
    ) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
        let endless = futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>();
        Ok(Response::new(match request.uri().path() {
            "/watch" => StreamBody::new(endless).boxed(),
            _ => Full::from("ok").boxed(),
        }))
    }

    #[tokio::test]
    async fn watches_leave_room_for_what_follows_them() {
        let dial: Dial = Arc::new(|| {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                http.max_concurrent_streams(ALLOWED);
                http.serve_connection(TokioIo::new(theirs), service_fn(answer)).await
            });
            ours
        });
        let mut settings = Settings::new(Arc::new(Files::new(Believed::System, None)));
        settings.dial = Some(dial);
        let pool = Pool::new("http://here", settings).unwrap();
        let get = |path: &str| {
            let request = Request::get(path).body(Bytes::new()).unwrap();
            pool.send(request)
        };
        let mut watches = Vec::new();
        for _ in 0..ALLOWED * 3 {
            watches.push(get("/watch").await.unwrap());
        }
        let patience = Duration::from_secs(30);
        let answer = tokio::time::timeout(patience, get("/get")).await;
        assert_eq!(answer.expect("there is room").unwrap().status(), 200);
        assert_eq!(watches.len(), 300);
    }
}
