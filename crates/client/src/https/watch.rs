//! The events of a watch, out of the body they come in.
//!
//! Events are lines. Nothing is read ahead of whoever takes the events but what the connection's window
//! lets the server send.
use super::codec;
use crate::http::Body;
use crate::source::{Event, Watch};
use api::meta::{EventType, WatchEvent};
use api::object::Object;
use api::status::Status;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use serde_json::value::RawValue;
use std::sync::Arc;

/// What an event may weigh: more than any server stores.
const MOST: usize = 64 << 20;

struct Reading {
    body: Body,
    buffer: BytesMut,
    /// How far the buffer is known to have no line's end.
    looked: usize,
}

pub(super) fn events(body: Body) -> Watch {
    let reading = Reading { body, buffer: BytesMut::new(), looked: 0 };
    let events = stream::unfold(Some(reading), |reading| async {
        let mut reading = reading?;
        match reading.next().await {
            Ok(Some(event)) => Some((Ok(event), Some(reading))),
            Ok(None) => None,
            Err(status) => Some((Err(status), None)),
        }
    });
    events.boxed()
}

impl Reading {
    async fn next(&mut self) -> Result<Option<Event>, Status> {
        loop {
            while let Some(frame) = self.frame()? {
                if let Some(event) = event(&frame)? {
                    return Ok(Some(event));
                }
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(super::broken(error)),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }

    /// A whole event's bytes, if they are there.
    fn frame(&mut self) -> Result<Option<Bytes>, Status> {
        match memchr::memchr(b'\n', &self.buffer[self.looked..]) {
            Some(end) => {
                let frame = self.buffer.split_to(self.looked + end + 1).freeze();
                self.looked = 0;
                Ok(Some(frame))
            }
            None if self.buffer.len() > MOST => Err(codec::unreadable(&"an event is too large")),
            None => {
                self.looked = self.buffer.len();
                Ok(None)
            }
        }
    }
}

/// Nothing for an event of a type that we do not know.
fn event(frame: &[u8]) -> Result<Option<Event>, Status> {
    if frame.trim_ascii().is_empty() {
        return Ok(None);
    }
    let event: WatchEvent<&RawValue> =
        serde_json::from_slice(frame).map_err(|error| codec::unreadable(&error))?;
    let (kind, object) = (event.r#type.as_str(), event.object.get().as_bytes());
    if kind == EventType::Error.as_str() {
        let unknown = || Status::internal_error("the server ended a watch without a reason");
        return Err(codec::status(object).unwrap_or_else(unknown));
    }
    let object = Object::received(Bytes::copy_from_slice(object));
    let object = object.map_err(|error| codec::unreadable(&error))?;
    Ok(match kind {
        "ADDED" => Some(Event::Added(Arc::new(object))),
        "MODIFIED" => Some(Event::Modified(Arc::new(object))),
        "DELETED" => Some(Event::Deleted(Arc::new(object))),
        "BOOKMARK" => Some(bookmark(&object)),
        _ => None,
    })
}

fn bookmark(object: &Object) -> Event {
    let end = object.metadata().annotations.get("k8s.io/initial-events-end");
    Event::Bookmark { revision: object.revision(), initial_events_end: end == Some("true") }
}
