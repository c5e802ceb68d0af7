//! Exec, attach and port-forward over HTTP: what CRI answers with is a URL, and this is behind it.
//!
//! ```text
//!   CRI Exec ──► token ──► URL        client ──HTTP upgrade──► [`websocket`] or [`spdy`]
//!                                                                  │ Incoming   ▲ Outgoing
//!                                                                  ▼            │
//!                                                               [`session`] ──► process
//! ```
//! A token is random, used once and forgotten after a minute. The two transports know streams,
//! sessions know processes; between them go small messages through bounded queues, so that a slow
//! client slows the process and nothing piles up.
mod forward;
mod session;
mod spdy;
mod spdy_frame;
mod websocket;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming as Body;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::service::Service;

/// What a URL stands for.
#[derive(Debug, Clone)]
pub(crate) enum Purpose {
    Exec { container: String, command: Vec<String>, streams: Wanted },
    Attach { container: String, streams: Wanted },
    PortForward { sandbox: String, ports: Vec<u16> },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub terminal: bool,
}

/// From the client.
#[derive(Debug)]
pub(crate) enum Incoming {
    Stdin(Bytes),
    StdinClosed,
    Resize(u16, u16),
}

/// To the client.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Stdout(Bytes),
    Stderr(Bytes),
    /// How it ended, as a `Status`; the last one.
    Status(serde_json::Value),
}

/// Messages under way in each direction.
const QUEUE: usize = 16;
/// How long a URL is good for.
const LIFETIME: Duration = Duration::from_secs(60);

/// URLs that may wait to be used.
const WAITING: usize = 10_000;

/// By the URL's path, which is nobody's to guess.
type Tokens = Arc<Mutex<HashMap<String, (Instant, Purpose)>>>;

pub(crate) struct Server {
    base: String,
    tokens: Tokens,
}

impl Server {
    /// Listens on a loopback port of the kernel's choice.
    pub async fn bind(service: Service) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let base = format!("http://{}", listener.local_addr()?);
        let tokens = Tokens::default();
        let accepting = tokens.clone();
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (tokens, service) = (accepting.clone(), service.clone());
                tokio::spawn(async move {
                    let respond = service_fn(move |request| {
                        let (tokens, service) = (tokens.clone(), service.clone());
                        async move { Ok::<_, Infallible>(answer(request, &tokens, service)) }
                    });
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), respond)
                        .with_upgrades();
                    if let Err(error) = connection.await {
                        tracing::debug!("a streaming connection failed: {error}");
                    }
                });
            }
        });
        Ok(Server { base, tokens })
    }

    /// A URL that does this once.
    pub fn url(&self, purpose: Purpose) -> io::Result<String> {
        let mut bytes = [0; 16];
        io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = format!("/{}/{token}", purpose.name());
        let mut tokens = self.tokens.lock();
        tokens.retain(|_, (made, _)| made.elapsed() < LIFETIME);
        // Nobody asks for so many at once; what they hold is memory.
        if tokens.len() >= WAITING {
            return Err(io::Error::other("too many streams were asked for and not used"));
        }
        tokens.insert(path.clone(), (Instant::now(), purpose));
        Ok(format!("{}{path}", self.base))
    }
}

impl Purpose {
    fn name(&self) -> &'static str {
        match self {
            Purpose::Exec { .. } => "exec",
            Purpose::Attach { .. } => "attach",
            Purpose::PortForward { .. } => "portforward",
        }
    }
}

fn answer(mut request: Request<Body>, tokens: &Tokens, service: Service) -> Response<Full<Bytes>> {
    // The whole path: what was asked for is part of it.
    let known = tokens.lock().remove(request.uri().path());
    let Some((_, purpose)) = known.filter(|(made, _)| made.elapsed() < LIFETIME) else {
        return text(StatusCode::NOT_FOUND, "no such stream");
    };
    let wants = header(&request, UPGRADE.as_str()).to_ascii_lowercase();
    let upgrade = hyper::upgrade::on(&mut request);
    if wants == "websocket" {
        return websocket::accept(&request, upgrade, purpose, service);
    }
    if wants == "spdy/3.1" {
        return spdy::accept(&request, upgrade, purpose, service);
    }
    text(StatusCode::BAD_REQUEST, "unable to upgrade: neither WebSocket nor SPDY/3.1 was asked for")
}

fn header<'a>(request: &'a Request<Body>, name: &str) -> &'a str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Every protocol the client offers under a header, in order.
fn offered(request: &Request<Body>, name: &str) -> Vec<String> {
    let values = request.headers().get_all(name);
    values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|protocol| protocol.trim().to_owned())
        .collect()
}

/// The first protocol of ours that the client offers too.
fn negotiate(offered: &[String], ours: &[&'static str]) -> Option<&'static str> {
    ours.iter().copied().find(|protocol| offered.iter().any(|offer| offer == protocol))
}

fn switching(protocol: &str) -> http::response::Builder {
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, protocol)
}

fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = status;
    response
}
