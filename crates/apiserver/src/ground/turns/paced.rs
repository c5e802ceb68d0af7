//! A connection that lets others have a turn while it sends much.
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// So many bytes are sent in one turn: to encrypt them takes about as long as a small request.
const TURN: usize = 32 << 10;

pub struct Paced<S> {
    inner: S,
    /// Bytes until the turn ends.
    left: usize,
}

impl<S> Paced<S> {
    pub fn new(inner: S) -> Paced<S> {
        Paced { inner, left: TURN }
    }
}

impl<S: AsyncWrite + Unpin> Paced<S> {
    fn paced(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.left == 0 {
            self.left = TURN;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let written = ready!(write(Pin::new(&mut self.inner), context))?;
        self.left = self.left.saturating_sub(written);
        Poll::Ready(Ok(written))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let bytes = &bytes[..bytes.len().min(TURN)];
        self.get_mut().paced(context, |inner, context| inner.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().paced(context, |inner, context| inner.poll_write_vectored(context, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}
