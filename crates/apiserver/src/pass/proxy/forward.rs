//! One request passed on, and its answer passed back.
use super::Location;
use super::links::{Page, Seen};
use crate::answer::{Answer, Body};
use crate::extend::backend::pool::Dial;
use api::status::Status;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzDecoder, GzEncoder};
use futures_util::StreamExt;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
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

/// What a page may not say: which others may read what it answers here.
const CROSS_ORIGIN: &[HeaderName] = &[
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
];

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub async fn forward(location: Location, mut request: Request<Incoming>) -> Result<Answer, Status> {
    let upgrade = upgrade_of(request.headers());
    let ours = hyper::upgrade::on(&mut request);
    let outgoing = outgoing(request, &location, upgrade.as_deref())?;
    if let (None, Some(pool), Some(tls)) = (&upgrade, &location.pool, &location.tls) {
        let tls = tls.config().map_err(|error| unreached(&error))?;
        let dial =
            Dial { host: &location.host, port: location.port, addresses: location.addresses };
        let sent = pool.send(outgoing, dial, location.host.clone(), tls).await;
        let answer = sent.map_err(|cause| unreached(&cause))?;
        return Ok(incoming(answer, location.seen.as_ref()));
    }
    let peer = location.authority();
    let failed = |error: &dyn Display| unreached(&format_args!("dial tcp {peer}: {error}"));
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
    let answer = answer.map(|body| body.map_err(io::Error::other).boxed());
    Ok(incoming(answer, location.seen.as_ref()))
}

fn unreached(cause: &dyn Display) -> Status {
    Status::service_unavailable(format!("error trying to reach service: {cause}"))
}

/// The answer as our client gets it.
fn incoming(answer: Response<Body>, seen: Option<&Seen>) -> Answer {
    let (mut head, body) = answer.into_parts();
    for name in HOP {
        head.headers.remove(name);
    }
    head.version = http::Version::default();
    let Some(seen) = seen else {
        return Answer::from_parts(head, body);
    };
    for name in CROSS_ORIGIN {
        head.headers.remove(name);
    }
    let text = |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
    let redirect = text(header::LOCATION).map(|address| seen.rewritten(address));
    let media = text(header::CONTENT_TYPE).and_then(|media| media.split(';').next());
    let is_page = media.map(str::trim) == Some("text/html") && !body.is_end_stream();
    let packed = match text(header::CONTENT_ENCODING) {
        None | Some("") => Some(false),
        Some("gzip") => Some(true),
        // What we cannot read goes as it is.
        Some(_) => None,
    };
    if let Some(redirect) = redirect {
        if let Some(address) = redirect.and_then(|address| HeaderValue::try_from(address).ok()) {
            head.headers.insert(header::LOCATION, address);
        }
    } else if let (true, Some(packed)) = (is_page, packed) {
        head.headers.remove(header::CONTENT_LENGTH);
        return Answer::from_parts(head, page(body, Page::new(seen.clone()), packed));
    }
    Answer::from_parts(head, body)
}

/// A page with its links rewritten while it passes.
fn page(body: Body, page: Page, packed: bool) -> Body {
    let gzip = packed.then(|| Box::new(Gzip::default()));
    let state = Some((BodyStream::new(body), page, gzip));
    let pieces = futures_util::stream::unfold(state, |state| async move {
        let (mut body, mut page, mut gzip) = state?;
        let shown = match body.next().await {
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                let shown = match &mut gzip {
                    None => Ok(page.take(&data)),
                    Some(gzip) => gzip.take(&data, &mut page),
                };
                return Some((shown, Some((body, page, gzip))));
            }
            Some(Err(error)) => Err(error),
            None => match gzip {
                None => Ok(page.end()),
                Some(gzip) => gzip.end(page),
            },
        };
        Some((shown, None))
    });
    let frames = pieces.map(|piece| piece.map(|bytes| Frame::data(Bytes::from(bytes))));
    BodyExt::boxed(StreamBody::new(frames))
}

