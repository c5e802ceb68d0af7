//! HTTPS: HTTP/1.1 and HTTP/2 on one port, whatever certificate a client shows is looked at.
//!
//! No connection is held for nothing: one without a request for a while is closed, and what a stranger
//! may have us hold before he has said who he is is bounded, for each ([`MAX_HEAD`], [`WINDOW`]) and
//! for all together ([`Strangers`]).
use crate::answer::gathered::Gathered;
use crate::answer::holding;
use crate::doors::serve::serve;
use crate::ground::turns::{InLane, Lane, Paced, Turns};
use crate::guard::authn::{Peer, User};
use crate::server::ApiServer;
use client::strangers::{Stranger, Strangers};
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
use tokio::net::TcpListener;
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
            self.take(&acceptor, stream, address, stranger, here.clone());
        }
        drop(here);
        let _ = tokio::time::timeout(DRAIN, all_gone.recv()).await;
        self.api.audit().flush().await;
    }

    /// Has a connection take its turns until it ends, and holds `here` until then.
    fn take(
        &self,
        acceptor: &TlsAcceptor,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        address: SocketAddr,
        stranger: Stranger,
        here: impl Send + 'static,
    ) {
        let lane = Arc::new(Lane::default());
        let (api, acceptor) = (self.api.clone(), acceptor.clone());
        let in_lane = self.turns.in_lane(lane.clone());
        self.turns.spawn(lane, async move {
            Box::pin(connect(api, acceptor, stream, address, in_lane, stranger)).await;
            drop(here);
        });
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
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
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
            // In a place of its own: what serves a request is large, and the protocol hands it on.
            Box::pin(async move {
                let under_way = Activity::begin(&connection);
                let answer = serve(api, &connection, request).await;
                // A stream goes on for as long as it is sent.
                Ok::<_, Infallible>(match answer.body().size_hint().exact() {
                    Some(_) => answer,
                    None => holding::until_sent(answer, under_way),
                })
            })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::pki;
    use crate::ground::tls;
    use crate::ground::towards::Anyone;
    use crate::testing::Server;
    use hyper::client::conn::http2;
    use rustls::ClientConfig;
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;

    /// What is looked at every [`IDLE`] is over after two of them, and what is left may be drained.
    const OVER: Duration = Duration::from_secs(2 * 90 + 10);

    struct Door {
        connections: Connections,
        acceptor: TlsAcceptor,
    }

    impl Door {
        fn knock(&self, stranger: Stranger) -> DuplexStream {
            let (theirs, ours) = tokio::io::duplex(64 << 10);
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            self.connections.take(&self.acceptor, ours, address, stranger, ());
            theirs
        }

        /// A client that has agreed on this protocol, and has said nothing in it yet.
        async fn agreed(&self, stranger: Stranger, protocol: &str) -> TlsStream<DuplexStream> {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let mut config = ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .expect("versions")
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
                .with_no_client_auth();
            config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
            let name = ServerName::try_from("localhost").expect("a name");
            let connector = TlsConnector::from(Arc::new(config));
            connector.connect(name, self.knock(stranger)).await.expect("a handshake")
        }
    }

    /// Reads until the other end hangs up, which must be soon enough.
    async fn ends(what: &str, mut stream: impl AsyncRead + Unpin) {
        let begun = Instant::now();
        let mut heard = Vec::new();
        // Whether it says farewell or just goes does not matter.
        let ended = tokio::time::timeout(2 * OVER, stream.read_to_end(&mut heard)).await;
        assert!(ended.is_ok() && begun.elapsed() <= OVER, "{what}: {:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn no_connection_is_held_for_nothing() {
        let server = Server::start().await;
        let folder = tempfile::TempDir::new().expect("a folder");
        let pair = pki::self_signed(folder.path(), "tls", &["localhost".into()]).expect("a pair");
        let config = tls::server(&pair, &[]).expect("a configuration");
        let connections = Connections::new(server.api.clone());
        let door = Door { connections: connections.clone(), acceptor: TlsAcceptor::from(config) };
        let stranger = || connections.strangers.admit();
        // Only from here on: a cluster that begins waits for its disk, not for the clock.
        tokio::time::pause();

        ends("no handshake", door.knock(stranger().await)).await;
        let mut half = door.knock(stranger().await);
        half.write_all(&[22, 3, 1, 2, 0, 1]).await.expect("it is heard");
        ends("half a handshake", half).await;
        for (protocol, said) in [
            ("http/1.1", ""),
            ("http/1.1", "GET /version HTTP/1.1\r\nHo"),
            ("http/1.1", "GET /version HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("h2", ""),
            ("h2", "PRI * HTTP"),
            ("h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
            ("h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
        ] {
            let mut stream = door.agreed(stranger().await, protocol).await;
            stream.write_all(said.as_bytes()).await.expect("it is heard");
            stream.flush().await.expect("it is sent");
            ends(&format!("{protocol}: {said:?}"), stream).await;
        }
        // One that keeps the protocol, answers every ping and asks nothing.
        let stream = TokioIo::new(door.agreed(stranger().await, "h2").await);
        let executor = hyper_util::rt::TokioExecutor::new();
        let (_sender, connection) =
            http2::handshake::<_, _, http_body_util::Empty<bytes::Bytes>>(executor, stream)
                .await
                .expect("a connection");
        let begun = Instant::now();
        let ended = tokio::time::timeout(2 * OVER, connection).await;
        assert!(ended.is_ok() && begun.elapsed() <= OVER, "{:?}", begun.elapsed());
        // Nor within the process, where both protocols may come.
        for said in ["", "PRI * HTTP", "GET /version HTTP/1.1\r\nHo"] {
            let mut stream = connections.within(User::default());
            stream.write_all(said.as_bytes()).await.expect("it is heard");
            ends(&format!("within: {said:?}"), stream).await;
        }
    }
}
