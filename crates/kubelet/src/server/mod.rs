//! The kubelet's own API, on port 10250: what the API server asks for on behalf of clients (logs,
//! exec, attach, port-forward) and what monitoring asks for (stats, metrics, pods).
//!
//! ```text
//!  connection ─► auth: who is it, may it ─► route ─┬─► logs     files of the node → lines
//!      (TLS)       (TokenReview,                   ├─► stream   a pipe to the runtime's streams
//!                   SubjectAccessReview)           ├─► pods     what runs here, as lists
//!                                                  ├─► stats    cpu, memory, disk, network
//!                                                  ├─► metrics  the same as Prometheus reads it
//!                                                  └─► files    the machine's own logs
//! ```
//! Paths, parameters and messages are those of upstream's `pkg/kubelet/server`. Whoever has not been let in
//! shares a bounded room with others of whom that is true ([`client::strangers`]).
mod answer;
mod auth;
mod cadvisor;
mod checkpoint;
mod configz;
mod files;
mod logs;
mod metrics;
mod pods;
mod query;
mod route;
mod stats;
mod stream;

pub use auth::{Authorization, Believes};
pub use checkpoint::FOLDER as CHECKPOINTS;
pub use metrics::Counters;
pub(crate) use stats::value;

use crate::worker::Kubelet;
use answer::Reply;
use auth::{Asking, Auth};
use client::Context;
use client::strangers::{Stranger, Strangers};
use client::zpages::Zpages;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// How long a client may take to say who it is.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A client has so long to send the head of a request that it has begun.
const HEAD: Duration = Duration::from_secs(32);
/// What that head may weigh.
const MAX_HEAD: u32 = 64 << 10;
/// A client that is silent over HTTP/2 is asked whether it is still there.
const SILENT: Duration = Duration::from_secs(30);
const UNANSWERED: Duration = Duration::from_secs(30);
/// What one connection may have under way over HTTP/2: what Go's server, which is upstream's, allows.
const STREAMS: u32 = 250;
/// What a client may send before it is read: no request here has a body that anybody reads.
const WINDOW: u32 = 64 << 10;
/// A pause after a connection could not be taken: the process has no files left.
const PAUSE: Duration = Duration::from_millis(100);

/// How the kubelet is reached.
#[derive(Clone)]
pub struct ServerConfig {
    pub address: IpAddr,
    /// 0 takes a free one; the Node says which.
    pub port: u16,
    /// With the kubelet's certificate. Clients may show one of their own.
    pub tls: Arc<rustls::ServerConfig>,
    /// Whether a client's certificate is of the CA that clients' certificates are of; without one
    /// nobody is known by a certificate.
    pub believes: Option<Believes>,
    pub anonymous_auth: bool,
    pub authorization: Authorization,
    /// Whether the API server is asked whose a token is.
    pub token_webhook: bool,
    /// Without TLS and without asking who it is: `/healthz`. `None` for none.
    pub healthz_port: Option<u16>,
    pub healthz_address: IpAddr,
    /// Without TLS and without asking who it is: pods, stats and metrics. `None` for none.
    pub read_only_port: Option<u16>,
    /// Whether commands can be run in containers, and logs and what runs be read.
    pub debugging_handlers: bool,
    /// Files of `/var/log` at `/logs/`.
    pub system_log_handler: bool,
    /// Journals of the machine's services at `/logs/?query=`.
    pub system_log_query: bool,
}

impl ServerConfig {
    /// Upstream's defaults.
    pub fn new(tls: Arc<rustls::ServerConfig>, believes: Option<Believes>) -> ServerConfig {
        ServerConfig {
            address: Ipv4Addr::UNSPECIFIED.into(),
            port: 10250,
            tls,
            believes,
            anonymous_auth: false,
            authorization: Authorization::Webhook,
            token_webhook: true,
            healthz_port: Some(10248),
            healthz_address: Ipv4Addr::LOCALHOST.into(),
            read_only_port: None,
            debugging_handlers: true,
            system_log_handler: true,
            system_log_query: false,
        }
    }
}

impl std::fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.address, self.port)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("failed to listen on {address}: is another kubelet running?")]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// Sockets that listen and are not served yet.
pub struct Server {
    config: ServerConfig,
    secure: TcpListener,
    healthz: Option<TcpListener>,
    read_only: Option<TcpListener>,
    port: u16,
}

/// Which of the sockets was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Secure,
    ReadOnly,
    Health,
}

