//! HTTP for the browser: a file of the page, or what the API server answers, as it comes.
use crate::files::File;
use crate::guard::{Door, Verdict};
use api::status::Status;
use bytes::Bytes;
use client::source::{Raw, RawAnswer};
use client::{Context, Source};
use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Body, Frame};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// A pause after a connection could not be taken: the process has no files left.
const PAUSE: Duration = Duration::from_millis(100);
/// What an API server takes at most.
const LARGEST: usize = 3 << 20;

/// The page may use what comes from here, and nothing else; nobody may put it into a page of theirs.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

type Answer = Response<UnsyncBoxBody<Bytes, Status>>;

/// Answers until the context stops.
pub async fn run(context: Context, listener: TcpListener, door: Door, source: Arc<dyn Source>) {
    let door = Arc::new(door);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) if !context.sleep(PAUSE).await => break,
                Err(_) => continue,
            },
            () = context.stopped() => break,
        };
        tokio::spawn(connection(context.clone(), stream, door.clone(), source.clone()));
    }
}

async fn connection(context: Context, stream: TcpStream, door: Arc<Door>, source: Arc<dyn Source>) {
    let respond = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (door, source) = (door.clone(), source.clone());
        async move { Ok::<_, Infallible>(respond(&door, &*source, request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    tokio::select! {
        // A browser that goes away is no concern of ours.
        _ = http.serve_connection(TokioIo::new(stream), respond) => {}
        () = context.stopped() => {}
    }
}

/// One request, start to finish.
async fn respond<B>(door: &Door, source: &dyn Source, request: Request<B>) -> Answer
where
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut answer = match door.judge(request.method(), request.uri().path(), request.headers()) {
        Verdict::File(file) => page(file),
        Verdict::Refused(code, why) => {
            refusal(&Status { code: code.into(), message: why.to_owned(), ..Status::default() })
        }
        Verdict::Pass => match pass(source, request).await {
            Ok(said) => streamed(said),
            Err(status) => refusal(&status),
        },
    };
    for (name, value) in HEADERS {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// Asks the API server, as the one who started us.
async fn pass<B>(source: &dyn Source, request: Request<B>) -> Result<RawAnswer, Status>
where
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let body = Limited::new(body, LARGEST).collect().await;
    let body = body.map_err(|_| Status::request_entity_too_large("the request is too large"))?;
    source
        .raw(Raw {
            method: head.method,
            path: head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            accept: text(&head.headers, &header::ACCEPT),
            content_type: text(&head.headers, &header::CONTENT_TYPE),
            body: body.to_bytes(),
        })
        .await
}

fn text(headers: &HeaderMap, name: &HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn page(file: &File) -> Answer {
    let body = Full::new(Bytes::from_static(file.content));
    let mut answer = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    let content_type = HeaderValue::from_static(file.content_type);
    answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    answer
}

/// As it comes: a watch and a log go on.
fn streamed(said: RawAnswer) -> Answer {
    let frames = said.body.map(|piece| piece.map(Frame::data));
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(said.code).unwrap_or(StatusCode::BAD_GATEWAY);
    if let Ok(content_type) = HeaderValue::from_str(&said.content_type) {
        answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    }
    answer
}

fn refusal(status: &Status) -> Answer {
    let body = Full::new(Bytes::from(json!(status).to_string()));
    let mut answer = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    let code = u16::try_from(status.code).ok().and_then(|code| StatusCode::from_u16(code).ok());
    *answer.status_mut() = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::testing::World;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A dashboard before a server that has one page; sends what is typed, `@` being its address, and returns
    /// what comes back.
    async fn told(typed: &str) -> String {
        let context = Context::new();
        let world = World::new(&context);
        world.page("/api/v1/pods?limit=1", json!({ "kind": "PodList" }));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let door = Door { address, key: "secret".to_owned() };
        let running = tokio::spawn(run(context.clone(), listener, door, Arc::new(world)));
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let typed = typed.replace('@', &address.to_string()).replace('\n', "\r\n");
        stream.write_all(typed.as_bytes()).await.expect("it reads");
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.expect("it answers");
        context.stop();
        running.await.expect("it ends");
        String::from_utf8_lossy(&said).into_owned()
    }

    #[tokio::test]
    async fn the_page_may_use_nothing_from_elsewhere() {
        let said = told("GET / HTTP/1.1\nHost: @\nConnection: close\n\n").await;
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
        assert!(said.contains("content-security-policy: default-src 'none'; "), "{said}");
        assert!(said.contains("x-frame-options: DENY"), "{said}");
        assert!(said.contains("src=\"app.js\""), "{said}");
    }

    #[tokio::test]
    async fn the_server_is_asked_with_the_key_alone() {
        let request = "GET /api/v1/pods?limit=1 HTTP/1.1\nHost: @\nConnection: close\n";
        let said = told(&format!("{request}X-Skiff-Key: secret\n\n")).await;
        assert!(said.starts_with("HTTP/1.1 200 ") && said.contains("\"PodList\""), "{said}");
        let said = told(&format!("{request}\n")).await;
        assert!(said.starts_with("HTTP/1.1 401 ") && said.contains("the key is wrong"), "{said}");
        // What the server refuses, the page is told as the server says it.
        let said =
            told("GET /api/v1/x HTTP/1.1\nHost: @\nConnection: close\nX-Skiff-Key: secret\n\n")
                .await;
        assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("BadRequest"), "{said}");
    }

    #[tokio::test]
    async fn what_is_too_large_is_not_read() {
        let head = "POST /api/v1/pods HTTP/1.1\nHost: @\nConnection: close\nX-Skiff-Key: secret\n";
        let body = "x".repeat(LARGEST + 1);
        let said = told(&format!("{head}Content-Length: {}\n\n{body}", body.len())).await;
        assert!(said.starts_with("HTTP/1.1 413 "), "{said}");
    }
}
