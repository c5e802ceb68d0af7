//! A way through which a server reaches this machine though it cannot dial it.
//!
//! The machine dials the server, which turns the connection round: it asks for connections on it (`CONNECT`,
//! over HTTP/2), and each becomes one to the one place here that the way is for. What is said on them is
//! between the two ends, TLS included.
use crate::context::Context;
use crate::https::Https;
use api::status::Status;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Where a server is asked to turn a connection round, and what it becomes.
pub const PATH: &str = "/skiff/tunnel";
pub const PROTOCOL: &str = "skiff-tunnel";

/// Connections at once.
const MOST: u32 = 512;
/// A silent way is asked whether it is still one; it is none if nothing comes back.
const SILENT: Duration = Duration::from_secs(10);
const UNANSWERED: Duration = Duration::from_secs(10);
const DIAL: Duration = Duration::from_secs(5);
/// The first pause before a way is opened again, and the longest.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Keeps a way open from a server to a place here, until the context stops.
pub async fn keep(context: Context, server: Https, to: SocketAddr) {
    let mut pause = PAUSE;
    while !context.is_stopped() {
        let open = async {
            match open(&server).await {
                Ok(stream) => {
                    tracing::debug!(%to, "a way for the server is open");
                    serve(stream, to).await;
                    true
                }
                Err(status) => {
                    tracing::debug!(failure = status.message, "no way for the server is open");
                    false
                }
            }
        };
        let was_open = tokio::select! {
            was_open = open => was_open,
            () = context.stopped() => return,
        };
        pause = if was_open { PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        // Not all machines at once when a server comes back.
        if !context.sleep(pause.mul_f64(0.5 + context.chance())).await {
            return;
        }
    }
}

async fn open(server: &Https) -> Result<hyper::upgrade::Upgraded, Status> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
    let mut answer = server.upgrade(PATH, headers).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(Status::internal_error(format!("the server answers {}", answer.status())));
    }
    hyper::upgrade::on(&mut answer).await.map_err(Status::internal_error)
}

async fn serve(stream: hyper::upgrade::Upgraded, to: SocketAddr) {
    let respond = service_fn(move |request| async move {
        let mut answer = Response::new(Empty::<Bytes>::new());
        *answer.status_mut() = connect(request, to).await;
        Ok::<_, Infallible>(answer)
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST)
        .keep_alive_interval(SILENT)
        .keep_alive_timeout(UNANSWERED);
    // How it ends does not matter: it is opened again.
    let _ = builder.serve_connection(stream, respond).await;
}

/// Only to the one place, whatever is asked for.
async fn connect(mut request: Request<Incoming>, to: SocketAddr) -> StatusCode {
    if request.method() != Method::CONNECT {
        return StatusCode::METHOD_NOT_ALLOWED;
    }
    if request.uri().port_u16() != Some(to.port()) {
        return StatusCode::FORBIDDEN;
    }
    let Ok(Ok(mut there)) = timeout(DIAL, TcpStream::connect(to)).await else {
        return StatusCode::BAD_GATEWAY;
    };
    let _ = there.set_nodelay(true);
    tokio::spawn(async move {
        if let Ok(here) = hyper::upgrade::on(&mut request).await {
            // Either end may go at any time: that is how connections end.
            let _ = copy_bidirectional(&mut TokioIo::new(here), &mut there).await;
        }
    });
    StatusCode::OK
}
