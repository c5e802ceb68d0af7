//! watch: what is followed, in the client's encoding, until somebody stops.
use super::Context;
use super::told::{Telling, Told};
use crate::answer::websocket;
use crate::answer::{self, Answer, Body, View};
use crate::call::Call;
use crate::server::ApiServer;
use crate::state::stored;
use api::codec::object::Encoding;
use api::codec::protobuf;
use api::kinds::ResourceRef;
use api::meta::{EventType, write_watch_event};
use api::status::Status;
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use store::KeyValue;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Batches on their way to a client; one that reads slower than this waits in the cache's window.
const IN_FLIGHT: usize = 4;

pub async fn watch(context: Context<'_>) -> Result<Answer, Status> {
    let (api, call) = (context.api, context.call);
    let view = context.stream_view()?;
    let telling = Telling::start(api, call).await?;
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let writer = Writer { api: api.clone(), resource: call.resource.clone(), view };
    let running = Running::new(api, call);
    tokio::spawn(async move {
        writer.run(telling, sender).await;
        drop(running);
    });
    let received = context.received;
    if websocket::is_asked_for(&received.headers) {
        let upgrade = received.upgrade.lock().ok().and_then(|mut upgrade| upgrade.take());
        return Ok(websocket::serve(&received.headers, upgrade, view.encoding, receiver));
    }
    let frames = ReceiverStream::new(receiver).map(|batch| Ok(Frame::data(batch)));
    let mut answer: Response<Body> = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    *answer.status_mut() = StatusCode::OK;
    let media = match view.encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    };
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    Ok(answer)
}

/// A watch that is counted, and counted off when it goes, however it does.
pub struct Running {
    api: ApiServer,
    call: Call,
}

impl Running {
    pub fn new(api: &ApiServer, call: &Call) -> Running {
        api.metrics().running(call, 1);
        Running { api: api.clone(), call: call.clone() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.api.metrics().running(&self.call, -1);
    }
}

/// Writes what is told as the client wants it.
struct Writer {
    api: ApiServer,
    resource: ResourceRef,
    view: View,
}

impl Writer {
    /// Until the client goes or there is nothing more to tell.
    async fn run(&self, mut telling: Telling, sender: mpsc::Sender<Bytes>) {
        loop {
            let next = tokio::select! {
                biased;
                () = sender.closed() => return,
                next = telling.next() => next,
            };
            let mut out = Vec::new();
            match next {
                None => return,
                Some(Ok(told)) => told.iter().for_each(|told| self.write(told, &mut out)),
                Some(Err(status)) => {
                    self.frame(EventType::Error, json!(status), &mut out);
                    let _ = sender.send(out.into()).await;
                    return;
                }
            }
            if !out.is_empty() && sender.send(out.into()).await.is_err() {
                return;
            }
        }
    }

    fn write(&self, told: &Told, out: &mut Vec<u8>) {
        match told {
            Told::Object(event, stored) => self.object(*event, stored, out),
            Told::Bookmark { revision, initial_end } => self.bookmark(*revision, *initial_end, out),
        }
    }

    fn object(&self, event: EventType, stored: &KeyValue, out: &mut Vec<u8>) {
        let plain = self.view.target.is_none() && self.view.encoding == Encoding::Json;
        if plain {
            let mut object = Vec::with_capacity(stored.value.len() + 40);
            let written = stored::write_read(stored, &self.resource, &mut object);
            let Some(()) = self.readable(stored, written) else { return };
            return write_watch_event(out, event, &object);
        }
        let is_table = self.view.target.is_some_and(|target| target.kind == "Table");
        if self.view.encoding == Encoding::Protobuf && !is_table {
            let object = answer::in_protobuf(stored, &self.resource, &self.view);
            let Some(object) = self.readable(stored, object) else { return };
            return protobuf_frame(event, &object, out);
        }
        let object = stored::decode(stored, &self.resource);
        let Some(object) = self.readable(stored, object) else { return };
        self.frame(event, object, out);
    }

    fn readable<T>(&self, stored: &KeyValue, read: Result<T, Status>) -> Option<T> {
        self.api.unreadable().skip(stored, &self.resource, read)
    }

    fn bookmark(&self, revision: u64, initial_end: bool, out: &mut Vec<u8>) {
        let mut object = json!({
            "kind": self.resource.kind, "apiVersion": self.resource.api_version(),
            "metadata": { "resourceVersion": revision.to_string() },
        });
        if initial_end {
            object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        self.frame(EventType::Bookmark, object, out);
    }

    /// One event in the client's encoding and form.
    fn frame(&self, event: EventType, object: Value, out: &mut Vec<u8>) {
        let object = match self.view.target.map(|target| target.kind) {
            _ if event == EventType::Error => object,
            Some("PartialObjectMetadata") => answer::partial(object["metadata"].clone()),
            Some("Table") => answer::table_of(&object, &self.resource, &self.view),
            _ => object,
        };
        match self.view.encoding {
            Encoding::Protobuf => {
                let ty = match (event, self.view.target) {
                    (EventType::Error, _) => answer::meta_type("Status"),
                    (_, Some(target)) => answer::meta_type(target.kind),
                    (_, None) => Some(self.resource.ty()),
                };
                let Some(ty) = ty else { return };
                protobuf_frame(event, &protobuf::encode(&object, ty), out);
            }
            // YAML has no frames: negotiation offers it for no watch.
            _ => write_watch_event(out, event, object.to_string().as_bytes()),
        }
    }
}

/// Length (four bytes, big endian), then a `WatchEvent` whose object is in an envelope of its own.
fn protobuf_frame(event: EventType, object: &[u8], out: &mut Vec<u8>) {
    let frame = protobuf::encode_watch_event(event.as_str(), object);
    out.extend_from_slice(&u32::try_from(frame.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&frame);
}
