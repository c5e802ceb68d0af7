//! Connections that are kept between questions, by the address they lead to.
//!
//! By address and not by name, so that an endpoint that has gone is not asked again because somebody
//! still has a connection to it (upstream's `WebhookRoundTripLoadBalancing`).
use super::failure;
use crate::answer::{self, Body};
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

/// A connection that nobody needed for so long is closed: Go's default.
const IDLE: Duration = Duration::from_secs(90);
/// So many are kept to one address: upstream's client's.
const MOST: usize = 25;
/// How long an address may take to answer at all, and how long to prove itself: Go's defaults. Who asks
/// may have less patience.
const DIAL: Duration = Duration::from_secs(30);
const HANDSHAKE: Duration = Duration::from_secs(10);

type Sender = SendRequest<Body>;

#[derive(Default)]
pub struct Pool {
    idle: Mutex<HashMap<String, Vec<(Sender, Instant)>>>,
}

/// Where a connection is to lead.
pub struct Dial<'a> {
    pub host: &'a str,
    pub port: u16,
    /// The addresses that may be tried, in this order; none: what the host's name says.
    pub addresses: Vec<SocketAddr>,
}

impl Pool {
    /// Sends a request on a connection that is there, or on a new one. What a connection that has
    /// just been closed did not take is sent once more; what may have arrived is not, unless it only
    /// reads. The connection is kept again when the last of the answer has been read.
    pub async fn send(
        self: &Arc<Pool>,
        mut request: Request<Body>,
        dial: Dial<'_>,
        name: String,
        tls: Arc<ClientConfig>,
    ) -> Result<Response<Body>, String> {
        let key = dial.key();
        while let Some(mut sender) = self.take(&key) {
            let again = head_to_repeat(&request);
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(self.lend(response, key, sender)),
                Err(mut error) => {
                    request = match (error.take_message(), again) {
                        (Some(unsent), _) => unsent,
                        (None, Some(head)) => Request::from_parts(head, answer::empty()),
                        (None, None) => return Err(failure::of_exchange(error.error())),
                    }
                }
            }
        }
        let (key, mut sender) = connect(dial, name, tls).await?;
        let sent = sender.try_send_request(request).await;
        let response = sent.map_err(|error| failure::of_exchange(error.error()))?;
        Ok(self.lend(response, key, sender))
    }

    fn lend(
        self: &Arc<Pool>,
        response: Response<Incoming>,
        key: String,
        sender: Sender,
    ) -> Response<Body> {
        response.map(|body| {
            let mut lent = Lent { body, back: Some((self.clone(), key, sender)) };
            if lent.body.is_end_stream() {
                lent.give_back();
            }
            lent.boxed()
        })
    }

    /// Keeps a connection whose answer has been read.
    fn put(&self, key: String, sender: Sender) {
        if sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        idle.retain(|_, senders| {
            senders.retain(|(sender, since)| !sender.is_closed() && now - *since < IDLE);
            !senders.is_empty()
        });
        let senders = idle.entry(key).or_default();
        if senders.len() < MOST {
            senders.push((sender, now));
        }
    }

    /// The connection that was used last. One that is not ready yet stays: the last of its question
    /// may be on its way still.
    fn take(&self, key: &str) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let senders = idle.get_mut(key)?;
        let is_good =
            |(sender, since): &(Sender, Instant)| sender.is_ready() && since.elapsed() < IDLE;
        let position = senders.iter().rposition(is_good)?;
        Some(senders.remove(position).0)
    }
}

/// What is needed to ask once more for something that may be asked twice: it reads, and has no body. A
/// server closes a connection while the next question is on its way to it, and no client is to notice.
fn head_to_repeat(request: &Request<Body>) -> Option<Parts> {
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    if !reads || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy.into_parts().0)
}

/// An answer's body, which gives its connection back when all of it has been read. One that is not
/// read to its end takes its connection with it.
struct Lent {
    body: Incoming,
    back: Option<(Arc<Pool>, String, Sender)>,
}

impl Lent {
    fn give_back(&mut self) {
        if let Some((pool, key, sender)) = self.back.take() {
            pool.put(key, sender);
        }
    }
}

impl hyper::body::Body for Lent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(match frame {
            Some(Err(error)) => {
                self.back = None;
                Some(Err(io::Error::other(failure::of_body(&error))))
            }
            frame => {
                if frame.is_none() || self.body.is_end_stream() {
                    self.give_back();
                }
                frame.map(|frame| frame.map_err(io::Error::other))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Dial<'_> {
    /// What connections there are kept by: the first address alone, so that all of them get their
    /// share of new questions.
    fn key(&self) -> String {
        match self.addresses.first() {
            Some(address) => address.to_string(),
            None => format!("{}:{}", self.host, self.port),
        }
    }
}

async fn connect(
    dial: Dial<'_>,
    name: String,
    tls: Arc<ClientConfig>,
) -> Result<(String, Sender), String> {
    let named = dial.addresses.is_empty();
    let addresses = match named {
        false => dial.addresses,
        true => {
            let host = dial.host;
            let found = tokio::net::lookup_host((host, dial.port)).await;
            let found = found.map_err(|_| format!("dial tcp: lookup {host}: no such host"))?;
            found.collect()
        }
    };
    let mut failed = format!("dial tcp: lookup {}: no such host", dial.host);
    for address in addresses {
        let dialled = timeout(DIAL, TcpStream::connect(address)).await;
        match dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => {
                let key = match named {
                    true => format!("{}:{}", dial.host, dial.port),
                    false => address.to_string(),
                };
                return Ok((key, shake_hands(stream, name, tls).await?));
            }
            Err(error) => failed = failure::of_dial(&address.to_string(), &error),
        }
    }
    Err(failed)
}

async fn shake_hands(
    stream: TcpStream,
    name: String,
    tls: Arc<ClientConfig>,
) -> Result<Sender, String> {
    let _ = stream.set_nodelay(true);
    let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
    let shaking = timeout(HANDSHAKE, TlsConnector::from(tls).connect(name, stream)).await;
    let stream = shaking.map_err(|_| "net/http: TLS handshake timeout".to_owned())?;
    let stream = stream.map_err(|error| failure::of_handshake(&error))?;
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| failure::of_exchange(&e))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a server beside this one ended");
        }
    });
    Ok(sender)
}
