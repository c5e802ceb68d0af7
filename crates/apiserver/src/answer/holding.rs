//! Something that is held until an answer is sent, or its client is gone.
use crate::answer::{Answer, Body};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// Drops `held` with the answer's body.
pub fn until_sent<T: Send + Sync + Unpin + 'static>(answer: Answer, held: T) -> Answer {
    answer.map(|inner| BodyExt::boxed(Holding { inner, _held: held }))
}

/// The same, but not for ever: a client that takes too long is cut off, and what is left of its answer
/// goes with `held`. One that reads nothing at all is not even asked.
pub fn until_sent_within<T: Send + Unpin + 'static>(
    answer: Answer,
    held: T,
    at_most: Duration,
) -> Answer {
    answer.map(|inner| {
        let size = inner.size_hint();
        let left = Arc::new(Mutex::new(Some((inner, held))));
        let (sending, sent) = oneshot::channel();
        let expiring = left.clone();
        tokio::spawn(async move {
            if tokio::time::timeout(at_most, sent).await.is_err() {
                expiring.lock().take();
            }
        });
        BodyExt::boxed(Expiring { left, size, _sending: sending })
    })
}

struct Expiring<T> {
    left: Arc<Mutex<Option<(Body, T)>>>,
    size: SizeHint,
    _sending: oneshot::Sender<()>,
}

impl<T: Send + Unpin> hyper::body::Body for Expiring<T> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut *self.left.lock() {
            Some((inner, _)) => Pin::new(inner).poll_frame(context),
            None => Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left.lock().as_ref().is_some_and(|(inner, _)| inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.left.lock().as_ref().map_or_else(|| self.size, |(inner, _)| inner.size_hint())
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::full;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_holds_on_to_nothing() {
        let limit = Duration::from_secs(60);
        let held = Arc::new(());
        let slow = until_sent_within(Answer::new(full("much")), held.clone(), limit);
        let quick = until_sent_within(Answer::new(full("much")), held.clone(), limit);
        assert_eq!(quick.into_body().collect().await.expect("all of it").to_bytes(), "much");
        tokio::time::sleep(limit / 2).await;
        assert_eq!(Arc::strong_count(&held), 2);
        tokio::time::sleep(limit * 2).await;
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(slow.into_body().collect().await.is_err());
    }
}
