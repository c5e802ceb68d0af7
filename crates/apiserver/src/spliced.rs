//! A list as a stream of the stored bytes.
//!
//! The answer to a list is megabytes long, and nothing in it has to be known before it is sent. So
//! it is written piece by piece while the connection takes it: a slow client holds on to a few
//! objects that others share, not to a copy of everything, and a piece is still in the processor's
//! cache when it is encrypted.
use crate::{stored, turns};
use api::kinds::Resource;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use store::KeyValue;

/// A piece is sent when it is about so long.
const PIECE: usize = 64 << 10;

pub struct Spliced {
    objects: std::vec::IntoIter<Arc<KeyValue>>,
    /// The piece after the one that was sent last.
    next: Option<Vec<u8>>,
    /// Bytes that are not sent yet. Their number is known: the client is told, and a large answer
    /// is compressed.
    left: usize,
    /// A piece was just sent: others have a turn.
    sent: bool,
}

impl Spliced {
    pub async fn new(
        objects: Vec<Arc<KeyValue>>,
        resource: &Resource,
        metadata: &Value,
    ) -> Spliced {
        let head = json!({
            "kind": resource.list_kind, "apiVersion": resource.api_version(), "metadata": metadata,
        });
        let mut piece = head.to_string().into_bytes();
        piece.pop();
        let end: &[u8] = if objects.is_empty() { b",\"items\":[]}" } else { b",\"items\":[" };
        piece.extend_from_slice(end);
        let commas_and_end = if objects.is_empty() { 0 } else { objects.len() + 1 };
        let mut items = 0;
        for some in objects.chunks(100) {
            turns::share().await;
            items += some.iter().map(|stored| stored::json_length(stored)).sum::<usize>();
        }
        let left = piece.len() + items + commas_and_end;
        turns::share().await;
        let objects = objects.into_iter();
        let mut spliced = Spliced { objects, next: None, left, sent: false };
        spliced.next = Some(spliced.fill(piece));
        spliced
    }

    /// Goes on with a piece until it is long enough or nothing is left.
    fn fill(&mut self, mut piece: Vec<u8>) -> Vec<u8> {
        while piece.len() < PIECE {
            let Some(stored) = self.objects.next() else { break };
            piece.reserve(stored.value.len() + 40);
            stored::write_json(&stored, &mut piece);
            let end: &[u8] = if self.objects.len() > 0 { b"," } else { b"]}" };
            piece.extend_from_slice(end);
        }
        piece
    }
}

impl Body for Spliced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if std::mem::take(&mut self.sent) && self.next.is_some() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(piece) = self.next.take() else { return Poll::Ready(None) };
        if self.objects.len() > 0 {
            let next = Vec::with_capacity(PIECE + (4 << 10));
            self.next = Some(self.fill(next));
        }
        self.left -= piece.len();
        self.sent = true;
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
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
            })
        };
        let objects_stored: Vec<_> = (0..objects).map(stored).collect();
        let metadata = json!({ "resourceVersion": "9" });
        let mut body = Spliced::new(objects_stored, resource, &metadata).await;
        let (hint, mut all) = (body.size_hint().exact(), Vec::new());
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() < PIECE + size + 200);
            all.extend_from_slice(&piece);
        }
        assert!(body.is_end_stream());
        assert_eq!(hint, Some(all.len() as u64));
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
