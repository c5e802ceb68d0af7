//! Streams to containers over WebSocket: exec, attach and ports.
//!
//! The first byte of a message says which stream it belongs to (`v5.channel.k8s.io`, which can also
//! close a stream; `v4.channel.k8s.io` for servers that know no better).
pub mod forward;
pub mod terminal;

use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io::Write;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

pub const STDIN: u8 = 0;
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
pub const ERROR: u8 = 3;
pub const RESIZE: u8 = 4;
/// The next byte names a stream that is at its end.
pub const CLOSE: u8 = 255;

const V5: &str = "v5.channel.k8s.io";
const V4: &str = "v4.channel.k8s.io";

pub type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// Opens a WebSocket at a path, and answers which of the protocols the server chose.
pub async fn open(cluster: &Cluster, path: &str, protocols: &str) -> Outcome<(Socket, String)> {
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

/// What goes to a container and comes from it.
pub struct Streams<'o> {
    pub stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub stdout: &'o mut (dyn Write + Send),
    pub stderr: &'o mut (dyn Write + Send),
    /// Sizes of the terminal, as they change.
    pub sizes: Option<mpsc::Receiver<(u16, u16)>>,
    /// Keys that end it from here; empty: none do.
    pub detach: Vec<u8>,
}

/// Carries streams until the server says how it ended.
pub async fn carry(cluster: &Cluster, path: &str, mut streams: Streams<'_>) -> Outcome {
    let (socket, protocol) = open(cluster, path, &format!("{V5}, {V4}")).await?;
    let (mut sink, mut source) = socket.split();
    let (to_server, mut queue) = mpsc::channel::<Message>(64);
    let can_close = protocol == V5;
    if let Some(mut sizes) = streams.sizes.take() {
        // A program that asks at once is to hear how large its terminal is.
        if let Some(size) = sizes.recv().await {
            let _ = sink.send(size_message(size)).await;
        }
        tokio::spawn(send_sizes(sizes, to_server.clone()));
    }
    if let Some(stdin) = streams.stdin.take() {
        let keys = Keys { wanted: std::mem::take(&mut streams.detach), seen: 0 };
        tokio::spawn(send_input(stdin, to_server.clone(), can_close, keys));
    }
    // Kept, so that the queue does not end with the input.
    let _open = to_server;
    let mut ended: Option<Value> = None;
    loop {
        let message = tokio::select! {
            message = source.next() => message,
            Some(message) = queue.recv() => {
                if sink.send(message).await.is_err() {
                    // Why is told by what still comes.
                    queue.close();
                }
                continue;
            }
        };
        let bytes = match message {
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(Ok(Message::Text(text))) => Bytes::from(text),
            Some(Ok(Message::Close(_))) | None => break,
            Some(Ok(_)) => continue,
            Some(Err(error)) if ended.is_none() => {
                return Err(format!("error reading from the stream: {error}").into());
            }
            Some(Err(_)) => break,
        };
        let Some(stream) = bytes.first() else { continue };
        let body = &bytes[1..];
        match *stream {
            STDOUT => put(streams.stdout, body)?,
            STDERR => put(streams.stderr, body)?,
            ERROR if !body.is_empty() => ended = serde_json::from_slice(body).ok(),
            _ => {}
        }
    }
    let _ = sink.close().await;
    verdict(ended.as_ref())
}

fn put(out: &mut (dyn Write + Send), bytes: &[u8]) -> Outcome {
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

async fn send_input(
    mut stdin: Box<dyn AsyncRead + Send + Unpin>,
    to_server: mpsc::Sender<Message>,
    can_close: bool,
    mut keys: Keys,
) {
    let mut buffer = vec![0; 32 << 10];
    loop {
        match stdin.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(length) => {
                let (typed, ends) = keys.pass(&buffer[..length]);
                let mut message = vec![STDIN];
                message.extend_from_slice(&typed);
                if !typed.is_empty() && to_server.send(Message::binary(message)).await.is_err() {
                    return;
                }
                if ends {
                    let _ = to_server.send(Message::Close(None)).await;
                    return;
                }
            }
        }
    }
    if can_close {
        let _ = to_server.send(Message::binary(vec![CLOSE, STDIN])).await;
    }
}

