//! Asking by HTTP: probes follow where they are sent as long as it is the same host, and trust whoever answers
//! (`pkg/probe/http` upstream).
use super::{ANSWER, Outcome, Target};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{HTTPGetAction, HTTPHeader};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Most places that a question is sent on to: upstream's.
const REDIRECTS: usize = 10;
/// What Go says of a server that does not speak TLS.
const PLAIN: &str = "http: server gave HTTP response to HTTPS client";

/// Where a question goes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub is_https: bool,
    pub host: String,
    pub port: u16,
    /// With the query.
    pub path: String,
}

/// What came back.
pub(super) struct Reply {
    pub code: u16,
    pub location: Option<String>,
    pub body: String,
}

impl Target {
    pub async fn http(&self, action: &HTTPGetAction, timeout: Duration, agent: &str) -> Outcome {
        let place = match self.place(action) {
            Ok(place) => place,
            Err(why) => return Outcome::Unknown(why),
        };
        let headers = action.http_headers.as_deref().unwrap_or_default();
        let asking = tokio::time::timeout(timeout, Box::pin(follow(&place, headers, agent)));
        match asking.await {
            Ok(Ok(reply)) => judge(reply),
            Ok(Err(why)) => Outcome::Failure(why),
            Err(_) => Outcome::Failure(format!(
                "{}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
                place.get()
            )),
        }
    }

    pub(super) fn place(&self, action: &HTTPGetAction) -> Result<Place, String> {
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(&self.ip);
        let path = action.path.as_deref().unwrap_or_default();
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Place {
            is_https: action.scheme.as_deref() == Some("HTTPS"),
            host: host.to_owned(),
            port: self.port(&action.port)?,
            path: format!("{slash}{path}"),
        })
    }
}

fn judge(reply: Reply) -> Outcome {
    match reply.code {
        200..=299 => Outcome::Success(reply.body),
        300..=399 => {
            Outcome::Warning(format!("Probe terminated redirects, Response body: {}", reply.body))
        }
        // The body is not told: what a server says of itself is not for all who see events.
        code => Outcome::Failure(format!("HTTP probe failed with statuscode: {code}")),
    }
}

/// The last answer on the way, which is where another host begins.
pub(super) async fn follow(
    first: &Place,
    headers: &[HTTPHeader],
    agent: &str,
) -> Result<Reply, String> {
    let (mut place, mut named) = (first.clone(), true);
    for _ in 0..REDIRECTS {
        let reply = ask(&place, headers, agent, named).await?;
        let sends_on = matches!(reply.code, 301 | 302 | 303 | 307 | 308);
        let location = reply.location.clone().filter(|location| sends_on && !location.is_empty());
        let Some(location) = location else { return Ok(reply) };
        let Some((next, is_absolute)) = place.resolve(&location) else {
            return Err(format!("{}: failed to parse Location header {location:?}", place.get()));
        };
        if next.host != first.host {
            return Ok(reply);
        }
        // A name that the probe gave the server is for its own paths.
        named &= !is_absolute;
        place = next;
    }
    Err(format!("{}: stopped after {REDIRECTS} redirects", place.get()))
}

impl Place {
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// `Get "http://10.0.0.5:80/"`, as Go begins what it says of a failure.
    fn get(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        format!("Get \"{scheme}://{}{}\"", self.authority(), self.path)
    }

    /// Where a `Location` leads, and whether it names a host.
    fn resolve(&self, location: &str) -> Option<(Place, bool)> {
        let location = location.split('#').next().unwrap_or_default();
        let absolute = match location.strip_prefix("//") {
            Some(rest) => format!("{}://{rest}", if self.is_https { "https" } else { "http" }),
            None => location.to_owned(),
        };
        if absolute.contains("://") && !location.starts_with('/') || location.starts_with("//") {
            let uri: http::Uri = absolute.parse().ok()?;
            let is_https = match uri.scheme_str()?.to_ascii_lowercase().as_str() {
                "http" => false,
                "https" => true,
                _ => return None,
            };
            let host = uri.host()?.trim_matches(['[', ']']).to_owned();
            let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
            let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
            return Some((Place { is_https, host, port, path }, true));
        }
        let bare = self.path.split('?').next().unwrap_or_default();
        let path = match location.chars().next() {
            Some('/') => location.to_owned(),
            Some('?') => format!("{bare}{location}"),
            _ => {
                let folder = bare.rsplit_once('/').map_or("", |(folder, _)| folder);
                without_dots(&format!("{folder}/{location}"))
            }
        };
        Some((Place { path, ..self.clone() }, false))
    }
}

