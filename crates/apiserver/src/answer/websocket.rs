//! What lasts over a WebSocket, for clients that cannot read a long answer as it comes, such as
//! browsers: the events of a watch, one message each, and the bytes of a log.
use crate::answer::{self, Answer, Body};
use crate::call::text;
use api::codec::object::Encoding;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyStream;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc::Receiver;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

const MAX_SAID: usize = 64 << 10;

/// Whether the client wants a WebSocket.
pub fn is_asked_for(headers: &HeaderMap) -> bool {
    text(headers, header::UPGRADE).eq_ignore_ascii_case("websocket")
}

/// Agrees, and sends what `batches` brings until it ends or the client goes.
pub fn serve(
    headers: &HeaderMap,
    upgrade: Option<OnUpgrade>,
    encoding: Encoding,
    mut batches: Receiver<Bytes>,
) -> Answer {
    let key = text(headers, header::SEC_WEBSOCKET_KEY);
    let Some(upgrade) = upgrade else {
        let text = "the connection cannot be upgraded";
        return answer::bytes(StatusCode::BAD_REQUEST, "text/plain", text);
    };
    tokio::spawn(async move {
        let Ok(connection) = upgrade.await else { return };
        let socket = WebSocketStream::from_raw_socket(
            TokioIo::new(connection),
            Role::Server,
            Some(limits()),
        )
        .await;
        let (mut sink, mut stream) = socket.split();
        loop {
            tokio::select! {
                batch = batches.recv() => match batch {
                    None => break,
                    Some(batch) => for message in messages(&batch, encoding) {
                        if sink.send(message).await.is_err() {
                            return;
                        }
                    },
                },
                // What a client says on a watch means nothing, but it may hang up.
                said = stream.next() => match said {
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    Some(Ok(_)) => {}
                },
            }
        }
        let _ = sink.close().await;
    });
    agreed(key.as_bytes(), None)
}

/// The answer that the connection goes on as a WebSocket.
fn agreed(key: &[u8], protocol: Option<HeaderValue>) -> Answer {
    let mut answer = Response::new(answer::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = derive_accept_key(key).parse() {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(protocol) = protocol {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    answer
}

/// What a client may say: it is read for its close alone.
fn limits() -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(MAX_SAID)).max_frame_size(Some(MAX_SAID))
}

/// A client that wants some bytes over a WebSocket.
pub struct Requested {
    key: Vec<u8>,
    /// What it understands, in its order.
    protocols: Vec<String>,
    upgrade: OnUpgrade,
}

/// Takes the wish for a WebSocket off a request, if it has one.
pub fn requested<B>(request: &mut Request<B>) -> Option<Requested> {
    let headers = request.headers();
    let asked = headers.get(header::UPGRADE)?.as_bytes().eq_ignore_ascii_case(b"websocket");
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| asked)?.as_bytes().to_vec();
    let protocols = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let protocols = protocols.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let protocols = protocols.map(|name| String::from_utf8_lossy(name.trim_ascii()).into_owned());
    // One that is a token is no protocol.
    let protocols = protocols.filter(|name| !name.starts_with("base64url.bearer.")).collect();
    let upgrade = hyper::upgrade::on(&mut *request);
    let headers = request.headers_mut();
    for name in [
        header::UPGRADE,
        header::CONNECTION,
        header::SEC_WEBSOCKET_KEY,
        header::SEC_WEBSOCKET_VERSION,
        header::SEC_WEBSOCKET_PROTOCOL,
        header::SEC_WEBSOCKET_EXTENSIONS,
    ] {
        headers.remove(name);
    }
    Some(Requested { key, protocols, upgrade })
}

type Framed = fn(Bytes) -> Message;

/// How bytes become messages: upstream's `streaming/pkg/httpstream/wsstream/stream.go`.
const READERS: &[(&str, Framed)] = &[
    ("", Message::Binary),
    ("binary.k8s.io", Message::Binary),
    ("base64.binary.k8s.io", |bytes| Message::text(STANDARD.encode(bytes))),
];

impl Requested {
    /// Agrees, and sends the bytes as they come until they end or the client goes. The first message
    /// is empty, so that the client knows at once that there will be some.
    pub fn stream(self, body: Body) -> Answer {
        let asked = match &self.protocols[..] {
            [] => vec![""],
            asked => asked.iter().map(String::as_str).collect(),
        };
        let found = asked.iter().find_map(|asked| READERS.iter().find(|(name, _)| name == asked));
        let Some((name, message)) = found.copied() else {
            let text = "requested protocol(s) are not supported";
            return answer::bytes(StatusCode::FORBIDDEN, "text/plain", text);
        };
        let upgrade = self.upgrade;
        tokio::spawn(async move {
            let Ok(connection) = upgrade.await else { return };
            let connection = TokioIo::new(connection);
            let socket =
                WebSocketStream::from_raw_socket(connection, Role::Server, Some(limits())).await;
            let (mut sink, mut said) = socket.split();
            let mut body = BodyStream::new(body);
            if sink.send(message(Bytes::new())).await.is_err() {
                return;
            }
            loop {
                tokio::select! {
                    piece = body.next() => match piece {
                        None | Some(Err(_)) => break,
                        Some(Ok(frame)) => {
                            let bytes = frame.into_data().unwrap_or_default();
                            if !bytes.is_empty() && sink.send(message(bytes)).await.is_err() {
                                return;
                            }
                        }
                    },
                    // What a client says to a log means nothing, but it may hang up.
                    said = said.next() => match said {
                        Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                        Some(Ok(_)) => {}
                    },
                }
            }
            let _ = sink.close().await;
        });
        let protocol = Some(HeaderValue::from_static(name)).filter(|name| !name.is_empty());
        agreed(&self.key, protocol)
    }
}

/// The events of a batch: lines of JSON, or frames of protobuf with their length before them.
fn messages(batch: &Bytes, encoding: Encoding) -> Vec<Message> {
    let mut messages = Vec::new();
    if encoding == Encoding::Protobuf {
        let mut rest = batch.clone();
        while let Some(length) = rest.first_chunk().map(|length| u32::from_be_bytes(*length)) {
            let end = (4 + length as usize).min(rest.len());
            messages.push(Message::Binary(rest.slice(4..end)));
            rest = rest.slice(end..);
        }
        return messages;
    }
    for line in batch.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        messages.push(Message::text(String::from_utf8_lossy(line).into_owned()));
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_a_message() {
        let lines = Bytes::from_static(b"{\"a\":1}\n{\"b\":2}\n");
        let texts: Vec<String> =
            messages(&lines, Encoding::Json).iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["{\"a\":1}", "{\"b\":2}"]);
        let frames = Bytes::from_static(b"\0\0\0\x02ab\0\0\0\x01c");
        let frames: Vec<Bytes> =
            messages(&frames, Encoding::Protobuf).into_iter().map(Message::into_data).collect();
        assert_eq!(frames, ["ab", "c"]);
    }
}
