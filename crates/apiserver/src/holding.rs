//! Something that is held until an answer is sent, or its client is gone.
use crate::answer::{Answer, Body};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Drops `held` with the answer's body.
pub fn until_sent<T: Send + Sync + Unpin + 'static>(answer: Answer, held: T) -> Answer {
    answer.map(|inner| BodyExt::boxed(Holding { inner, _held: held }))
}

struct Holding<T> {
    inner: Body,
    _held: T,
}

impl<T: Unpin> hyper::body::Body for Holding<T> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
