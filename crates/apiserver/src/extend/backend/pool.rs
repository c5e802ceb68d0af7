//! Connections that are kept between questions, by the address they lead to.
//!
//! By address and not by name, so that an endpoint that has gone is not asked again because somebody
//! still has a connection to it (upstream's `WebhookRoundTripLoadBalancing`).
use super::failure;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

/// A connection that nobody needed for so long is closed: Go's default.
const IDLE: Duration = Duration::from_secs(90);
/// So many are kept to one address: upstream's client's.
const MOST: usize = 25;

type Sender = SendRequest<Full<Bytes>>;

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

/// An answer whose body is still to be read, and the connection it came on.
pub struct Answer {
    pub response: Response<Incoming>,
    pub key: String,
    pub sender: Sender,
}

impl Pool {
    /// Sends a request on a connection that is there, or on a new one. What a connection that has
    /// just been closed did not take is sent once more; what may have arrived is not.
    pub async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        dial: Dial<'_>,
        name: String,
        tls: Arc<ClientConfig>,
    ) -> Result<Answer, String> {
        for key in dial.keys() {
            while let Some(mut sender) = self.take(&key) {
                match sender.try_send_request(request).await {
                    Ok(response) => return Ok(Answer { response, key, sender }),
                    Err(mut error) => match error.take_message() {
                        Some(unsent) => request = unsent,
                        None => return Err(failure::of_exchange(error.error())),
                    },
                }
            }
        }
        let (key, mut sender) = connect(dial, name, tls).await?;
        let sent = sender.try_send_request(request).await;
        let response = sent.map_err(|error| failure::of_exchange(error.error()))?;
        Ok(Answer { response, key, sender })
    }

    /// Keeps a connection whose answer has been read.
    pub fn put(&self, key: String, sender: Sender) {
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

    fn take(&self, key: &str) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let senders = idle.get_mut(key)?;
        while let Some((sender, since)) = senders.pop() {
            if sender.is_ready() && since.elapsed() < IDLE {
                return Some(sender);
            }
        }
        None
    }
}

impl Dial<'_> {
    /// What connections there are kept by: the first address alone, so that all of them get their
    /// share of new questions.
    fn keys(&self) -> Vec<String> {
        match self.addresses.first() {
            Some(address) => vec![address.to_string()],
            None => vec![format!("{}:{}", self.host, self.port)],
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
        match TcpStream::connect(address).await {
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
    let stream = TlsConnector::from(tls).connect(name, stream).await;
    let stream = stream.map_err(|error| failure::of_handshake(&error))?;
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| failure::of_exchange(&e))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a webhook ended");
        }
    });
    Ok(sender)
}
