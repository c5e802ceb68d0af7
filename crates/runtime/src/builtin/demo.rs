//! The demo: a web server that says where it runs and what it was asked. Small enough to read, and
//! enough to see a Deployment, a Service, a probe and an Ingress at work.
use std::convert::Infallible;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// Answers whoever connects until `stop`.
pub async fn serve(listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<()> {
    let mut stop = std::pin::pin!(stop);
    loop {
        let (stream, client) = tokio::select! {
            accepted = listener.accept() => accepted?,
            () = &mut stop => return Ok(()),
        };
        // One of IPv4 that came to a socket for both is shown as what it is.
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| async move {
                Ok::<_, Infallible>(answer(&request, client))
            });
            // A client that goes away is no concern of ours.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

fn answer<B>(request: &Request<B>, client: SocketAddr) -> Response<Full<Bytes>> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (kind, text) = match request.uri().path() {
        "/healthz" => (PLAIN, "ok\n".to_owned()),
        "/hostname" => (PLAIN, host + "\n"),
        "/clientip" => (PLAIN, format!("{}\n", client.ip())),
        "/" => {
            let wanted = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
            let story = story(request, client, &host);
            match wanted.is_some_and(|wanted| wanted.contains("text/html")) {
                true => (HTML, page(&host, &story)),
                false => (PLAIN, story),
            }
        }
        _ => return respond(StatusCode::NOT_FOUND, PLAIN, "not found\n".to_owned()),
    };
    respond(StatusCode::OK, kind, text)
}

const PLAIN: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

fn respond(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

fn story<B>(request: &Request<B>, client: SocketAddr, host: &str) -> String {
    let mut text = format!("Hello from {host}.\n\n");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{} {} from {client}", request.method(), request.uri());
    for (name, value) in request.headers() {
        let _ = writeln!(text, "{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    text
}

fn page(host: &str, story: &str) -> String {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<!doctype html><meta charset=\"utf-8\"><title>{0}</title>\
         <body style=\"font:1.1rem sans-serif;max-width:40rem;margin:4rem auto\">\
         <h1>{0}</h1><pre>{1}</pre>\n",
        escape(host),
        escape(story)
    )
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn check(path: &str, accept: &str, status: u16, kind: &str, part: &str) {
        let request = Request::get(path).header(ACCEPT, accept).header("x", "<script>").body(());
        let client = "10.0.0.9:1234".parse().unwrap();
        let response = answer(&request.unwrap(), client);
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()[CONTENT_TYPE], kind);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains(part), "{part:?} is not in {text:?}");
        assert!(kind != HTML || !text.contains("<script>"), "what a client sends is no markup");
    }

    #[tokio::test]
    async fn it_tells_what_it_was_asked() {
        check("/", "*/*", 200, PLAIN, "GET / from 10.0.0.9:1234").await;
        check("/", "text/html", 200, HTML, "x: &lt;script>").await;
        check("/healthz", "*/*", 200, PLAIN, "ok").await;
        check("/clientip", "*/*", 200, PLAIN, "10.0.0.9\n").await;
        check("/else", "*/*", 404, PLAIN, "not found").await;
    }
}
