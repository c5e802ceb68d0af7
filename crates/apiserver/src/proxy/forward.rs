//! One request passed on, and its answer passed back.
use super::Location;
use crate::answer::{Answer, Body};
use api::status::Status;
use http::header::{self, HeaderName};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long the other end has to take a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Headers that concern one connection, not the request.
const HOP: &[HeaderName] = &[
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub async fn forward(location: Location, mut request: Request<Incoming>) -> Result<Answer, Status> {
    let peer = format!("{}:{}", location.host, location.port);
    let failed = |error: &dyn std::fmt::Display| {
        Status::service_unavailable(format!(
            "error trying to reach service: dial tcp {peer}: {error}"
        ))
    };
    let stream = match tokio::time::timeout(CONNECT, connect(&location)).await {
        Ok(stream) => stream.map_err(|error| failed(&error))?,
        Err(_) => return Err(failed(&"i/o timeout")),
    };
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a proxied connection ended");
        }
    });
    let upgrade = upgrade_of(request.headers());
    let ours = hyper::upgrade::on(&mut request);
    let outgoing = outgoing(request, &location, upgrade.as_deref())?;
    let mut answer = sender.send_request(outgoing).await.map_err(|error| failed(&error))?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS && upgrade.is_some() {
        let theirs = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) else { return };
            // Either end may go at any time: that is how streams end.
            let _ = copy_bidirectional(&mut TokioIo::new(ours), &mut TokioIo::new(theirs)).await;
        });
        let (mut head, _) = answer.into_parts();
        head.version = http::Version::HTTP_11;
        return Ok(Answer::from_parts(head, crate::answer::empty()));
    }
    let (mut head, body) = answer.into_parts();
    for name in HOP {
        head.headers.remove(name);
    }
    head.version = http::Version::default();
    let body: Body = body.map_err(io::Error::other).boxed();
    Ok(Answer::from_parts(head, body))
}

async fn connect(location: &Location) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect((location.host.as_str(), location.port)).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = &location.tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(location.host.clone()).map_err(io::Error::other)?;
    let config = tls.config().map_err(io::Error::other)?;
    Ok(Box::new(TlsConnector::from(config).connect(name, stream).await?))
}

/// The protocol that the client wants to go on with.
fn upgrade_of(headers: &HeaderMap) -> Option<String> {
    let connection = headers.get(header::CONNECTION)?.to_str().ok()?;
    connection.to_ascii_lowercase().contains("upgrade").then_some(())?;
    Some(headers.get(header::UPGRADE)?.to_str().ok()?.to_owned())
}

/// The request as the other end gets it: without what was meant for us alone.
fn outgoing(
    request: Request<Incoming>,
    location: &Location,
    upgrade: Option<&str>,
) -> Result<Request<Incoming>, Status> {
    let (mut head, body) = request.into_parts();
    head.uri = location
        .path
        .parse::<Uri>()
        .map_err(|error| Status::bad_request(format!("invalid path: {error}")))?;
    head.version = http::Version::HTTP_11;
    head.extensions.clear();
    for name in HOP {
        head.headers.remove(name);
    }
    // The client's right to talk to us is nobody else's business, nor whom it acts as.
    head.headers.remove(header::AUTHORIZATION);
    let acting: Vec<HeaderName> = head
        .headers
        .keys()
        .filter(|name| name.as_str().starts_with("impersonate-"))
        .cloned()
        .collect();
    for name in acting {
        head.headers.remove(name);
    }
    let host = match location.host.contains(':') {
        true => format!("[{}]:{}", location.host, location.port),
        false => format!("{}:{}", location.host, location.port),
    };
    let text = |value: &str| {
        value.parse().map_err(|_| Status::bad_request("a header cannot be passed on"))
    };
    head.headers.insert(header::HOST, text(&host)?);
    if let Some(upgrade) = upgrade {
        head.headers.insert(header::CONNECTION, text("Upgrade")?);
        head.headers.insert(header::UPGRADE, text(upgrade)?);
    }
    Ok(Request::from_parts(head, body))
}
