//! `kubectl proxy`: the API server on a port of this machine, for who cannot prove who they are.
use super::{Command, Group};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, span, switch, text};
use crate::session::Session;
use api::regexp::Regexp;
use bytes::Bytes;
use client::source::Raw;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;

static FLAGS: &[Flag] = &[
    text(
        "accept-hosts",
        "^localhost$,^127\\.0\\.0\\.1$,^\\[::1\\]$",
        "Hosts that are served, as patterns.",
    ),
    text("accept-paths", "^.*", "Paths that are served, as patterns."),
    text("address", "127.0.0.1", "Address to listen on."),
    text("api-prefix", "/", "Where the API begins."),
    switch("append-server-path", "Put the path of the server's address before every other."),
    switch("disable-filter", "Serve everything to everybody. This is dangerous."),
    span("keepalive", "0s", "Taken for compatibility."),
    number("port", "8001", "Port to listen on; 0 takes a free one.").short('p'),
    text("reject-methods", "^$", "Methods that are not served, as patterns."),
    text(
        "reject-paths",
        "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach",
        "Paths that are not served, as patterns.",
    ),
    text("unix-socket", "", "Socket to listen on.").short('u'),
    text("www", "", "Folder with files to serve.").short('w'),
    text("www-prefix", "/static/", "Where those files begin.").short('P'),
];

pub static COMMAND: Command = Command {
    name: "proxy",
    group: Group::Troubleshooting,
    about: "Run a proxy to the Kubernetes API server",
    usage: "[--port=PORT] [--www=static-dir] [--www-prefix=prefix] [--api-prefix=prefix]",
    flags: &[FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

struct Proxy {
    cluster: Cluster,
    filter: Option<Filter>,
    prefix: String,
    files: Option<(String, PathBuf)>,
}

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let socket = arguments.some("unix-socket");
    if socket.is_some() && arguments.given("port") {
        return Err("cannot set --unix-socket and --port at the same time".into());
    }
    let filter = match arguments.is("disable-filter") {
        true if socket.is_none() => {
            writeln!(
                session.err,
                "Request filter disabled, your proxy is vulnerable to XSRF attacks, please be cautious"
            )?;
            None
        }
        true => None,
        false => Some(Filter::of(&arguments)?),
    };
    let slashed = |text: &str| format!("{}/", text.trim_end_matches('/'));
    let files = arguments
        .some("www")
        .map(|folder| (slashed(arguments.text("www-prefix")), PathBuf::from(folder)));
    let proxy = Arc::new(Proxy {
        cluster: session.cluster(&arguments)?,
        filter,
        prefix: slashed(arguments.text("api-prefix")),
        files,
    });
    if let Some(path) = socket {
        remove_socket(Path::new(path))?;
        let listener = UnixListener::bind(path)?;
        writeln!(session.out, "Starting to serve on {path}")?;
        session.flush()?;
        loop {
            let (connection, _) = listener.accept().await?;
            tokio::spawn(serve(proxy.clone(), connection));
        }
    }
    let port = u16::try_from(arguments.number("port")).map_err(|_| "invalid port".to_owned())?;
    let listener = TcpListener::bind((arguments.text("address"), port)).await?;
    writeln!(session.out, "Starting to serve on {}", listener.local_addr()?)?;
    session.flush()?;
    loop {
        let (connection, _) = listener.accept().await?;
        tokio::spawn(serve(proxy.clone(), connection));
    }
}

/// What an earlier proxy has left; nothing else is taken away.
fn remove_socket(path: &Path) -> Outcome {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    if is_socket {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

type Body = BoxBody<Bytes, Infallible>;

async fn serve(
    proxy: Arc<Proxy>,
    connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) {
    let answer = service_fn(|request| {
        let proxy = proxy.clone();
        async move { Ok::<_, Infallible>(proxy.answer(request).await) }
    });
    let http = hyper::server::conn::http1::Builder::new();
    // How a connection ends is its client's matter.
    let _ = http.serve_connection(TokioIo::new(connection), answer).with_upgrades().await;
}

fn plain(code: StatusCode, text: &str) -> Response<Body> {
    let mut answer = Response::new(Full::from(text.to_owned()).boxed());
    *answer.status_mut() = code;
    answer
}

impl Proxy {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.map(str::to_owned).unwrap_or_default();
        if let Some(filter) = &self.filter
            && !filter.accepts(request.method(), &path, &host)
        {
            return plain(StatusCode::FORBIDDEN, "Forbidden");
        }
        if let Some((prefix, folder)) = &self.files
            && let Some(name) = path.strip_prefix(prefix.as_str())
        {
            return file(folder, name);
        }
        let Some(rest) = path.strip_prefix(self.prefix.trim_end_matches('/')) else {
            return plain(StatusCode::NOT_FOUND, "404 page not found");
        };
        let query = request.uri().query().map_or(String::new(), |query| format!("?{query}"));
        let path = format!("{}{query}", if rest.is_empty() { "/" } else { rest });
        if request.headers().contains_key(header::UPGRADE) {
            return self.upgrade(request, path).await;
        }
        self.pass(request, path).await
    }

    async fn pass(&self, request: Request<Incoming>, path: String) -> Response<Body> {
        let text = |name: header::HeaderName| {
            let value = request.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let accept = Some(text(header::ACCEPT)).filter(|accept| !accept.is_empty());
        let content_type = text(header::CONTENT_TYPE);
        let method = request.method().clone();
        let Ok(body) = request.into_body().collect().await else {
            return plain(StatusCode::BAD_REQUEST, "the request broke off");
        };
        let raw = Raw {
            method,
            path,
            accept: accept.unwrap_or("*/*".to_owned()),
            content_type,
            body: body.to_bytes(),
        };
        match self.cluster.source.raw(raw).await {
            Ok(answer) => {
                let frames = answer.body.take_while(|piece| std::future::ready(piece.is_ok()));
                let frames =
                    frames.filter_map(|piece| async { piece.ok().map(|b| Ok(Frame::data(b))) });
                let mut out = Response::new(BodyExt::boxed(shared(frames.boxed())));
                *out.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::OK);
                if let Ok(value) = answer.content_type.parse() {
                    out.headers_mut().insert(header::CONTENT_TYPE, value);
                }
                out
            }
            Err(status) => {
                let code = u16::try_from(status.code)
                    .ok()
                    .and_then(|code| StatusCode::from_u16(code).ok());
                let body = serde_json::to_string(&status).unwrap_or_default();
                let mut out = plain(code.unwrap_or(StatusCode::BAD_GATEWAY), &body);
                out.headers_mut().insert(
                    header::CONTENT_TYPE,
                    header::HeaderValue::from_static("application/json"),
                );
                out
            }
        }
    }

    /// Streams are connected with each other.
    async fn upgrade(&self, mut request: Request<Incoming>, path: String) -> Response<Body> {
        let Some(https) = &self.cluster.https else {
            return plain(StatusCode::BAD_GATEWAY, "this cluster has no streams");
        };
        let mut headers = request.headers().clone();
        headers.remove(header::HOST);
        headers.remove(header::AUTHORIZATION);
        let answer = match https.upgrade(&path, headers).await {
            Ok(answer) => answer,
            Err(status) => return plain(StatusCode::BAD_GATEWAY, &status.message),
        };
        let mut out = Response::new(Full::default().boxed());
        *out.status_mut() = answer.status();
        *out.headers_mut() = answer.headers().clone();
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return out;
        }
        let ours = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let (Ok(ours), Ok(theirs)) = (ours.await, hyper::upgrade::on(answer).await) else {
                return;
            };
            let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
            let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await;
        });
        out
    }
}

