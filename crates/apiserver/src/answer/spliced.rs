//! A list as a stream of the stored bytes.
//!
//! The answer to a list is megabytes long, and nothing in it has to be known before it is sent. So
//! it is written piece by piece while the connection takes it: a slow client holds on to a few
//! objects that others share, not to a copy of everything, and a piece is still in the processor's
//! cache when it is encrypted.
use crate::state::stored;
use crate::state::unreadable::Unreadable;
use api::kinds::ResourceRef;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use store::KeyValue;

/// A piece is made when the one before it was sent, and is about so long.
const PIECE: usize = 64 << 10;
/// It is sent in frames of this length: with the nine bytes that HTTP/2 puts before each, one fills a
/// record of TLS.
const FRAME: usize = (16 << 10) - 9;

/// What a piece takes if objects are not large.
const ROOM: usize = PIECE + (4 << 10);

/// What an object is longer when it is sent than when it is stored, at most.
const MORE: usize = 64;

/// Objects that are fetched from memory at once: a processor waits for a dozen as long as for one.
const TOGETHER: usize = 16;

pub struct Spliced {
    objects: std::vec::IntoIter<Arc<KeyValue>>,
    resource: ResourceRef,
    unreadable: Arc<Unreadable>,
    /// Bytes of those objects as they are stored.
    values: usize,
    /// What is left of the piece that is being sent: whole frames, but for the last piece.
    piece: Bytes,
    /// How the next piece begins: with what made no whole frame.
    over: Vec<u8>,
    /// Others had a turn since the last piece.
    paused: bool,
}

impl Spliced {
    pub fn new(
        objects: Vec<Arc<KeyValue>>,
        resource: ResourceRef,
        metadata: &Value,
        unreadable: Arc<Unreadable>,
    ) -> Spliced {
        let head = json!({
            "kind": resource.list_kind, "apiVersion": resource.api_version(), "metadata": metadata,
        });
        let mut over = head.to_string().into_bytes();
        over.pop();
        let end: &[u8] = if objects.is_empty() { b",\"items\":[]}" } else { b",\"items\":[" };
        over.extend_from_slice(end);
        let values = objects.iter().map(|stored| stored.value.len()).sum();
        let objects = objects.into_iter();
        let piece = Bytes::new();
        let mut spliced =
            Spliced { objects, resource, unreadable, values, piece, over, paused: false };
        spliced.make();
        spliced
    }

    /// Goes on with a piece until it is long enough or nothing is left.
    fn fill(&mut self, mut piece: Vec<u8>) -> Vec<u8> {
        let mut written = 0;
        'piece: for some in self.objects.as_slice().chunks(TOGETHER) {
            some.iter().for_each(|stored| fetch(&stored.value));
            for stored in some {
                if piece.len() >= PIECE {
                    break 'piece;
                }
                piece.reserve(stored.value.len() + MORE);
                let before = piece.len();
                let read = stored::write_read(stored, &self.resource, &mut piece);
                match self.unreadable.skip(stored, &self.resource, read) {
                    Some(()) => piece.push(b','),
                    None => piece.truncate(before),
                }
                self.values -= stored.value.len();
                written += 1;
            }
        }
        // All together: letting go of one waits until what was just written has left the processor.
        self.objects.by_ref().take(written).for_each(drop);
        if written > 0 && self.objects.len() == 0 {
            piece.pop_if(|last| *last == b',');
            piece.extend_from_slice(b"]}");
        }
        piece
    }

    /// Makes the next piece.
    fn make(&mut self) {
        let over = std::mem::take(&mut self.over);
        let mut piece = self.fill(over);
        if self.objects.len() > 0 {
            let whole = piece.len() - piece.len() % FRAME;
            self.over.reserve_exact(ROOM);
            self.over.extend_from_slice(&piece[whole..]);
            piece.truncate(whole);
        }
        self.piece = piece.into();
    }
}

/// Has the processor read the beginning; the rest it fetches by itself once it sees the order.
fn fetch(bytes: &[u8]) {
    for at in [0, 64, 128] {
        std::hint::black_box(bytes.get(at).copied());
    }
}

impl Body for Spliced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.piece.is_empty() {
            if self.is_end_stream() {
                return Poll::Ready(None);
            }
            if !std::mem::replace(&mut self.paused, true) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.paused = false;
            self.make();
        }
        let frame = self.piece.len().min(FRAME);
        Poll::Ready(Some(Ok(Frame::data(self.piece.split_to(frame)))))
    }

    fn is_end_stream(&self) -> bool {
        self.piece.is_empty() && self.objects.len() == 0
    }

    /// To know the length of a long list before it is made would take another look at each object.
    fn size_hint(&self) -> SizeHint {
        let made = self.piece.len() + self.over.len();
        if self.objects.len() == 0 {
            return SizeHint::with_exact(made as u64);
        }
        let mut hint = SizeHint::new();
        if !self.resource.is_sent_as_stored() {
            // A definition may add to its objects and take from them; there is an end all the same.
            hint.set_lower(made as u64);
            hint.set_upper(u64::MAX);
            return hint;
        }
        hint.set_lower((made + self.values) as u64);
        hint.set_upper((made + self.values + self.objects.len() * MORE) as u64);
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn check(objects: usize, size: usize) {
        let resource = api::kinds::find_kind("v1", "ConfigMap").unwrap();
        let stored = |i: usize| {
            let text = "x".repeat(size);
            let object = json!({ "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": i.to_string() }, "data": { "a": text } });
            let value = stored::encode(&object, resource).unwrap();
            let revision = i as u64 + 1;
            Arc::new(KeyValue {
                key: "k".into(),
                value,
                create_revision: revision,
                mod_revision: revision,
                version: 1,
                lease: 0,
                slot: Default::default(),
            })
        };
        let objects_stored: Vec<_> = (0..objects).map(stored).collect();
        let metadata = json!({ "resourceVersion": "9" });
        let mut body = Spliced::new(objects_stored, resource.into(), &metadata, Arc::default());
        let (hint, mut all) = (body.size_hint(), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.unwrap().into_data().unwrap();
            assert!(frame.len() == FRAME || body.is_end_stream(), "{}", frame.len());
            all.extend_from_slice(&frame);
        }
        assert!(body.is_end_stream());
        let length = all.len() as u64;
        assert!(hint.lower() <= length && hint.upper() >= Some(length), "{hint:?}: {length}");
        assert_eq!(hint.exact().is_some(), all.len() <= PIECE + size);
        let list: Value = serde_json::from_slice(&all).unwrap();
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
        assert_eq!(list["metadata"]["resourceVersion"], "9");
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), objects);
        for (i, item) in items.iter().enumerate() {
            assert_eq!(item["metadata"]["name"], i.to_string());
            assert_eq!(item["metadata"]["resourceVersion"], (i + 1).to_string());
        }
    }

    #[tokio::test]
    async fn pieces_make_up_the_list() {
        for (objects, size) in [(0, 0), (1, 10), (3, 100), (500, 1000), (3, 100_000)] {
            check(objects, size).await;
        }
    }
}
