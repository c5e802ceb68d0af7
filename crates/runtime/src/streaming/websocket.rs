//! Streams over WebSocket: the first byte of a message says which stream it belongs to.
//!
//! `v4.channel.k8s.io` and `v5.channel.k8s.io`, which adds a message that closes a stream, and the
//! same in base64; older names are for clients that ask for nothing else.
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming as Body;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use super::{
    Incoming, Outgoing, Purpose, QUEUE, forward, header, negotiate, offered, session, text,
};
use crate::service::Service;

pub(super) const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
pub(super) const ERROR: u8 = 3;
pub(super) const RESIZE: u8 = 4;
/// v5: the next byte names a stream that is at its end.
pub(super) const CLOSE: u8 = 255;

const PROTOCOLS: &[&str] = &[
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
];

pub(super) type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

pub(super) fn accept(
    request: &Request<Body>,
    upgrade: OnUpgrade,
    purpose: Purpose,
    service: Service,
) -> Response<Full<Bytes>> {
    let offers = offered(request, "sec-websocket-protocol");
    let protocol = negotiate(&offers, PROTOCOLS);
    if protocol.is_none() && !offers.is_empty() {
        return text(StatusCode::FORBIDDEN, "no protocol in common");
    }
    let key = derive_accept_key(header(request, "sec-websocket-key").as_bytes());
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let io = TokioIo::new(upgraded);
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
        match purpose {
            Purpose::PortForward { sandbox, ports } => {
                forward::over_websocket(service, &sandbox, &ports, socket).await;
            }
            purpose => serve(service, purpose, socket, protocol.unwrap_or_default()).await,
        }
    });
    let mut response = super::switching("websocket").header("sec-websocket-accept", key);
    if let Some(protocol) = protocol {
        response = response.header("sec-websocket-protocol", protocol);
    }
    response.body(Full::default()).unwrap_or_default()
}

async fn serve(service: Service, purpose: Purpose, socket: Socket, protocol: &'static str) {
    let base64 = protocol.contains("base64");
    let (mut sink, mut source) = socket.split();
    let (to_session, incoming) = mpsc::channel(QUEUE);
    let (outgoing, mut from_session) = mpsc::channel(QUEUE);
    let session = tokio::spawn(session::run(service, purpose, incoming, outgoing));
    let receiving = tokio::spawn(async move {
        while let Some(Ok(message)) = source.next().await {
            let bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Text(text) => Bytes::from(text),
                Message::Close(_) => break,
                _ => continue,
            };
            let Some(message) = decode(&bytes, base64) else { continue };
            if to_session.send(message).await.is_err() {
                // The session is over; what still comes is read so that the close is clean.
                continue;
            }
        }
    });
    while let Some(message) = from_session.recv().await {
        let (stream, bytes) = match message {
            Outgoing::Stdout(bytes) => (STDOUT, bytes),
            Outgoing::Stderr(bytes) => (STDERR, bytes),
            Outgoing::Status(status) => match session::told(&status, protocol) {
                Some(bytes) => (ERROR, bytes),
                None => continue,
            },
        };
        if sink.send(encode(stream, &bytes, base64)).await.is_err() {
            break;
        }
    }
    // Some clients take a close without a code for a failure.
    let normal = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    let _ = sink.send(Message::Close(Some(normal))).await;
    // The client answers the close, or goes.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(5), receiving).await;
    let _ = session.await;
}

pub(super) fn encode(stream: u8, bytes: &[u8], base64: bool) -> Message {
    if base64 {
        return Message::text(format!("{}{}", char::from(b'0' + stream), STANDARD.encode(bytes)));
    }
    let mut message = Vec::with_capacity(bytes.len() + 1);
    message.push(stream);
    message.extend_from_slice(bytes);
    Message::binary(message)
}

fn decode(bytes: &Bytes, base64: bool) -> Option<Incoming> {
    let (stream, body) = (*bytes.first()?, bytes.slice(1..));
    let (stream, body) = if base64 {
        (stream.checked_sub(b'0')?, Bytes::from(STANDARD.decode(&body).ok()?))
    } else {
        (stream, body)
    };
    match stream {
        STDIN => Some(Incoming::Stdin(body)),
        RESIZE => resize(&body),
        CLOSE if body.first() == Some(&STDIN) => Some(Incoming::StdinClosed),
        _ => None,
    }
}

/// `{"Width":80,"Height":24}`.
pub(super) fn resize(body: &[u8]) -> Option<Incoming> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let number = |key: &str| value[key].as_u64().and_then(|n| u16::try_from(n).ok());
    Some(Incoming::Resize(number("Width")?, number("Height")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], base64: bool, expected: &str) {
        let decoded = decode(&Bytes::copy_from_slice(bytes), base64);
        assert_eq!(format!("{decoded:?}"), expected);
    }

    #[test]
    fn messages_name_their_stream() {
        check(b"\x00hi", false, r#"Some(Stdin(b"hi"))"#);
        check(b"0aGk=", true, r#"Some(Stdin(b"hi"))"#);
        check(b"\xff\x00", false, "Some(StdinClosed)");
        check(b"\xff\x01", false, "None");
        check(b"\x04{\"Width\":80,\"Height\":24}", false, "Some(Resize(80, 24))");
        check(b"\x04{}", false, "None");
        check(b"\x01out", false, "None");
        check(b"", false, "None");
    }
}