impl Server {
    pub async fn bind(config: &ServerConfig) -> Result<Server, ListenError> {
        let listen = async |ip: IpAddr, port: u16| {
            let address = SocketAddr::new(ip, port);
            TcpListener::bind(address).await.map_err(|source| ListenError { address, source })
        };
        let secure = listen(config.address, config.port).await?;
        let port = secure.local_addr().map_or(config.port, |address| address.port());
        let healthz = match config.healthz_port {
            Some(port) => Some(listen(config.healthz_address, port).await?),
            None => None,
        };
        let read_only = match config.read_only_port {
            Some(port) => Some(listen(config.address, port).await?),
            None => None,
        };
        Ok(Server { config: config.clone(), secure, healthz, read_only, port })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Serves until the context stops.
    pub(crate) async fn serve(self, kubelet: Arc<Kubelet>) {
        let context = kubelet.context.clone();
        let auth = Auth::new(&self.config, &kubelet);
        let flags = kubelet.config.flags.clone();
        let zpages = Zpages::new("kubelet", route::PATHS, flags, context.now());
        let shared = Arc::new(Shared { kubelet, auth, config: self.config, zpages });
        let plain = async |listener: Option<TcpListener>, door| match listener {
            Some(listener) => {
                accept(&context, listener, |stream, stranger| {
                    tokio::spawn(converse(shared.clone(), stream, door, None, stranger));
                })
                .await
            }
            None => context.stopped().await,
        };
        let secure = accept(&context, self.secure, |stream, stranger| {
            tokio::spawn(greet(shared.clone(), stream, stranger));
        });
        tokio::join!(
            secure,
            plain(self.healthz, Door::Health),
            plain(self.read_only, Door::ReadOnly)
        );
    }
}

struct Shared {
    kubelet: Arc<Kubelet>,
    auth: Auth,
    config: ServerConfig,
    zpages: Zpages,
}

async fn accept(context: &Context, listener: TcpListener, take: impl Fn(TcpStream, Stranger)) {
    let strangers = Arc::new(Strangers::default());
    loop {
        let next = async { (strangers.admit().await, listener.accept().await) };
        let (stranger, accepted) = tokio::select! {
            () = context.stopped() => return,
            next = next => next,
        };
        match accepted {
            Ok((stream, _)) => {
                // Keys that are typed in an exec are not to wait for more of them.
                let _ = stream.set_nodelay(true);
                take(stream, stranger);
            }
            Err(error) => {
                tracing::warn!("failed to take a connection: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn greet(shared: Arc<Shared>, stream: TcpStream, stranger: Stranger) {
    let acceptor = tokio_rustls::TlsAcceptor::from(shared.config.tls.clone());
    let greeting = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream));
    let stream = tokio::select! {
        () = stranger.shown_out() => return,
        greeted = greeting => match greeted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!("a TLS handshake failed: {error}"),
            Err(_) => return,
        },
    };
    let session = stream.get_ref().1;
    let proved = Proved {
        certificates: session.peer_certificates().unwrap_or_default().to_vec(),
        http2: session.alpn_protocol() == Some(b"h2"),
    };
    converse(shared, stream, Door::Secure, Some(proved), stranger).await;
}

/// What a handshake has shown.
struct Proved {
    certificates: auth::Certificates,
    http2: bool,
}

/// Which protocol it is, is agreed on before: to wait for the first bytes would be to wait for a client.
fn builder(http2: bool) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(SILENT))
        .keep_alive_timeout(UNANSWERED)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(2 * WINDOW)
        .max_header_list_size(MAX_HEAD)
        .max_concurrent_streams(STREAMS);
    if http2 { builder.http2_only() } else { builder.http1_only() }
}

async fn converse(
    shared: Arc<Shared>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    door: Door,
    proved: Option<Proved>,
    stranger: Stranger,
) {
    let http2 = proved.as_ref().is_some_and(|proved| proved.http2);
    let shown = Arc::new(proved.map(|proved| proved.certificates).unwrap_or_default());
    let context = shared.kubelet.context.clone();
    let stranger = Arc::new(stranger);
    let respond = service_fn({
        let stranger = stranger.clone();
        move |request| {
            let (shared, shown, stranger) = (shared.clone(), shown.clone(), stranger.clone());
            async move { Ok::<_, Infallible>(respond(shared, &shown, door, request, &stranger).await) }
        }
    });
    let builder = builder(http2);
    let conversation = builder.serve_connection_with_upgrades(TokioIo::new(stream), respond);
    tokio::select! {
        () = context.stopped() => {}
        () = stranger.shown_out() => {}
        ended = conversation => if let Err(error) = ended {
            tracing::debug!("a connection failed: {error}");
        },
    }
}

/// One request, start to finish.
async fn respond(
    shared: Arc<Shared>,
    shown: &auth::Certificates,
    door: Door,
    request: Request<Incoming>,
    stranger: &Stranger,
) -> Reply {
    if door == Door::Secure {
        let asking = Asking { method: request.method(), path: request.uri().path() };
        let user = match shared.auth.identify(shown, request.headers()).await {
            Some(user) => user,
            None => return answer::text(StatusCode::UNAUTHORIZED, "Unauthorized"),
        };
        if let Err(refusal) = shared.auth.check(&user, &asking).await {
            return refusal.into();
        }
        // Whoever may ask something here, and not just whoever has a token: every pod has one.
        stranger.is_known();
    }
    Box::pin(route::route(&shared, door, request)).await.unwrap_or_else(Reply::from)
}
