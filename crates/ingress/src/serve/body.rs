//! Bodies as they flow: piece by piece, as fast as the slower side takes them.
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Sleep;

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Body = UnsyncBoxBody<Bytes, Error>;

pub fn empty() -> Body {
    Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync()
}

pub fn text(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// A body with something that is let go with its last byte, or when nobody wants more.
pub fn held<G: Send + Unpin + 'static>(inner: Incoming, guard: G) -> Body {
    Held { inner, _guard: guard }.boxed_unsync()
}

struct Held<G> {
    inner: Incoming,
    _guard: G,
}

impl<G: Send + Unpin> hyper::body::Body for Held<G> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(&mut self.get_mut().inner).poll_frame(context).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// What a client sends; one that sends nothing for so long is given up.
pub fn patient(inner: Incoming, patience: Duration) -> Body {
    if inner.is_end_stream() {
        return empty();
    }
    Patient { inner, patience, wait: None }.boxed_unsync()
}

struct Patient {
    inner: Incoming,
    patience: Duration,
    wait: Option<Pin<Box<Sleep>>>,
}

impl hyper::body::Body for Patient {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) {
            this.wait = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let patience = this.patience;
        let wait = this.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(wait.as_mut().poll(context));
        Poll::Ready(Some(Err("the client sends nothing more".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Frames that a copy may be behind before it is given up: nobody waits for a copy.
const BEHIND: usize = 64;

/// The same body, and a copy of it.
pub fn copied(inner: Body) -> (Body, Body) {
    if inner.is_end_stream() {
        return (inner, empty());
    }
    let (sender, mut receiver) = mpsc::channel::<Frame<Bytes>>(BEHIND);
    let is_whole = Arc::new(AtomicBool::new(false));
    let tee = Tee { inner, copy: Some(sender), is_whole: is_whole.clone() };
    let frames =
        futures_util::stream::poll_fn(move |context| match ready!(receiver.poll_recv(context)) {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None if is_whole.swap(true, Ordering::Relaxed) => Poll::Ready(None),
            None => Poll::Ready(Some(Err(Error::from("the copy fell behind")))),
        });
    (tee.boxed_unsync(), StreamBody::new(frames).boxed_unsync())
}

struct Tee {
    inner: Body,
    copy: Option<mpsc::Sender<Frame<Bytes>>>,
    is_whole: Arc<AtomicBool>,
}

impl hyper::body::Body for Tee {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                let same = match (frame.data_ref(), frame.trailers_ref()) {
                    (Some(data), _) => Some(Frame::data(data.clone())),
                    (None, Some(trailers)) => Some(Frame::trailers(trailers.clone())),
                    (None, None) => None,
                };
                let kept_up = match (&this.copy, same) {
                    (Some(copy), Some(frame)) => copy.try_send(frame).is_ok(),
                    _ => false,
                };
                if !kept_up {
                    this.copy = None;
                }
            }
            Some(Err(_)) => this.copy = None,
            None => {
                this.is_whole.store(this.copy.is_some(), Ordering::Relaxed);
                this.copy = None;
            }
        }
        if this.inner.is_end_stream() && this.copy.is_some() {
            this.is_whole.store(true, Ordering::Relaxed);
            this.copy = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
