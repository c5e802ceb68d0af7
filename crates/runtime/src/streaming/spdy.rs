//! Streams over SPDY/3.1, for clients that know nothing newer. Each stream says in its headers what
//! it is for; a port-forward has a pair of streams, data and errors, for each connection.
use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming as Body;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::spdy_frame::{
    FIN, Frame, GOAWAY, HeaderReader, HeaderWriter, PING, RST_STREAM, SYN_REPLY, SYN_STREAM,
    control, data, read,
};
use super::websocket::resize;
use super::{Incoming, Outgoing, Purpose, QUEUE, forward, negotiate, offered, session, text};
use crate::service::Service;

const EXEC_PROTOCOLS: &[&str] =
    &["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
const FORWARD_PROTOCOLS: &[&str] = &["portforward.k8s.io"];
const HEADER: &str = "x-stream-protocol-version";
/// How long a client may take to open its streams, and to go when all is said.
const PATIENCE: Duration = Duration::from_secs(30);

/// Frames to be written, from whoever has one.
type Frames = Sender<Vec<u8>>;

pub(super) fn accept(
    request: &Request<Body>,
    upgrade: OnUpgrade,
    purpose: Purpose,
    service: Service,
) -> Response<Full<Bytes>> {
    let ours = match purpose {
        Purpose::PortForward { .. } => FORWARD_PROTOCOLS,
        _ => EXEC_PROTOCOLS,
    };
    let offers = offered(request, HEADER);
    let protocol = match negotiate(&offers, ours) {
        Some(protocol) => protocol,
        // One that names none gets the oldest.
        None if offers.is_empty() => ours[ours.len() - 1],
        None => return text(StatusCode::FORBIDDEN, "no protocol in common"),
    };
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let (read, mut write) = tokio::io::split(TokioIo::new(upgraded));
        let (frames, mut queue) = mpsc::channel::<Vec<u8>>(QUEUE);
        let writing = tokio::spawn(async move {
            while let Some(frame) = queue.recv().await {
                if write.write_all(&frame).await.is_err() {
                    break;
                }
            }
            let _ = write.shutdown().await;
        });
        match purpose {
            Purpose::PortForward { sandbox, .. } => {
                forward_ports(service, sandbox, read, frames).await;
            }
            purpose => serve(service, purpose, read, frames, protocol).await,
        }
        let _ = tokio::time::timeout(PATIENCE, writing).await;
    });
    let response = super::switching("SPDY/3.1").header(HEADER, protocol);
    response.body(Full::default()).unwrap_or_default()
}

/// What a client does, with the protocol's own chores done.
enum Event {
    Opened { stream: u32, headers: HashMap<String, String> },
    Data { stream: u32, bytes: Bytes, last: bool },
    Reset(u32),
}

/// One end of a connection: reads frames, answers what only needs an answer.
struct Connection<R> {
    source: R,
    headers: HeaderReader,
    replies: HeaderWriter,
    frames: Frames,
}

impl<R: AsyncRead + Unpin> Connection<R> {
    fn new(source: R, frames: Frames) -> Self {
        Connection { source, headers: HeaderReader::new(), replies: HeaderWriter::new(), frames }
    }

    /// None at the end of the connection.
    async fn next(&mut self) -> Option<Event> {
        loop {
            match read(&mut self.source).await.ok()? {
                Frame::Data { stream, flags, body } => {
                    let last = flags & FIN != 0;
                    return Some(Event::Data { stream, bytes: body.into(), last });
                }
                Frame::Control { kind: SYN_STREAM, body } => {
                    let (fixed, block) = body.split_at_checked(10)?;
                    let stream = u32::from_be_bytes(fixed[..4].try_into().ok()?) & 0x7fff_ffff;
                    let headers = self.headers.read(block)?;
                    let mut reply = stream.to_be_bytes().to_vec();
                    reply.extend(self.replies.write(&[]));
                    self.frames.send(control(SYN_REPLY, 0, &reply)).await.ok()?;
                    let headers = headers
                        .into_iter()
                        .map(|(name, value)| (name.to_ascii_lowercase(), value))
                        .collect();
                    return Some(Event::Opened { stream, headers });
                }
                Frame::Control { kind: PING, body } => {
                    self.frames.send(control(PING, 0, &body)).await.ok()?;
                }
                Frame::Control { kind: RST_STREAM, body } => {
                    let stream = u32::from_be_bytes(body.get(..4)?.try_into().ok()?);
                    return Some(Event::Reset(stream));
                }
                Frame::Control { kind: GOAWAY, .. } => return None,
                Frame::Control { .. } => {}
            }
        }
    }
}