/// `/a/../b` is `/b`.
fn without_dots(path: &str) -> String {
    let (path, query) =
        path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').skip(1) {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("/{}{query}", parts.join("/"))
}

/// One question, one answer. `named`: the headers' own name of the host counts.
pub(super) async fn ask(
    place: &Place,
    headers: &[HTTPHeader],
    agent: &str,
    named: bool,
) -> Result<Reply, String> {
    use http::header::{ACCEPT, CONNECTION, HOST, USER_AGENT};
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", place.get());
    let mut request = http::Request::get(&place.path).header(CONNECTION, "close");
    let is = |header: &HTTPHeader, name: &str| header.name.eq_ignore_ascii_case(name);
    for header in headers.iter().filter(|header| named || !is(header, "host")) {
        // One that is empty on purpose is left out.
        if !(is(header, "accept") && header.value.is_empty()) {
            request = request.header(&header.name, &header.value);
        }
    }
    let given = |name: &str| headers.iter().any(|header| is(header, name));
    if !(named && given("host")) {
        request = request.header(HOST, place.authority());
    }
    if !given("user-agent") {
        request = request.header(USER_AGENT, agent);
    }
    if !given("accept") {
        request = request.header(ACCEPT, "*/*");
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| failed(&error))?;
    let stream = TcpStream::connect((place.host.as_str(), place.port)).await;
    let stream =
        stream.map_err(|error| failed(&format!("dial tcp {}: {error}", place.authority())))?;
    let answer = if place.is_https {
        let stream = encrypted(&place.host, stream, &[]).await.map_err(|error| failed(&error))?;
        exchange(stream, request, ANSWER).await
    } else {
        exchange(stream, request, ANSWER).await
    };
    answer.map_err(|error| failed(&error))
}

/// Whether a question by TLS was answered by a server that speaks none.
pub(super) fn is_plain(error: &str) -> bool {
    error.contains(PLAIN)
}

/// TLS with whoever answers: a probe asks whether somebody is there, not who it is.
pub(super) async fn encrypted(
    host: &str,
    stream: TcpStream,
    protocols: &[&[u8]],
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
    let mut config = client::http::tls::client_config(&client::http::tls::Believed::Anyone, None)?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let name = host.parse::<std::net::IpAddr>().map(rustls::pki_types::ServerName::from);
    let name = name.or_else(|_| rustls::pki_types::ServerName::try_from(host.to_owned()));
    let name = name.map_err(|error| error.to_string())?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|error| {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        let plain = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        if cause == Some(&plain) { PLAIN.to_owned() } else { error.to_string() }
    })
}

