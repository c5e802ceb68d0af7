//! The body of an answer, and what of the connection it holds until it is read or dropped.
use super::Pool;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

pub struct Body {
    incoming: Incoming,
    lease: Lease,
}

pub(super) enum Lease {
    /// One of the connection's streams.
    Stream(Arc<AtomicUsize>),
    /// The whole connection, which others may have when the body has been read.
    Connection(Option<(Pool, http1::SendRequest<Full<Bytes>>)>),
}

impl Lease {
    pub fn stream(streams: Arc<AtomicUsize>) -> Lease {
        streams.fetch_add(1, Ordering::Relaxed);
        Lease::Stream(streams)
    }

    pub fn connection(pool: Pool, sender: http1::SendRequest<Full<Bytes>>) -> Lease {
        Lease::Connection(Some((pool, sender)))
    }

    fn is_over(&mut self) {
        if let Lease::Connection(connection) = self
            && let Some((pool, sender)) = connection.take()
        {
            pool.give_back(sender);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Lease::Stream(streams) = self {
            streams.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Body {
    pub(super) fn new(incoming: Incoming, lease: Lease) -> Body {
        Body { incoming, lease }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(context));
        if frame.is_none() {
            self.lease.is_over();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // The connection is given back at the end, so the end has to be asked for.
        matches!(self.lease, Lease::Stream(_)) && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
