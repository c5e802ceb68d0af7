//! HTTPS: HTTP/1.1 and HTTP/2 on one port, whatever certificate a client shows is looked at.
//!
//! No connection is held for nothing: one without a request for a while is closed, and what a stranger
//! may have us hold before he has said who he is is bounded, for each ([`MAX_HEAD`], [`WINDOW`]) and
//! for all together ([`Strangers`]).
use crate::authn::{Peer, User};
use crate::gathered::Gathered;
use crate::holding;
use crate::resources::ApiServer;
use crate::serve::serve;
use crate::strangers::{Stranger, Strangers};
use crate::turns::{InLane, Lane, Paced, Turns};
use http::Request;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

/// How long requests that are under way may take once the server stops.
const DRAIN: Duration = Duration::from_secs(10);
/// A client has so long for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A client has so long to send the head of a request: one that trickles holds nothing up.
const HEAD: Duration = Duration::from_secs(32);
/// A connection without a request is closed after so long: upstream's limit.
const IDLE: Duration = Duration::from_secs(90);

/// What the head of a request may weigh. Upstream takes 1 MB, of everybody; no token comes near this.
const MAX_HEAD: u32 = 128 << 10;
/// What a client may send of its bodies before they are read.
const WINDOW: u32 = 64 << 10;
/// What one connection may have under way; a client with more watches opens another.
const MAX_STREAMS: u32 = 1000;
/// What is made of an answer before the client has taken what was made before.
const MAX_UNSENT: usize = 128 << 10;

/// One connection, as its requests see it.
pub struct Connection {
    /// What its other end has proved.
    pub peer: Peer,
    /// Whose turns it takes.
    pub lane: InLane,
    pub(crate) stranger: Stranger,
    activity: Activity,
}

fn builder(executor: InLane, http2: Option<bool>) -> auto::Builder<InLane> {
    let mut builder = auto::Builder::new(executor);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(30))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(2 * WINDOW)
        .max_header_list_size(MAX_HEAD)
        .max_send_buf_size(MAX_UNSENT)
        .max_concurrent_streams(MAX_STREAMS);
    match http2 {
        // The handshake has agreed on one: to wait for the first bytes would be to wait for a client.
        Some(true) => builder.http2_only(),
        Some(false) => builder.http1_only(),
        None => builder,
    }
}

/// Connections to one API server, from the network and from within the process.
#[derive(Clone)]
pub struct Connections {
    api: ApiServer,
    turns: Turns,
    strangers: Arc<Strangers>,
}

impl Connections {
    pub fn new(api: ApiServer) -> Connections {
        Connections { api, turns: Turns::start(), strangers: Arc::default() }
    }

    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    /// Serves until [`ApiServer::stop`], then lets what is under way finish.
    pub async fn listen(&self, listener: TcpListener, tls: Arc<ServerConfig>) {
        let acceptor = TlsAcceptor::from(tls);
        // Whoever holds a sender is still here.
        let (here, mut all_gone) = mpsc::channel::<()>(1);
        loop {
            let accepting = async {
                let stranger = self.strangers.admit().await;
                (listener.accept().await, stranger)
            };
            let (accepted, stranger) = tokio::select! {
                () = self.api.stopping() => break,
                accepted = accepting => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, mostly: let some connections end first.
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let lane = Arc::new(Lane::default());
            let (api, acceptor, here) = (self.api.clone(), acceptor.clone(), here.clone());
            let in_lane = self.turns.in_lane(lane.clone());
            self.turns.spawn(lane, async move {
                Box::pin(connect(api, acceptor, stream, address, in_lane, stranger)).await;
                drop(here);
            });
        }
        drop(here);
        let _ = tokio::time::timeout(DRAIN, all_gone.recv()).await;
        self.api.audit().flush().await;
    }

    /// A connection of somebody in this very process: who it is has been said, and nothing of it
    /// is seen by anybody else, so it needs neither certificate nor TLS. All else is as for everybody.
    pub fn within(&self, user: User) -> DuplexStream {
        let (theirs, ours) = tokio::io::duplex(MAX_UNSENT);
        let lane = Arc::new(Lane::default());
        let in_lane = self.turns.in_lane(lane.clone());
        let (api, strangers) = (self.api.clone(), self.strangers.clone());
        self.turns.spawn(lane, async move {
            let stranger = strangers.admit().await;
            stranger.is_known();
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let server = builder(in_lane.clone(), None);
            let peer = Peer::within(user);
            Box::pin(talk(api, server, ours, address, peer, in_lane, stranger)).await;
        });
        theirs
    }
}

/// One connection, from its handshake to its end.
async fn connect(
    api: ApiServer,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
    lane: InLane,
    stranger: Stranger,
) {
    let stream = tokio::select! {
        () = stranger.shown_out() => return,
        accepted = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)) => match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%address, %error, "TLS handshake failed"),
            Err(_) => return tracing::debug!(%address, "TLS handshake took too long"),
        },
    };
    let session = stream.get_ref().1;
    let http2 = session.alpn_protocol() == Some(b"h2");
    let peer = api.authentication().peer(session.peer_certificates());
    let server = builder(lane.clone(), Some(http2));
    let stream = Paced::new(Gathered::new(stream));
    talk(api, server, stream, address, peer, lane, stranger).await;
}

/// The requests of a connection whose other end is known as far as it ever will be.
async fn talk(
    api: ApiServer,
    server: auto::Builder<InLane>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    address: SocketAddr,
    peer: Peer,
    lane: InLane,
    stranger: Stranger,
) {
    let activity = Activity::default();
    let connection = Arc::new(Connection { peer, lane, stranger, activity });
    let service = {
        let (api, connection) = (api.clone(), connection.clone());
        service_fn(move |mut request: Request<Incoming>| {
            let (api, connection) = (api.clone(), connection.clone());
            request.extensions_mut().insert(address);
            async move {
                let under_way = Activity::begin(&connection);
                let answer = serve(api, &connection, request).await;
                // A stream goes on for as long as it is sent.
                Ok::<_, Infallible>(match answer.body().size_hint().exact() {
                    Some(_) => answer,
                    None => holding::until_sent(answer, under_way),
                })
            }
        })
    };
    let mut serving = pin!(server.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = connection.stranger.shown_out() => return,
        () = connection.activity.ceased() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
        () = api.stopping() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%address, %error, "connection ended");
    }
}

/// Whether anything goes on on a connection.
#[derive(Default)]
struct Activity {
    begun: AtomicUsize,
    under_way: AtomicUsize,
}

struct UnderWay(Arc<Connection>);

impl Activity {
    fn begin(connection: &Arc<Connection>) -> UnderWay {
        connection.activity.begun.fetch_add(1, Relaxed);
        connection.activity.under_way.fetch_add(1, Relaxed);
        UnderWay(connection.clone())
    }

    /// Until nothing was asked for a while and nothing is being answered.
    async fn ceased(&self) {
        loop {
            let before = self.begun.load(Relaxed);
            tokio::time::sleep(IDLE).await;
            if self.begun.load(Relaxed) == before && self.under_way.load(Relaxed) == 0 {
                return;
            }
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.activity.under_way.fetch_sub(1, Relaxed);
    }
}
