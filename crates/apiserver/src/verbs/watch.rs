//! watch: the cache's events, as the selector sees them, until somebody stops.
use super::Context;
use super::paging::{self, parse_version};
use crate::answer::{self, Answer, Body, View};
use crate::definitions;
use crate::request::Call;
use crate::resources::{ApiServer, range, status_of};
use crate::selection::Selection;
use crate::stored;
use crate::websocket;
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
use std::sync::Arc;
use std::time::Duration;
use store::KeyValue;
use store::cache::{At, CacheWatch, Item, Selection as Wanted};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// How often a client that asked for bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long a watch lives when the client does not say.
const LIFETIME: Duration = Duration::from_secs(30 * 60);
/// How long a watch goes on when its definition has changed or is gone: until what was deleted before
/// it has been told.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Longer than any watch.
const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Batches on their way to a client; one that reads slower than this waits in the cache's window.
const IN_FLIGHT: usize = 4;

pub async fn watch(context: Context<'_>) -> Result<Answer, Status> {
    let (api, call) = (context.api, context.call);
    let view = View::of_stream(context)?;
    let selection = Selection::parse(&call.query, &call.resource)?.named(&call.name);
    paging::validate(&call.query, true)?;
    let cache = api.cache(&call.resource).await?;
    let wanted = Wanted { range: range(&call.resource, &call.namespace), term: None };
    let version = parse_version(call.query.get("resourceVersion"))?;
    let asked_for_initial = call.query.flag("sendInitialEvents");
    let failed = |error| status_of(error, &call.resource);
    let events = match version {
        Some(version) if version > 0 && !asked_for_initial => {
            cache.watch(wanted, version).map_err(failed)?
        }
        _ => {
            let at = match version {
                None => At::Latest,
                Some(0) => At::Any,
                Some(version) => At::NotOlderThan(version),
            };
            cache.watch_list(wanted, at).await.map_err(failed)?
        }
    };
    let timeout = match call.query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
        _ => LIFETIME,
    };
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let stream = Stream {
        api: api.clone(),
        resource: call.resource.clone(),
        selection,
        view,
        bookmarks: call.query.flag("allowWatchBookmarks"),
        initial_end: asked_for_initial,
        events,
        sender,
    };
    api.metrics().running(call, 1);
    let ended = Ended { api: api.clone(), call: context.call.clone() };
    tokio::spawn(async move {
        let _ = tokio::time::timeout(timeout, stream.run()).await;
        drop(ended);
    });
    if websocket::is_asked_for(context.received) {
        return Ok(websocket::serve(context.received, view.encoding, receiver));
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

/// Counts a watch off when it goes, however it does.
struct Ended {
    api: ApiServer,
    call: Call,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.api.metrics().running(&self.call, -1);
    }
}

struct Stream {
    api: ApiServer,
    resource: ResourceRef,
    selection: Selection,
    view: View,
    bookmarks: bool,
    initial_end: bool,
    events: CacheWatch,
    sender: mpsc::Sender<Bytes>,
}

impl Stream {
    /// Until the client goes, the server stops, or the watch falls behind.
    async fn run(mut self) {
        let api = self.api.clone();
        let sender = self.sender.clone();
        // One timer for the whole watch: events in between must not put a bookmark off.
        let start = tokio::time::Instant::now() + BOOKMARK_EVERY;
        let mut bookmark = tokio::time::interval_at(start, BOOKMARK_EVERY);
        let mut changes = api.registry_changes();
        let over = tokio::time::sleep(FAR);
        tokio::pin!(over);
        loop {
            let mut out = Vec::new();
            tokio::select! {
                biased;
                () = api.stopping() => return,
                () = sender.closed() => return,
                () = &mut over => return,
                Ok(()) = changes.changed(), if self.resource.definition.is_some() => {
                    if !self.is_served() {
                        over.as_mut().reset(tokio::time::Instant::now() + LAST_WORDS);
                    }
                }
                _ = bookmark.tick(), if self.bookmarks => {
                    let revision = self.events.bookmark();
                    self.bookmark(revision, false, &mut out);
                }
                item = self.events.next() => match item {
                    Ok(item) => {
                        match definitions::converted_item(&api, &self.resource, item).await {
                            Ok(item) => self.write(item, &mut out),
                            Err(status) => return self.fail(&status).await,
                        }
                    }
                    Err(error) => return self.fail(&status_of(error, &self.resource)).await,
                },
            }
            if !out.is_empty() && sender.send(out.into()).await.is_err() {
                return;
            }
        }
    }

    /// Tells of a failure, which ends the watch.
    async fn fail(&self, status: &Status) {
        let mut out = Vec::new();
        self.frame(EventType::Error, json!(status), &mut out);
        let _ = self.sender.send(out.into()).await;
    }

    /// Whether objects are still what they were when the watch began.
    fn is_served(&self) -> bool {
        let Some(mine) = &self.resource.definition else { return true };
        let registry = self.api.registry();
        let resource = &self.resource;
        let found = registry.find(resource.group, resource.version, resource.plural);
        let now = found.and_then(|row| row.definition.as_ref());
        now.is_some_and(|now| {
            (&now.family.uid, now.family.generation) == (&mine.family.uid, mine.family.generation)
        })
    }

    fn write(&self, item: Item, out: &mut Vec<u8>) {
        match item {
            Item::Initial(objects) => {
                for stored in objects.iter().filter(|stored| self.selection.matches(stored)) {
                    self.object(EventType::Added, stored, out);
                }
            }
            Item::InitialEnd(revision) => {
                if self.initial_end {
                    self.bookmark(revision, true, out);
                }
            }
            Item::Events(batch) => {
                for event in &batch.events {
                    self.event(event, out);
                }
            }
        }
    }

    /// An object that comes to match is added, one that no longer does is deleted.
    fn event(&self, event: &store::Event, out: &mut Vec<u8>) {
        let was = event.prev.as_ref().filter(|prev| self.selection.matches(prev));
        let is = !event.is_delete() && self.selection.matches(&event.kv);
        match (was, is) {
            (None, true) => self.object(EventType::Added, &event.kv, out),
            (Some(_), true) => self.object(EventType::Modified, &event.kv, out),
            (Some(prev), false) => {
                // The last state, at the revision at which it went.
                let last = KeyValue { mod_revision: event.revision(), ..KeyValue::clone(prev) };
                self.object(EventType::Deleted, &Arc::new(last), out);
            }
            (None, false) => {}
        }
    }

    fn object(&self, event: EventType, stored: &KeyValue, out: &mut Vec<u8>) {
        let plain = self.view.target.is_none() && self.view.encoding == Encoding::Json;
        if plain && self.resource.is_sent_as_stored() {
            let readable = stored::check(stored, &self.resource);
            let Some(()) = self.readable(stored, readable) else { return };
            let mut object = Vec::with_capacity(stored.value.len() + 40);
            stored::write_json(stored, &mut object);
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