/// Watches what is typed for keys that end an attachment.
struct Keys {
    wanted: Vec<u8>,
    /// How many of them have been typed, and are held back.
    seen: usize,
}

impl Keys {
    /// What goes on to the server, and whether it ends here.
    fn pass(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        if self.wanted.is_empty() {
            return (typed.to_vec(), false);
        }
        let mut passed = Vec::new();
        for byte in typed {
            if self.wanted.get(self.seen) == Some(byte) {
                self.seen += 1;
                if self.seen == self.wanted.len() {
                    return (passed, true);
                }
                continue;
            }
            passed.extend_from_slice(&self.wanted[..self.seen]);
            self.seen = usize::from(self.wanted[0] == *byte);
            if self.seen == 0 {
                passed.push(*byte);
            }
        }
        (passed, false)
    }
}

/// `ctrl-p,ctrl-q` as a terminal sends it.
pub fn keys(text: &str) -> Outcome<Vec<u8>> {
    let key = |name: &str| match (name.strip_prefix("ctrl-"), name.as_bytes()) {
        (Some(letter), _) if letter.len() == 1 => {
            Ok(letter.to_ascii_uppercase().as_bytes()[0] & 0x1f)
        }
        (None, [byte]) => Ok(*byte),
        _ => Err(Failure::Plain(format!("unknown character: '{name}'"))),
    };
    text.split(',').filter(|name| !name.is_empty()).map(key).collect()
}

async fn send_sizes(mut sizes: mpsc::Receiver<(u16, u16)>, to_server: mpsc::Sender<Message>) {
    while let Some(size) = sizes.recv().await {
        if to_server.send(size_message(size)).await.is_err() {
            return;
        }
    }
}

fn size_message((width, height): (u16, u16)) -> Message {
    let mut message = vec![RESIZE];
    let size = serde_json::json!({ "Width": width, "Height": height });
    message.extend_from_slice(size.to_string().as_bytes());
    Message::binary(message)
}

/// What the last word of a stream means: how a command ended is our own end.
fn verdict(status: Option<&Value>) -> Outcome {
    let Some(status) = status else { return Ok(()) };
    if status["status"] != "Failure" {
        return Ok(());
    }
    let message = status["message"].as_str().unwrap_or_default();
    if status["reason"] == "NonZeroExitCode" {
        let causes = status["details"]["causes"].as_array().into_iter().flatten();
        let code = causes
            .filter(|cause| cause["reason"] == "ExitCode")
            .find_map(|cause| cause["message"].as_str()?.parse::<u8>().ok());
        if let Some(code) = code {
            let text = format!("command terminated with exit code {code}");
            return Err(Failure::Said { text, code });
        }
    }
    Err(Failure::Plain(message.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_end_an_attachment_and_others_go_on() {
        let mut watch = Keys { wanted: keys("ctrl-p,ctrl-q").unwrap(), seen: 0 };
        assert_eq!(watch.pass(b"ab\x10"), (b"ab".to_vec(), false));
        assert_eq!(watch.pass(b"c"), (b"\x10c".to_vec(), false));
        assert_eq!(watch.pass(b"\x10\x10"), (b"\x10".to_vec(), false));
        assert_eq!(watch.pass(b"\x11"), (Vec::new(), true));
        assert!(keys("ctrl-").is_err() && keys("").unwrap().is_empty());
    }

    #[test]
    fn a_command_s_exit_code_is_ours() {
        let status = json!({ "status": "Failure", "reason": "NonZeroExitCode", "message": "x",
            "details": { "causes": [{ "reason": "ExitCode", "message": "42" }] } });
        let failure = verdict(Some(&status)).unwrap_err();
        assert_eq!(
            (failure.code(), &*failure.message()),
            (42, "command terminated with exit code 42")
        );
        assert!(verdict(Some(&json!({ "status": "Success" }))).is_ok() && verdict(None).is_ok());
        let failure = verdict(Some(&json!({ "status": "Failure", "message": "no" }))).unwrap_err();
        assert_eq!((failure.code(), &*failure.message()), (1, "error: no"));
    }
}