/// What is behind a URL without encryption, if that is not too much.
pub async fn get(url: &str, headers: &[(String, String)]) -> Result<String, String> {
    const LIMIT: usize = 10 << 20;
    let uri: http::Uri = url.parse().map_err(|error| format!("{error}"))?;
    let host = uri.host().ok_or("it has no host")?;
    if uri.scheme_str() != Some("http") {
        return Err("only http is supported".to_owned());
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = http::Request::get(path).header(http::header::CONNECTION, "close");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    request = request.header(http::header::HOST, authority);
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let port = uri.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await;
    let stream = stream.map_err(|error| error.to_string())?;
    match exchange(stream, request, LIMIT).await? {
        Reply { code: 200, body, .. } => Ok(body),
        Reply { code, .. } => Err(format!("it answers {code}")),
    }
}

async fn exchange<S>(
    stream: S,
    request: http::Request<Empty<Bytes>>,
    limit: usize,
) -> Result<Reply, String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let text = |error: hyper::Error| error.to_string();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    let talking = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(text)?;
    let code = answer.status().as_u16();
    let location = answer.headers().get(http::header::LOCATION);
    let location = location.and_then(|value| value.to_str().ok()).map(str::to_owned);
    // A body that is too long is not read to its end; that is no failure.
    let body = Limited::new(answer.into_body(), limit).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    talking.abort();
    Ok(Reply { code, location, body: String::from_utf8_lossy(&body).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::service::service_fn;
    use std::convert::Infallible;
    use tokio::net::TcpListener;

    #[test]
    fn a_location_is_read_from_where_it_was_said() {
        let from = |path: &str| Place {
            is_https: false,
            host: "10.0.0.5".to_owned(),
            port: 8080,
            path: path.to_owned(),
        };
        let check = |path: &str, location: &str, expected: &str| {
            let place = from(path).resolve(location).map(|(place, _)| place.get());
            assert_eq!(place.unwrap_or_default(), expected, "{path} {location}");
        };
        check("/a/b", "/c?d", "Get \"http://10.0.0.5:8080/c?d\"");
        check("/a/b?x", "c", "Get \"http://10.0.0.5:8080/a/c\"");
        check("/a/b", "../c", "Get \"http://10.0.0.5:8080/c\"");
        check("/a?x", "?y", "Get \"http://10.0.0.5:8080/a?y\"");
        check("/a", "https://10.0.0.5/b#c", "Get \"https://10.0.0.5:443/b\"");
        check("/a", "//other:81/b", "Get \"http://other:81/b\"");
        check("/a", "http://[fd00::1]:80", "Get \"http://[fd00::1]:80/\"");
        check("/a", "ftp://10.0.0.5/", "");
    }

    /// A server that sends on as its paths say: `/to/LOCATION`, `/loop`, `/304`, or a code.
    async fn serve() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let respond =
                    service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                        let path = request.uri().path().to_owned();
                        let answer = http::Response::builder();
                        let answer = match path.strip_prefix("/to/") {
                            Some(place) => answer.status(302).header("location", place),
                            None if path == "/loop" => {
                                answer.status(302).header("location", "/loop")
                            }
                            None => answer.status(path[1..].parse::<u16>().unwrap_or(200)),
                        };
                        Ok::<_, Infallible>(answer.body(path).expect("an answer"))
                    });
                let builder = hyper::server::conn::http1::Builder::new();
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), respond));
            }
        });
        port
    }

    #[tokio::test]
    async fn a_probe_follows_within_its_host() {
        let port = serve().await;
        let target =
            Target { id: String::new(), ip: "127.0.0.1".to_owned(), container: Default::default() };
        for (path, expected) in [
            ("/200", Outcome::Success("/200".to_owned())),
            ("/to//204", Outcome::Success(String::new())),
            ("/to//to//500", Outcome::Failure("HTTP probe failed with statuscode: 500".to_owned())),
            (
                "/to/http://elsewhere/",
                Outcome::Warning(
                    "Probe terminated redirects, Response body: /to/http://elsewhere/".to_owned(),
                ),
            ),
            (
                "/300",
                Outcome::Warning("Probe terminated redirects, Response body: /300".to_owned()),
            ),
            (
                "/loop",
                Outcome::Failure(format!(
                    "Get \"http://127.0.0.1:{port}/loop\": stopped after 10 redirects"
                )),
            ),
        ] {
            let action = serde_json::json!({ "port": port, "path": path });
            let action: HTTPGetAction = serde_json::from_value(action).expect("an action");
            let said = target.http(&action, Duration::from_secs(30), "kube-probe/1.37").await;
            assert_eq!(said, expected, "{path}");
        }
    }

    #[tokio::test]
    async fn a_server_without_tls_is_known_as_one() {
        let place = Place {
            is_https: true,
            host: "127.0.0.1".to_owned(),
            port: serve().await,
            path: "/".to_owned(),
        };
        let error = ask(&place, &[], "kube-lifecycle/1.37", true).await.err().unwrap_or_default();
        assert!(is_plain(&error), "{error}");
    }
}
