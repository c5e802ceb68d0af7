//! One pod: connections to it that are kept, new ones, and how much it has to do.
use super::body::Body;
use super::tls;
use crate::table::{Destination, Protocol, Verified};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// How long a pod may take to take a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Servers keep connections for a minute or more: ours are gone before, so that none is used that ends.
const KEPT: Duration = Duration::from_secs(30);
const MOST_KEPT: usize = 64;
/// What a pod may send ahead on one HTTP/2 stream, and on all.
const WINDOW: u32 = 1 << 20;
const WINDOW_OF_ALL: u32 = 8 << 20;
const LARGEST_HEAD: usize = 256 << 10;

pub struct Endpoint {
    pub address: SocketAddr,
    protocol: Protocol,
    tls: Option<Arc<Verified>>,
    busy: AtomicUsize,
    kept: Mutex<Vec<(http1::SendRequest<Body>, Instant)>>,
    shared: Mutex<Option<http2::SendRequest<Body>>>,
}

/// Why there is no answer.
pub enum Failure {
    /// Nothing was sent: somebody else may be asked the same.
    Unreached(Box<Request<Body>>, io::Error),
    Broken(hyper::Error),
}

/// One request that is under way.
pub struct Working(Arc<Endpoint>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Endpoint {
    pub fn new(address: SocketAddr, destination: &Destination) -> Endpoint {
        Endpoint {
            address,
            protocol: destination.protocol,
            tls: destination.tls.clone(),
            busy: AtomicUsize::new(0),
            kept: Mutex::default(),
            shared: Mutex::default(),
        }
    }

    pub fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    pub fn begin(self: &Arc<Endpoint>) -> Working {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Working(self.clone())
    }

    pub fn sweep(&self) {
        self.kept.lock().retain(|(sender, since)| since.elapsed() < KEPT && !sender.is_closed());
    }

    pub fn speaks_http2(&self) -> bool {
        self.protocol == Protocol::Http2
    }

    /// Sends a request on a connection that is there, or on a new one.
    pub async fn send(
        self: &Arc<Endpoint>,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Failure> {
        match self.speaks_http2() {
            true => self.send_shared(request).await,
            false => self.send_alone(request).await,
        }
    }

    /// HTTP/1: one request at a time has a connection for itself.
    async fn send_alone(
        self: &Arc<Endpoint>,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, Failure> {
        loop {
            let (mut sender, is_new) = match self.take() {
                Some(sender) => (sender, false),
                None => match self.open().await {
                    Ok(sender) => (sender, true),
                    Err(error) => return Err(Failure::Unreached(Box::new(request), error)),
                },
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    let endpoint = self.clone();
                    // It can be used again when the answer is read.
                    tokio::spawn(async move {
                        if sender.ready().await.is_ok() {
                            endpoint.keep(sender);
                        }
                    });
                    return Ok(response);
                }
                // It ended while nobody used it. A new one that does has not taken anything either.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !is_new => request = unsent,
                    Some(unsent) => {
                        let error = io::Error::other(error.into_error());
                        return Err(Failure::Unreached(Box::new(unsent), error));
                    }
                    None => return Err(Failure::Broken(error.into_error())),
                },
            }
        }
    }

    /// HTTP/2: all requests share one connection.
    async fn send_shared(
        self: &Arc<Endpoint>,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, Failure> {
        let mut is_last = false;
        loop {
            let there = self.shared.lock().clone().filter(|sender| !sender.is_closed());
            let mut sender = match there {
                Some(sender) if !is_last => sender,
                _ => match self.open_shared().await {
                    Ok(sender) => {
                        *self.shared.lock() = Some(sender.clone());
                        sender
                    }
                    Err(error) => return Err(Failure::Unreached(Box::new(request), error)),
                },
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !is_last => {
                        request = unsent;
                        is_last = true;
                    }
                    Some(unsent) => {
                        let error = io::Error::other(error.into_error());
                        return Err(Failure::Unreached(Box::new(unsent), error));
                    }
                    None => return Err(Failure::Broken(error.into_error())),
                },
            }
        }
    }

    fn take(&self) -> Option<http1::SendRequest<Body>> {
        let mut kept = self.kept.lock();
        while let Some((sender, since)) = kept.pop() {
            if sender.is_ready() && since.elapsed() < KEPT {
                return Some(sender);
            }
        }
        None
    }

    fn keep(&self, sender: http1::SendRequest<Body>) {
        let mut kept = self.kept.lock();
        if kept.len() < MOST_KEPT {
            kept.push((sender, Instant::now()));
        }
    }

    async fn open(&self) -> io::Result<http1::SendRequest<Body>> {
        let stream = self.dial().await?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(LARGEST_HEAD);
        let (mut sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // How it ends is told to whoever has a request on it.
        tokio::spawn(connection.with_upgrades());
        sender.ready().await.map_err(io::Error::other)?;
        Ok(sender)
    }

    async fn open_shared(&self) -> io::Result<http2::SendRequest<Body>> {
        let stream = self.dial().await?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW_OF_ALL)
            .keep_alive_interval(KEPT)
            .keep_alive_timeout(PATIENCE);
        let opened = builder.handshake(TokioIo::new(stream));
        let opened = timeout(PATIENCE, opened).await.map_err(|_| too_late())?;
        let (sender, connection) = opened.map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// A connection, and TLS on it where that is asked for.
    pub async fn dial(&self) -> io::Result<Box<dyn Stream>> {
        let connect = async {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            match &self.tls {
                Some(verified) => {
                    let stream = tls::verify(stream, verified, self.protocol).await?;
                    Ok(Box::new(stream) as Box<dyn Stream>)
                }
                None => Ok(Box::new(stream) as Box<dyn Stream>),
            }
        };
        timeout(PATIENCE, connect).await.map_err(|_| too_late())?
    }
}

fn too_late() -> io::Error {
    io::Error::from(io::ErrorKind::TimedOut)
}

/// A connection of any kind.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}
