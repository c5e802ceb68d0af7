//! A new connection: TCP, TLS, and whichever HTTP both sides speak.
use super::proxy::{self, Kind};
use super::{Error, Settings};
use ::http::Uri;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// What a server may send ahead on one stream, and on all: client-go's figures.
const WINDOW: u32 = 4 << 20;
const WINDOW_OF_ALL: u32 = 1 << 30;
/// A connection that is silent for so long is asked whether it lives: upstream's, too.
const SILENT: Duration = Duration::from_secs(30);
const UNANSWERED: Duration = Duration::from_secs(15);

pub(super) enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    /// With the number of its streams.
    Http2(http2::SendRequest<Full<Bytes>>, Arc<AtomicUsize>),
}

/// How a server is reached.
pub(super) struct Way<'p> {
    pub tls: Option<Arc<ClientConfig>>,
    /// It may be spoken.
    pub http2: bool,
    pub proxy: Option<&'p proxy::Url>,
    /// The proxy sends requests on, and is not asked for a connection.
    pub passes: bool,
}

pub(super) async fn open(server: &Uri, settings: &Settings, way: Way<'_>) -> Result<Sender, Error> {
    let Way { tls, http2, proxy, passes } = way;
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = server.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
    let address = || format!("{host}:{port}");
    let own_name = settings.server_name.as_deref().unwrap_or(host);
    if let Some(dial) = &settings.dial {
        return match tls {
            Some(tls) => speak_safely(dial(), own_name, &tls, http2, &address()).await,
            None => speak(dial(), http2, host).await,
        };
    }
    let failed = |source| Error::Connect { address: address(), source };
    if let Some(proxy) = proxy {
        let through = through(proxy, settings, (host, port), passes).await;
        let stream = through.map_err(failed)?;
        return match tls {
            Some(tls) => speak_safely(stream, own_name, &tls, http2, &address()).await,
            None => speak(stream, false, &address()).await,
        };
    }
    let (stream, other_name) = reach(host, port, settings).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let Some(tls) = tls else { return speak(stream, false, &address()).await };
    speak_safely(stream, other_name.unwrap_or(own_name), &tls, http2, &address()).await
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection with a place by way of a proxy, or with the proxy if that sends requests on.
async fn through(
    proxy: &proxy::Url,
    settings: &Settings,
    (host, port): (&str, u16),
    passes: bool,
) -> io::Result<Box<dyn Stream>> {
    let reached = TcpStream::connect((&*proxy.host, proxy.port)).await;
    let stream = reached.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("proxyconnect tcp: {}:{}: {error}", proxy.host, proxy.port),
        )
    })?;
    stream.set_nodelay(true)?;
    let mut stream: Box<dyn Stream> = match proxy.kind {
        Kind::Http | Kind::Socks => Box::new(stream),
        Kind::Https => {
            // With what the server is believed by, as Go's transport does it.
            let tls = settings.tls.config().map_err(io::Error::other)?;
            let name = ServerName::try_from(proxy.host.clone()).map_err(io::Error::other)?;
            Box::new(TlsConnector::from(tls).connect(name, stream).await?)
        }
    };
    match proxy.kind {
        Kind::Socks => {
            let connected = proxy::socks(&mut stream, proxy, host, port).await;
            connected.map_err(|error| {
                let (from, to) =
                    (format!("{}:{}", proxy.host, proxy.port), format!("{host}:{port}"));
                io::Error::other(format!("socks connect tcp {from}->{to}: {error}"))
            })?;
        }
        Kind::Http | Kind::Https if passes => {}
        Kind::Http | Kind::Https => proxy::connect(&mut stream, proxy, host, port).await?,
    }
    Ok(stream)
}

/// In TLS, with whoever proves to have this name.
async fn speak_safely<S>(
    stream: S,
    name: &str,
    tls: &ClientConfig,
    http2: bool,
    address: &str,
) -> Result<Sender, Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let name = ServerName::try_from(name.to_owned()).map_err(|e| Error::Tls(e.to_string()))?;
    let mut tls = tls.clone();
    tls.alpn_protocols = match http2 {
        true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        false => vec![b"http/1.1".to_vec()],
    };
    let connector = TlsConnector::from(Arc::new(tls));
    let failed = |source| Error::Connect { address: address.to_owned(), source };
    let stream = connector.connect(name, stream).await.map_err(failed)?;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    speak(stream, is_http2, address).await
}

/// How long one of several servers may take to be reached before the next is tried.
const ONE_OF_SEVERAL: Duration = Duration::from_secs(3);

/// The server, or the first of the others that can be reached, and whom the certificate of that one is to
/// name.
async fn reach<'a>(
    host: &str,
    port: u16,
    settings: &'a Settings,
) -> io::Result<(TcpStream, Option<&'a str>)> {
    let first = async {
        match settings.address {
            Some(real) => TcpStream::connect(real).await,
            None => TcpStream::connect((host, port)).await,
        }
    };
    let Some(others) = &settings.others else { return Ok((first.await?, None)) };
    let too_late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let mut outcome = timeout(ONE_OF_SEVERAL, first).await.map_err(too_late).flatten();
    if let Ok(stream) = outcome {
        return Ok((stream, None));
    }
    for address in (others.addresses)() {
        outcome =
            timeout(ONE_OF_SEVERAL, TcpStream::connect(address)).await.map_err(too_late).flatten();
        if let Ok(stream) = outcome {
            return Ok((stream, Some(&others.server_name)));
        }
    }
    outcome.map(|stream| (stream, None))
}

async fn speak<S>(stream: S, is_http2: bool, address: &str) -> Result<Sender, Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |source| Error::Exchange { address: address.to_owned(), source };
    let stream = TokioIo::new(stream);
    // How a connection ends is told to whoever has a request on it.
    if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW_OF_ALL)
            .keep_alive_interval(SILENT)
            .keep_alive_timeout(UNANSWERED);
        let (sender, connection) = builder.handshake(stream).await.map_err(failed)?;
        tokio::spawn(connection);
        return Ok(Sender::Http2(sender, Arc::default()));
    }
    let (mut sender, connection) = http1::handshake(stream).await.map_err(failed)?;
    tokio::spawn(connection.with_upgrades());
    sender.ready().await.map_err(failed)?;
    Ok(Sender::Http1(sender))
}