/// A page that comes compressed, and goes so.
struct Gzip {
    unpack: GzDecoder<Vec<u8>>,
    pack: GzEncoder<Vec<u8>>,
}

impl Default for Gzip {
    fn default() -> Gzip {
        let pack = GzEncoder::new(Vec::new(), Compression::fast());
        Gzip { unpack: GzDecoder::new(Vec::new()), pack }
    }
}

impl Gzip {
    fn take(&mut self, data: &[u8], page: &mut Page) -> io::Result<Vec<u8>> {
        // A little at a time: a little may become a thousand times as much.
        for data in data.chunks(1024) {
            self.unpack.write_all(data)?;
            self.pack.write_all(&page.take(&std::mem::take(self.unpack.get_mut())))?;
        }
        Ok(std::mem::take(self.pack.get_mut()))
    }

    fn end(mut self, mut page: Page) -> io::Result<Vec<u8>> {
        let mut shown = page.take(&self.unpack.finish()?);
        shown.extend(page.end());
        self.pack.write_all(&shown)?;
        self.pack.finish()
    }
}

async fn connect(location: &Location) -> io::Result<Box<dyn Stream>> {
    let stream: Box<dyn Stream> = match (&location.way, &location.addresses[..]) {
        (Some(way), _) => Box::new(way.dial(location.port).await?),
        (None, []) => dialled(TcpStream::connect((location.host.as_str(), location.port)).await?)?,
        (None, checked) => dialled(TcpStream::connect(checked).await?)?,
    };
    let Some(tls) = &location.tls else { return Ok(stream) };
    let name = ServerName::try_from(location.host.clone()).map_err(io::Error::other)?;
    let config = tls.config().map_err(io::Error::other)?;
    Ok(Box::new(TlsConnector::from(config).connect(name, stream).await?))
}

fn dialled(stream: TcpStream) -> io::Result<Box<dyn Stream>> {
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
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
) -> Result<Request<Body>, Status> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let client = head.extensions.get::<SocketAddr>().map(|client| client.ip().to_canonical());
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
    crate::guard::authn::remove_credentials(&mut head.headers);
    let text = |value: &str| {
        value.parse().map_err(|_| Status::bad_request("a header cannot be passed on"))
    };
    head.headers.insert(header::HOST, text(&location.authority())?);
    match upgrade {
        Some(upgrade) => {
            head.headers.insert(header::CONNECTION, text("Upgrade")?);
            head.headers.insert(header::UPGRADE, text(upgrade)?);
        }
        None if location.seen.is_some() || location.pool.is_some() => {
            head.headers.insert("x-forwarded-uri", text(&path)?);
            let before = head.headers.get("x-forwarded-for").and_then(|all| all.to_str().ok());
            let all = match (before, client) {
                (Some(before), Some(client)) => Some(format!("{before}, {client}")),
                (None, Some(client)) => Some(client.to_string()),
                (_, None) => None,
            };
            if let Some(all) = all {
                head.headers.insert("x-forwarded-for", text(&all)?);
            }
        }
        None => {}
    }
    Ok(Request::from_parts(head, body.map_err(io::Error::other).boxed()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_compressed_page_is_rewritten_too() {
        let seen = Seen { at: "/at".into(), server: "s".into(), host: "h".into() };
        let text = "<a href=\"/x\">x</a>".repeat(5000);
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(text.as_bytes()).expect("packed");
        let packed = packed.finish().expect("packed");
        for step in [1, 7, packed.len()] {
            let (mut gzip, mut page, mut out) =
                (Gzip::default(), Page::new(seen.clone()), Vec::new());
            for data in packed.chunks(step) {
                out.extend(gzip.take(data, &mut page).expect("a piece"));
            }
            out.extend(gzip.end(page).expect("an end"));
            let mut shown = String::new();
            flate2::read::GzDecoder::new(&*out).read_to_string(&mut shown).expect("gzip");
            assert_eq!(shown, text.replace("/x", "/at/x"), "in steps of {step}");
        }
    }
}
