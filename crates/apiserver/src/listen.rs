//! HTTPS: HTTP/1.1 and HTTP/2 on one port, whatever certificate a client shows is looked at.
use crate::gathered::Gathered;
use crate::resources::ApiServer;
use crate::serve::serve;
use crate::turns::{InLane, Lane, Paced, Turns};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// How long requests that are under way may take once the server stops.
const DRAIN: Duration = Duration::from_secs(10);
/// A client has so long for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A client has so long to send the head of a request: one that trickles holds nothing up.
const HEAD: Duration = Duration::from_secs(32);
/// What the head of a request may weigh: upstream's limit.
const MAX_HEAD: u32 = 1 << 20;
/// What one connection may have under way; a client with more watches opens another.
const MAX_STREAMS: u32 = 1000;

/// What is made of an answer before the client has taken what was made before.
const MAX_UNSENT: usize = 128 << 10;

fn builder(executor: InLane) -> auto::Builder<InLane> {
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
        .max_header_list_size(MAX_HEAD)
        .max_send_buf_size(MAX_UNSENT)
        .max_concurrent_streams(MAX_STREAMS);
    builder
}

/// Serves until [`ApiServer::stop`], then lets what is under way finish.
pub async fn listen(api: ApiServer, listener: TcpListener, tls: Arc<ServerConfig>) {
    let acceptor = TlsAcceptor::from(tls);
    let graceful = Arc::new(GracefulShutdown::new());
    let turns = Turns::start();
    loop {
        let accepted = tokio::select! {
            () = api.stopping() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly: let some connections end first.
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (api, acceptor, watcher) = (api.clone(), acceptor.clone(), graceful.watcher());
        let lane = Arc::new(Lane::default());
        let executor = turns.in_lane(lane.clone());
        turns.spawn(lane.clone(), async move {
            let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake failed"),
                Err(_) => return tracing::debug!(%peer, "TLS handshake took too long"),
            };
            let certificates = stream.get_ref().1.peer_certificates();
            let connection = Arc::new(api.authentication().peer(certificates));
            let service = service_fn(move |mut request: Request<Incoming>| {
                let (api, connection, lane) = (api.clone(), connection.clone(), lane.clone());
                request.extensions_mut().insert(peer);
                async move { Ok::<_, Infallible>(serve(api, &connection, &lane, request).await) }
            });
            let server = builder(executor);
            let stream = TokioIo::new(Paced::new(Gathered::new(stream)));
            let connection = server.serve_connection_with_upgrades(stream, service);
            if let Err(error) = watcher.watch(connection.into_owned()).await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
    }
    if let Ok(graceful) = Arc::try_unwrap(graceful) {
        let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
    }
    api.audit().flush().await;
}
