//! An exec or attach session: messages from a client become a process's input, its output messages.
use std::io;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::Receiver as Pipe;
use tokio::sync::mpsc::{Receiver, Sender};

use super::{Incoming, Outgoing, Purpose, Wanted};
use crate::service::Service;
use crate::shim::protocol::chunk;

const PIECE: usize = 16 << 10;

/// Runs to the end; the last message is the status.
pub(crate) async fn run(
    service: Service,
    purpose: Purpose,
    incoming: Receiver<Incoming>,
    outgoing: Sender<Outgoing>,
) {
    let status = match purpose {
        Purpose::Exec { container, command, streams } => {
            exec(&service, &container, command, streams, incoming, &outgoing).await
        }
        Purpose::Attach { container, streams } => {
            attach(&service, &container, streams, incoming, &outgoing).await
        }
        Purpose::PortForward { .. } => failure("a port-forward is not a session"),
    };
    let _ = outgoing.send(Outgoing::Status(status)).await;
}

async fn exec(
    service: &Service,
    container: &str,
    command: Vec<String>,
    wanted: Wanted,
    mut incoming: Receiver<Incoming>,
    outgoing: &Sender<Outgoing>,
) -> Value {
    let spawned = async {
        let container = service.running(container)?;
        service.spawn(&container, command, wanted.terminal, wanted.stdin).await
    };
    let mut process = match spawned.await {
        Ok(process) => process,
        Err(status) => return failure(status.message()),
    };
    let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
    let mut stdin = process.stdin.take();
    let output = async {
        tokio::join!(
            forward(stdout, outgoing, wanted.stdout, Outgoing::Stdout),
            forward(stderr, outgoing, wanted.stderr, Outgoing::Stderr)
        )
    };
    tokio::pin!(output);
    let mut output_done = false;
    let code = loop {
        tokio::select! {
            _ = &mut output, if !output_done => output_done = true,
            code = process.wait(), if output_done => break code,
            message = incoming.recv() => match message {
                Some(Incoming::Stdin(bytes)) => {
                    if let Some(pipe) = &mut stdin
                        && pipe.write_all(&bytes).await.is_err()
                    {
                        stdin = None;
                    }
                }
                Some(Incoming::StdinClosed) => stdin = None,
                Some(Incoming::Resize(width, height)) => process.resize(width, height),
                None => {
                    // The client is gone, and nobody else can reach the process.
                    process.kill();
                    return failure("the client is gone");
                }
            }
        }
    };
    exit_status(code)
}

async fn attach(
    service: &Service,
    container: &str,
    wanted: Wanted,
    mut incoming: Receiver<Incoming>,
    outgoing: &Sender<Outgoing>,
) -> Value {
    let container = match service.running(container) {
        Ok(container) => container,
        Err(status) => return failure(status.message()),
    };
    let stream = match service.attach_to(&container, wanted.stdin).await {
        Ok(stream) => stream,
        Err(status) => return failure(status.message()),
    };
    let (mut read, mut write) = stream.into_split();
    let output = async {
        loop {
            let mut header = [0; chunk::HEADER];
            read.read_exact(&mut header).await?;
            let (stream, length) = chunk::parse(header);
            let mut bytes = vec![0; length];
            read.read_exact(&mut bytes).await?;
            let message = match stream {
                chunk::STDERR if wanted.stderr => Outgoing::Stderr(bytes.into()),
                chunk::STDOUT if wanted.stdout => Outgoing::Stdout(bytes.into()),
                _ => continue,
            };
            if outgoing.send(message).await.is_err() {
                return io::Result::Ok(());
            }
        }
    };
    tokio::pin!(output);
    loop {
        tokio::select! {
            _ = &mut output => return success(),
            message = incoming.recv() => {
                let sent = match message {
                    Some(Incoming::Stdin(bytes)) if wanted.stdin => send(&mut write, &bytes).await,
                    Some(Incoming::StdinClosed) if wanted.stdin => send(&mut write, &[]).await,
                    Some(Incoming::Resize(width, height)) => {
                        service.resize(&container, width, height).await;
                        Ok(())
                    }
                    Some(_) => Ok(()),
                    None => return failure("the client is gone"),
                };
                if sent.is_err() {
                    return success();
                }
            }
        }
    }
}

async fn send(write: &mut tokio::net::unix::OwnedWriteHalf, bytes: &[u8]) -> io::Result<()> {
    write.write_all(&chunk::header(chunk::STDIN, bytes.len())).await?;
    write.write_all(bytes).await
}

async fn forward(
    pipe: Option<Pipe>,
    outgoing: &Sender<Outgoing>,
    wanted: bool,
    message: fn(Bytes) -> Outgoing,
) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; PIECE];
    // A terminal whose last user has gone ends with an error.
    while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
        let bytes = Bytes::copy_from_slice(&buffer[..read]);
        if wanted && outgoing.send(message(bytes)).await.is_err() {
            return;
        }
    }
}

fn exit_status(code: io::Result<i32>) -> Value {
    match code {
        Ok(0) => success(),
        Ok(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "reason": "NonZeroExitCode",
            "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
        }),
        Err(error) => failure(&error.to_string()),
    }
}

/// A status as a protocol says it: as JSON since the fourth version; before, only what failed is told,
/// in words (upstream's `v1WriteStatusFunc`).
pub(super) fn told(status: &Value, protocol: &str) -> Option<Bytes> {
    if protocol.starts_with("v4.") || protocol.starts_with("v5.") {
        return Some(Bytes::from(status.to_string()));
    }
    let failed = status["status"] != "Success";
    failed.then(|| Bytes::from(status["message"].as_str().unwrap_or_default().to_owned()))
}

fn success() -> Value {
    json!({ "metadata": {}, "status": "Success" })
}

pub(super) fn failure(message: &str) -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "InternalError",
        "details": { "causes": [{ "message": message }] },
        "code": 500,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_protocols_hear_of_failures_only() {
        let failed = exit_status(Ok(3));
        let words = "command terminated with non-zero exit code: exit status 3";
        for protocol in [
            "",
            "channel.k8s.io",
            "base64.channel.k8s.io",
            "v2.channel.k8s.io",
            "v3.channel.k8s.io",
        ] {
            assert_eq!(told(&success(), protocol), None, "{protocol}");
            assert_eq!(told(&failed, protocol).as_deref(), Some(words.as_bytes()), "{protocol}");
        }
        for protocol in ["v4.channel.k8s.io", "v5.channel.k8s.io", "v4.base64.channel.k8s.io"] {
            let text = success().to_string();
            assert_eq!(told(&success(), protocol).as_deref(), Some(text.as_bytes()), "{protocol}");
        }
    }
}