/// An exec or attach session.
async fn serve<R: AsyncRead + Unpin + Send + 'static>(
    service: Service,
    purpose: Purpose,
    source: R,
    frames: Frames,
    protocol: &'static str,
) {
    let wanted = match &purpose {
        Purpose::Exec { streams, .. } | Purpose::Attach { streams, .. } => *streams,
        Purpose::PortForward { .. } => return,
    };
    let resizes =
        wanted.terminal && protocol != "v2.channel.k8s.io" && protocol != "channel.k8s.io";
    let expected = 1
        + usize::from(wanted.stdin)
        + usize::from(wanted.stdout)
        + usize::from(wanted.stderr && !wanted.terminal)
        + usize::from(resizes);
    let mut connection = Connection::new(source, frames.clone());
    let mut streams: HashMap<String, u32> = HashMap::new();
    let opening = async {
        while streams.len() < expected {
            if let Event::Opened { stream, headers } = connection.next().await? {
                let kind = headers.get("streamtype").cloned().unwrap_or_default();
                streams.insert(kind, stream);
            }
        }
        Some(())
    };
    if !matches!(tokio::time::timeout(PATIENCE, opening).await, Ok(Some(()))) {
        return;
    }
    let (to_session, incoming) = mpsc::channel(QUEUE);
    let (outgoing, from_session) = mpsc::channel(QUEUE);
    let session = tokio::spawn(session::run(service, purpose, incoming, outgoing));
    let (stdin, resizing) = (streams.get("stdin").copied(), streams.get("resize").copied());
    let receiving = tokio::spawn(async move {
        let mut sizes = Vec::new();
        while let Some(event) = connection.next().await {
            let mut messages = Vec::new();
            match event {
                Event::Data { stream, bytes, last } if Some(stream) == stdin => {
                    if !bytes.is_empty() {
                        messages.push(Incoming::Stdin(bytes));
                    }
                    if last {
                        messages.push(Incoming::StdinClosed);
                    }
                }
                Event::Data { stream, bytes, .. } if Some(stream) == resizing => {
                    // One JSON object after the other, however they are cut.
                    sizes.extend_from_slice(&bytes);
                    while let Some(end) = sizes.iter().position(|byte| *byte == b'}') {
                        let object: Vec<u8> = sizes.drain(..=end).collect();
                        messages.extend(resize(&object));
                    }
                }
                Event::Reset(stream) if Some(stream) == stdin => {
                    messages.push(Incoming::StdinClosed);
                }
                _ => {}
            }
            for message in messages {
                // When the session is over the rest is read and dropped.
                let _ = to_session.send(message).await;
            }
        }
    });
    send_all(from_session, &streams, &frames, protocol).await;
    let _ = session.await;
    drop(frames);
    let _ = tokio::time::timeout(Duration::from_secs(5), receiving).await;
}

async fn send_all(
    mut messages: Receiver<Outgoing>,
    streams: &HashMap<String, u32>,
    frames: &Frames,
    protocol: &str,
) {
    while let Some(message) = messages.recv().await {
        let (kind, bytes) = match message {
            Outgoing::Stdout(bytes) => ("stdout", bytes),
            Outgoing::Stderr(bytes) => ("stderr", bytes),
            Outgoing::Status(status) => match session::told(&status, protocol) {
                Some(bytes) => ("error", bytes),
                None => continue,
            },
        };
        if let Some(stream) = streams.get(kind)
            && frames.send(data(*stream, 0, &bytes)).await.is_err()
        {
            return;
        }
    }
    for kind in ["stdout", "stderr", "error"] {
        if let Some(stream) = streams.get(kind) {
            let _ = frames.send(data(*stream, FIN, &[])).await;
        }
    }
}

/// Every pair of streams is a connection of its own.
async fn forward_ports(
    service: Service,
    sandbox: String,
    source: impl AsyncRead + Unpin,
    frames: Frames,
) {
    let mut connection = Connection::new(source, frames.clone());
    /// A pair on its way to be whole.
    #[derive(Default)]
    struct Pair {
        error: Option<u32>,
        data: Option<u32>,
        port: u16,
    }
    let mut pairs: HashMap<String, Pair> = HashMap::new();
    let mut inputs: HashMap<u32, Sender<Bytes>> = HashMap::new();
    while let Some(event) = connection.next().await {
        match event {
            Event::Opened { stream, headers } => {
                let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
                // Old clients have no request: their streams come in pairs.
                let request = match header("requestid") {
                    id if id.is_empty() => (stream.saturating_sub(1) / 4).to_string(),
                    id => id,
                };
                let pair = pairs.entry(request.clone()).or_default();
                pair.port = header("port").parse().unwrap_or(pair.port);
                match header("streamtype").as_str() {
                    "error" => pair.error = Some(stream),
                    _ => pair.data = Some(stream),
                }
                if let (Some(error), Some(data_stream)) = (pair.error, pair.data) {
                    let port = pair.port;
                    pairs.remove(&request);
                    let (input, incoming) = mpsc::channel(QUEUE);
                    inputs.insert(data_stream, input);
                    let (service, sandbox, frames) =
                        (service.clone(), sandbox.clone(), frames.clone());
                    tokio::spawn(async move {
                        pump(service, sandbox, port, incoming, frames, data_stream, error).await;
                    });
                }
            }
            Event::Data { stream, bytes, last } => {
                if let Some(input) = inputs.get(&stream) {
                    let _ = input.send(bytes).await;
                }
                if last {
                    inputs.remove(&stream);
                }
            }
            Event::Reset(stream) => drop(inputs.remove(&stream)),
        }
    }
}

async fn pump(
    service: Service,
    sandbox: String,
    port: u16,
    incoming: Receiver<Bytes>,
    frames: Frames,
    data_stream: u32,
    error: u32,
) {
    let (output, mut outputs) = mpsc::channel::<Bytes>(QUEUE);
    let sending = frames.clone();
    let pump = tokio::spawn(async move {
        while let Some(bytes) = outputs.recv().await {
            let _ = sending.send(data(data_stream, 0, &bytes)).await;
        }
    });
    let outcome = forward::copy(&service, &sandbox, port, incoming, output).await;
    let _ = pump.await;
    if let Err(message) = outcome {
        let _ = frames.send(data(error, 0, message.as_bytes())).await;
    }
    for stream in [error, data_stream] {
        let _ = frames.send(data(stream, FIN, &[])).await;
    }
}
