//! A client's half of streams to containers over WebSocket: exec, attach and ports, and the terminal
//! that they are typed in.
//!
//! **It may not know** who serves a stream, nor how one comes by the connection: kubectl's leads to an
//! API server, crictl's to a container runtime.
//!
//! The first byte of a message says which stream it belongs to (`v5.channel.k8s.io`, which can also
//! close a stream; `v4.channel.k8s.io` for servers that know no better).
#![forbid(unsafe_code)]

pub mod forward;
pub mod terminal;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use std::io::Write;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

pub const STDIN: u8 = 0;
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
pub const ERROR: u8 = 3;
pub const RESIZE: u8 = 4;
/// The next byte names a stream that is at its end.
pub const CLOSE: u8 = 255;

const V5: &str = "v5.channel.k8s.io";

/// What a client of exec and attach offers to speak, the best first.
pub const PROTOCOLS: &str = "v5.channel.k8s.io, v4.channel.k8s.io";
/// What a client of ports speaks.
pub const PORT_PROTOCOL: &str = "v4.channel.k8s.io";

/// How a stream ended that did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("command terminated with exit code {0}")]
    Exit(u8),
    /// What the other side says, or why it can say nothing more.
    #[error("{0}")]
    Failed(String),
    #[error("unknown character: '{0}'")]
    Key(String),
    #[error(transparent)]
    Io(#[from] std::io::Error),
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

/// Carries streams until the server says how it ended; `protocol` is the one of [`PROTOCOLS`] that it
/// chose.
pub async fn carry<S: AsyncRead + AsyncWrite + Unpin>(
    socket: WebSocketStream<S>,
    protocol: &str,
    mut streams: Streams<'_>,
) -> Result<(), Error> {
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
                return Err(Error::Failed(format!("error reading from the stream: {error}")));
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

fn put(out: &mut (dyn Write + Send), bytes: &[u8]) -> std::io::Result<()> {
    out.write_all(bytes)?;
    out.flush()
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
pub fn keys(text: &str) -> Result<Vec<u8>, Error> {
    let key = |name: &str| match (name.strip_prefix("ctrl-"), name.as_bytes()) {
        (Some(letter), _) if letter.len() == 1 => {
            Ok(letter.to_ascii_uppercase().as_bytes()[0] & 0x1f)
        }
        (None, [byte]) => Ok(*byte),
        _ => Err(Error::Key(name.to_owned())),
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
fn verdict(status: Option<&Value>) -> Result<(), Error> {
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
            return Err(Error::Exit(code));
        }
    }
    Err(Error::Failed(message.to_owned()))
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
        let error = verdict(Some(&status)).unwrap_err();
        assert!(matches!(error, Error::Exit(42)));
        assert_eq!(error.to_string(), "command terminated with exit code 42");
        assert!(verdict(Some(&json!({ "status": "Success" }))).is_ok() && verdict(None).is_ok());
        let error = verdict(Some(&json!({ "status": "Failure", "message": "no" }))).unwrap_err();
        assert_eq!(error.to_string(), "no");
    }
}
