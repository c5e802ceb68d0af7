//! Health and metrics for people and their tools: a few pages over plain HTTP.
//!
//! Whoever comes by the network stays a stranger: there is so much room and no more ([`crate::strangers`]), and
//! nobody stays for long.
use crate::context::Context;
use crate::strangers::Strangers;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use http::{Response, StatusCode, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;

/// A page of Prometheus' text.
pub const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
pub const TEXT: &str = "text/plain; charset=utf-8";
pub const JSON: &str = "application/json";

/// Who sends no request in this time is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Page {
    pub code: u16,
    pub content_type: &'static str,
    pub body: String,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
}

impl Page {
    pub fn new(code: u16, content_type: &'static str, body: impl Into<String>) -> Page {
        Page { code, content_type, body: body.into(), headers: Vec::new() }
    }

    pub fn ok(body: impl Into<String>) -> Page {
        Page::new(200, TEXT, body)
    }

    pub fn not_found() -> Page {
        Page::new(404, TEXT, "404 page not found\n")
    }
}

/// What somebody asks for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub path: &'a str,
    /// The header of that name: the forms that they would like it in.
    pub accept: &'a str,
}

/// Answers every request, until the context stops.
pub async fn serve(
    context: Context,
    listener: TcpListener,
    page: impl Fn(Asked<'_>) -> Page + Send + Sync + 'static,
) {
    accept(context, listener, None, everybody(), Arc::new(page)).await;
}

/// The same at a path of the machine, for whoever may open it.
pub async fn serve_local(
    context: Context,
    listener: UnixListener,
    page: impl Fn(Asked<'_>) -> Page + Send + Sync + 'static,
) {
    let page: Pages = Arc::new(page);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) if !context.sleep(Duration::from_millis(100)).await => return,
                Err(_) => continue,
            },
            () = context.stopped() => return,
        };
        let (context, page) = (context.clone(), page.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = talk(stream, Vec::new(), everybody(), page) => {}
                () = context.stopped() => {}
            }
        });
    }
}

/// What somebody shows who asks for a page.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    pub token: Option<&'a str>,
    /// Their own certificate first. They have its key; whether anybody who is believed has signed it is not
    /// known yet.
    pub certificates: &'a [CertificateDer<'static>],
}

/// Who may see a page: its path and what was shown for it; a refusal is a page too.
pub type Guard = Arc<dyn Fn(&str, Shown<'_>) -> BoxFuture<'static, Result<(), Page>> + Send + Sync>;

/// The same over TLS, for those whom a guard lets in.
pub async fn serve_guarded(
    context: Context,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    guard: Guard,
    page: impl Fn(Asked<'_>) -> Page + Send + Sync + 'static,
) {
    accept(context, listener, Some(tls.into()), guard, Arc::new(page)).await;
}

fn everybody() -> Guard {
    Arc::new(|_, _| std::future::ready(Ok(())).boxed())
}

type Pages = Arc<dyn Fn(Asked<'_>) -> Page + Send + Sync>;

async fn accept(
    context: Context,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    guard: Guard,
    page: Pages,
) {
    let strangers = Arc::new(Strangers::default());
    loop {
        let next = async { (strangers.admit().await, listener.accept().await) };
        let (stranger, stream) = tokio::select! {
            (stranger, accepted) = next => match accepted {
                Ok((stream, _)) => (stranger, stream),
                // No descriptors are left: somebody has to end first.
                Err(_) if !context.sleep(Duration::from_millis(100)).await => return,
                Err(_) => continue,
            },
            () = context.stopped() => return,
        };
        let (context, tls) = (context.clone(), tls.clone());
        let (guard, page) = (guard.clone(), page.clone());
        tokio::spawn(async move {
            let connection = async {
                match tls {
                    None => talk(stream, Vec::new(), guard, page).await,
                    Some(tls) => {
                        // Whoever does not greet in time is not waited for.
                        let greeting = tokio::time::timeout(PATIENCE, tls.accept(stream)).await;
                        if let Ok(Ok(stream)) = greeting {
                            let shown = stream.get_ref().1.peer_certificates();
                            let certificates = shown.unwrap_or_default().to_vec();
                            talk(stream, certificates, guard, page).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = connection => {}
                () = stranger.shown_out() => {}
                () = context.stopped() => {}
            }
        });
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    certificates: Vec<CertificateDer<'static>>,
    guard: Guard,
    page: Pages,
) {
    let respond = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let path = request.uri().path().to_owned();
        let header = request.headers().get(header::AUTHORIZATION);
        let token = header.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let shown = Shown { token, certificates: &certificates };
        let (allowed, page) = (guard(&path, shown), page.clone());
        let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let accept = accept.unwrap_or_default().to_owned();
        async move {
            let page = match allowed.await {
                Ok(()) => page(Asked { path: &path, accept: &accept }),
                Err(refusal) => refusal,
            };
            Ok::<_, Infallible>(response(page))
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    // A client that goes away is no concern of ours.
    let _ = http.serve_connection(TokioIo::new(stream), respond).await;
}

fn response(page: Page) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(page.body));
    *response.status_mut() =
        StatusCode::from_u16(page.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(page.content_type));
    for (name, value) in page.headers {
        if let Ok(value) = value.parse() {
            headers.insert(name, value);
        }
    }
    response
}
