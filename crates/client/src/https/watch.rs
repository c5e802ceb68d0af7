//! The events of a watch, out of the body they come in.
//!
//! JSON events are lines, protobuf ones have their length before them. Nothing is read ahead of
//! whoever takes the events but what the connection's window lets the server send.
use super::codec::{self, Form};
use crate::http::Body;
use crate::resource::ApiResource;
use crate::source::{Event, Watch};
use api::codec::protobuf;
use api::meta::{EventType, WatchEvent};
use api::object::Object;
use api::status::Status;
use bytes::{Buf, Bytes, BytesMut};
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
    form: Form,
    resource: ApiResource,
}

pub(super) fn events(body: Body, form: Form, resource: ApiResource) -> Watch {
    let reading = Reading { body, buffer: BytesMut::new(), looked: 0, form, resource };
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
                if let Some(event) = event(&frame, self.form, &self.resource)? {
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
        let length = match self.form {
            Form::Json => {
                let end = self.buffer[self.looked..].iter().position(|byte| *byte == b'\n');
                match end {
                    Some(end) => Some(self.looked + end + 1),
                    None => {
                        self.looked = self.buffer.len();
                        None
                    }
                }
            }
            Form::Protobuf => {
                let Some(head) = self.buffer.first_chunk::<4>() else { return Ok(None) };
                let length = u32::from_be_bytes(*head) as usize;
                if length > MOST {
                    return Err(codec::unreadable(&"an event is too large"));
                }
                (self.buffer.len() >= 4 + length).then_some(4 + length)
            }
        };
        match length {
            Some(length) => {
                self.looked = 0;
                let mut frame = self.buffer.split_to(length).freeze();
                if self.form == Form::Protobuf {
                    frame.advance(4);
                }
                Ok(Some(frame))
            }
            None if self.buffer.len() > MOST => Err(codec::unreadable(&"an event is too large")),
            None => Ok(None),
        }
    }
}

/// Nothing for an event of a type that we do not know.
fn event(frame: &[u8], form: Form, resource: &ApiResource) -> Result<Option<Event>, Status> {
    if frame.trim_ascii().is_empty() {
        return Ok(None);
    }
    let (kind, object) = match form {
        Form::Json => {
            let event: WatchEvent<&RawValue> =
                serde_json::from_slice(frame).map_err(|error| codec::unreadable(&error))?;
            (event.r#type.as_str().to_owned(), event.object.get().as_bytes())
        }
        Form::Protobuf => {
            protobuf::decode_watch_event(frame).map_err(|error| codec::unreadable(&error))?
        }
    };
    if kind == EventType::Error.as_str() {
        let unknown = || Status::internal_error("the server ended a watch without a reason");
        return Err(codec::status(object, form).unwrap_or_else(unknown));
    }
    let object = codec::object(object, form, resource)?;
    Ok(match &*kind {
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