/// A body whose pieces come through a channel: bodies of servers have to be shareable.
fn shared(
    mut frames: BoxStream<'static, Result<Frame<Bytes>, Infallible>>,
) -> StreamBody<impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + Sync> {
    let (told, heard) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Some(Ok(frame)) = frames.next().await {
            if told.send(frame).await.is_err() {
                return;
            }
        }
    });
    StreamBody::new(stream::unfold(heard, |mut heard: mpsc::Receiver<Frame<Bytes>>| async {
        heard.recv().await.map(|frame| (Ok(frame), heard))
    }))
}

fn file(folder: &Path, name: &str) -> Response<Body> {
    let name = if name.is_empty() { "index.html" } else { name };
    let is_below =
        Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    match is_below.then(|| std::fs::read(folder.join(name))) {
        Some(Ok(bytes)) => Response::new(Full::from(bytes).boxed()),
        _ => plain(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

/// Who may ask for what.
struct Filter {
    hosts: Vec<Regexp>,
    accepted: Vec<Regexp>,
    rejected: Vec<Regexp>,
    methods: Vec<Regexp>,
}

impl Filter {
    fn of(arguments: &Arguments) -> Outcome<Filter> {
        let patterns = |flag: &str| -> Outcome<Vec<Regexp>> {
            let all = arguments.text(flag).split(',').map(|text| {
                Regexp::compile(text).map_err(|error| Failure::Plain(error.to_string()))
            });
            all.collect()
        };
        Ok(Filter {
            hosts: patterns("accept-hosts")?,
            accepted: patterns("accept-paths")?,
            rejected: patterns("reject-paths")?,
            methods: patterns("reject-methods")?,
        })
    }

    fn accepts(&self, method: &Method, path: &str, host: &str) -> bool {
        let fits = |all: &[Regexp], text: &str| all.iter().any(|one| one.is_match(text));
        // The port does not count; what is in brackets is an address.
        let host = match host.rfind(':') {
            Some(at) if !host.ends_with(']') => &host[..at],
            _ => host,
        };
        !fits(&self.rejected, path)
            && !fits(&self.methods, method.as_str())
            && fits(&self.accepted, path)
            && fits(&self.hosts, host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_may_is_served() {
        let filter = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Filter::of(&Arguments::parse("kubectl proxy", COMMAND.flags, &words).unwrap()).unwrap()
        };
        let plain = filter("");
        let get = Method::GET;
        assert!(plain.accepts(&get, "/api/v1/pods", "localhost:8001"));
        assert!(plain.accepts(&get, "/api/v1/pods", "[::1]:8001"));
        assert!(!plain.accepts(&get, "/api/v1/pods", "evil.example"));
        assert!(!plain.accepts(&get, "/api/v1/namespaces/d/pods/p/exec", "localhost"));
        let strict = filter("--reject-methods=^POST$ --accept-paths=^/version");
        assert!(strict.accepts(&get, "/version", "localhost"));
        assert!(!strict.accepts(&Method::POST, "/version", "localhost"));
        assert!(!strict.accepts(&get, "/api", "localhost"));
    }
}
