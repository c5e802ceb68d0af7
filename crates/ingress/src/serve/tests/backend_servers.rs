//! Pods of every kind.
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Does this with every connection.
pub async fn with<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// Says what it was asked; what is sent to `/echo` comes back.
pub async fn describing() -> SocketAddr {
    with(|stream| async {
        let respond = service_fn(|request: Request<Incoming>| async {
            if request.uri().path() == "/echo" {
                return Ok::<_, Infallible>(Response::new(request.into_body().boxed()));
            }
            let mut lines = vec![format!("{} {}", request.method(), request.uri())];
            let mut headers: Vec<String> = request
                .headers()
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or_default()))
                .collect();
            headers.sort();
            lines.extend(headers);
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            if !body.is_empty() {
                lines.push(format!("body: {}", String::from_utf8_lossy(&body)));
            }
            let text = Full::new(Bytes::from(lines.join("\n") + "\n"));
            Ok(Response::new(text.map_err(|never| match never {}).boxed()))
        });
        let builder = auto::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(TokioIo::new(stream), respond).await;
    })
    .await
}

/// Says its name.
pub async fn named(name: &'static str) -> SocketAddr {
    answering(move |_| name.to_owned()).await
}

async fn answering(answer: impl Fn(String) -> String + Clone + Send + 'static) -> SocketAddr {
    with(move |stream| {
        let answer = answer.clone();
        async move {
            let respond = service_fn(move |request: Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    let body = request.into_body().collect().await.expect("a body").to_bytes();
                    let text = answer(String::from_utf8_lossy(&body).into_owned());
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
                }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), respond).await;
        }
    })
    .await
}

/// Tells what it was sent.
pub async fn telling() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let address = answering(move |body| {
        let _ = sender.send(body);
        String::new()
    });
    (address.await, receiver)
}

/// Ends connections after so many answers without a word; how many there were.
pub async fn closing_after(most: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let address = with(move |mut stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            for _ in 0..most {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                if stream.write_all(answer).await.is_err() {
                    return;
                }
            }
        }
    });
    (address.await, count)
}

/// HTTP/2 alone: the path, what `te` says, and the body; `grpc-status` at the end.
pub async fn http2() -> SocketAddr {
    with(|stream| async {
        let respond = service_fn(|request: Request<Incoming>| async {
            let path = request.uri().path_and_query().map(ToString::to_string);
            let te = request.headers().get("te").cloned();
            let te = te.and_then(|te| te.to_str().map(str::to_owned).ok());
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let text = format!(
                "{} {} {}",
                path.unwrap_or_default(),
                te.unwrap_or_default(),
                String::from_utf8_lossy(&body)
            );
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            let frames = [Frame::data(Bytes::from(text)), Frame::trailers(trailers)];
            let frames = stream::iter(frames.map(Ok::<_, Infallible>));
            Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(TokioIo::new(stream), respond).await;
    })
    .await
}

/// Speaks in capitals once both have agreed on it.
pub async fn upgrading() -> SocketAddr {
    with(|mut stream| async move {
        let head = super::stage::head(&mut stream).await.to_ascii_lowercase();
        assert!(head.contains("connection: upgrade\r\n"), "{head}");
        assert!(head.contains("sec-websocket-key: x\r\n"), "{head}");
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(answer).await.expect("it is taken");
        let mut bytes = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut bytes).await {
            let capitals = bytes[..count].to_ascii_uppercase();
            stream.write_all(&capitals).await.expect("it is taken");
        }
    })
    .await
}

/// Takes a request and says nothing.
pub async fn hanging() -> SocketAddr {
    with(|mut stream| async move {
        super::stage::head(&mut stream).await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    })
    .await
}

/// Takes a request and answers with these bytes.
pub async fn saying(answer: &'static [u8]) -> SocketAddr {
    with(move |mut stream| async move {
        super::stage::head(&mut stream).await;
        let _ = stream.write_all(answer).await;
    })
    .await
}
