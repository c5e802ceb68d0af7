//! A stream of events over a WebSocket: one message each, for clients that cannot read a long
//! answer as it comes, such as browsers.
use crate::answer::{self, Answer};
use crate::serve::Received;
use api::codec::object::Encoding;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderValue, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc::Receiver;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

const MAX_SAID: usize = 64 << 10;

/// Whether the client wants a WebSocket.
pub fn is_asked_for(received: &Received) -> bool {
    received.header(header::UPGRADE).eq_ignore_ascii_case("websocket")
}

/// Agrees, and sends what `batches` brings until it ends or the client goes.
pub fn serve(received: &Received, encoding: Encoding, mut batches: Receiver<Bytes>) -> Answer {
    let key = received.header(header::SEC_WEBSOCKET_KEY);
    let Some(upgrade) = received.upgrade.lock().ok().and_then(|mut upgrade| upgrade.take()) else {
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
    let mut answer = Response::new(answer::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = derive_accept_key(key.as_bytes()).parse() {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    answer
}

/// What a client may say: it is read for its close alone.
fn limits() -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(MAX_SAID)).max_frame_size(Some(MAX_SAID))
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
