//! gRPC's health protocol, as far as a probe needs it: one question, one answer
//! (`pkg/probe/grpc`). The messages are two fields, so nothing is generated for them.
use super::{Outcome, Target, web};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::GRPCAction;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

const ANSWER: usize = 4096;
const UNIMPLEMENTED: &str = "12";

impl Target {
    pub async fn grpc(&self, action: &GRPCAction, timeout: Duration, agent: &str) -> Outcome {
        match self.check(action, timeout, agent).await {
            Ok(said) => Outcome::Success(said),
            Err(why) => Outcome::Failure(why),
        }
    }

    async fn check(
        &self,
        action: &GRPCAction,
        timeout: Duration,
        agent: &str,
    ) -> Result<String, String> {
        let port = u16::try_from(action.port).map_err(|_| "invalid port number".to_owned())?;
        let service = action.service.as_deref().unwrap_or_default();
        let shown = match self.ip.contains(':') {
            true => format!("[{}]:{port}", self.ip),
            false => format!("{}:{port}", self.ip),
        };
        let asking = async {
            let stream = TcpStream::connect((self.ip.as_str(), port)).await;
            let stream = stream.map_err(|error| {
                format!("error: failed to connect service at {shown:?}: {error}")
            })?;
            if action.mode.as_deref() != Some("TLS") {
                return Box::pin(check(stream, &shown, service, agent)).await;
            }
            let stream = web::encrypted(&self.ip, stream, &[b"h2"]).await;
            let stream = stream.map_err(|error| {
                format!("error: failed to connect service at {shown:?}: {error}")
            })?;
            Box::pin(check(stream, &shown, service, agent)).await
        };
        let asked = tokio::time::timeout(timeout, asking).await;
        asked.unwrap_or_else(|_| {
            Err(format!("timeout: health rpc did not complete within {}s", timeout.as_secs()))
        })
    }
}

async fn check(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    authority: &str,
    service: &str,
    agent: &str,
) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("error: health rpc probe failed: {error}");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{authority}/grpc.health.v1.Health/Check"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, agent)
        .body(Full::new(question(service)))
        .map_err(|error| failed(&error))?;
    let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER).collect().await.map_err(|error| failed(&error))?;
    // Without a message the status comes with the headers.
    let trailers = body.trailers().cloned().unwrap_or_default();
    let said = |name: &str| {
        let value = trailers.get(name).or_else(|| head.headers.get(name));
        value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let (code, message) = (said("grpc-status"), said("grpc-message"));
    match code.as_str() {
        "0" => verdict(&body.to_bytes()),
        UNIMPLEMENTED => Err(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
        )),
        _ => Err(failed(&format!("rpc error: code = {code} desc = {message}"))),
    }
}

/// A frame with `HealthCheckRequest { string service = 1; }`.
fn question(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.extend([0x0a]);
        let mut length = service.len();
        while length >= 0x80 {
            message.extend([(length & 0x7f) as u8 | 0x80]);
            length >>= 7;
        }
        message.extend([length as u8]);
        message.extend(service.as_bytes());
    }
    let mut frame = BytesMut::from(&[0][..]);
    frame.extend(u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend(message);
    frame.freeze()
}

/// A frame with `HealthCheckResponse { ServingStatus status = 1; }`.
fn verdict(frame: &[u8]) -> Result<String, String> {
    let message = frame.get(5..).unwrap_or_default();
    let status = match message {
        [0x08, status, ..] => *status,
        _ => 0,
    };
    let name = match status {
        1 => return Ok("service healthy".to_owned()),
        2 => "NOT_SERVING",
        3 => "SERVICE_UNKNOWN",
        _ => "UNKNOWN",
    };
    Err(format!("service unhealthy (responded with {name:?})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::service::service_fn;
    use std::convert::Infallible;

    #[test]
    fn messages_are_framed() {
        assert_eq!(&question("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&question("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert_eq!(verdict(&[0, 0, 0, 0, 2, 8, 1]), Ok("service healthy".to_owned()));
        let down = "service unhealthy (responded with \"NOT_SERVING\")";
        assert_eq!(verdict(&[0, 0, 0, 0, 2, 8, 2]), Err(down.to_owned()));
        assert!(verdict(&[]).is_err());
    }

    /// A server that answers every question so.
    async fn ask(code: &'static str, message: &'static [u8]) -> Result<String, String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let respond = service_fn(move |_| async move {
                let mut trailers = http::HeaderMap::new();
                trailers.insert("grpc-status", code.parse().unwrap());
                let body = Full::new(Bytes::from_static(message));
                let body = body.with_trailers(async move { Some(Ok(trailers)) });
                Ok::<_, Infallible>(http::Response::new(body))
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), respond).await;
        });
        let target =
            Target { id: String::new(), ip: "127.0.0.1".to_owned(), container: Default::default() };
        let action = GRPCAction { port: port.into(), ..GRPCAction::default() };
        target.check(&action, Duration::from_secs(10), "kube-probe/1.37").await
    }

    #[tokio::test]
    async fn a_server_is_asked() {
        assert_eq!(ask("0", &[0, 0, 0, 0, 2, 8, 1]).await, Ok("service healthy".to_owned()));
        assert!(ask("0", &[0, 0, 0, 0, 2, 8, 2]).await.is_err());
        let missing = ask("12", &[]).await.unwrap_err();
        assert!(missing.contains("does not implement the grpc health protocol"), "{missing}");
    }
}
