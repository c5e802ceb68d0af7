//! Streams to containers by way of the API server: a WebSocket of its own for each.
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
pub use streams::{Streams, keys, terminal};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// Carries streams until the server says how it ended.
pub async fn carry(cluster: &Cluster, path: &str, streams: Streams<'_>) -> Outcome {
    let (socket, protocol) = open(cluster, path, streams::PROTOCOLS).await?;
    Ok(streams::carry(socket, &protocol, streams).await?)
}

/// Carries one connection to a pod's port to its end.
pub async fn forward(
    cluster: &Cluster,
    path: &str,
    local: impl AsyncRead + AsyncWrite + Unpin,
) -> Outcome {
    let (socket, _) = open(cluster, path, streams::PORT_PROTOCOL).await?;
    Ok(streams::forward::carry(socket, local).await?)
}

impl From<streams::Error> for Failure {
    fn from(error: streams::Error) -> Failure {
        match error {
            streams::Error::Exit(code) => Failure::Said { text: error.to_string(), code },
            streams::Error::Io(error) => error.into(),
            other => Failure::Plain(other.to_string()),
        }
    }
}

/// Opens a WebSocket at a path, and answers which of the protocols the server chose.
async fn open(cluster: &Cluster, path: &str, protocols: &str) -> Outcome<(Socket, String)> {
    let Some(https) = &cluster.https else {
        return Err("this cluster has no streams".into());
    };
    let mut key = [0; 16];
    for (at, byte) in key.iter_mut().enumerate() {
        // The key is no secret: it tells answers of servers from those of caches.
        *byte = (jiff::Timestamp::now().as_nanosecond() >> (at % 8)) as u8 ^ (at as u8);
    }
    let key = STANDARD.encode(key);
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", &key),
        ("sec-websocket-protocol", protocols),
    ] {
        let value = value.parse().map_err(|_| format!("{value:?} cannot be sent"))?;
        headers.insert(name, value);
    }
    let answer = https.upgrade(path, headers).await?;
    if answer.status() != http::StatusCode::SWITCHING_PROTOCOLS {
        return Err(refused(answer).await);
    }
    let chosen = answer.headers().get("sec-websocket-protocol");
    let chosen = chosen.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let upgraded =
        hyper::upgrade::on(answer).await.map_err(|error| Failure::Plain(error.to_string()))?;
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await;
    Ok((socket, chosen))
}

/// What a server says that opens no stream.
async fn refused(answer: http::Response<hyper::body::Incoming>) -> Failure {
    let code = answer.status();
    let body = answer.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    if let Ok(status) = serde_json::from_slice::<api::status::Status>(&body)
        && !status.message.is_empty()
    {
        return status.into();
    }
    let text = String::from_utf8_lossy(&body);
    Failure::Plain(format!("unable to upgrade connection: {}: {}", code.as_u16(), text.trim()))
}
