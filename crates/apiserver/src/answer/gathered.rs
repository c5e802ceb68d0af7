//! A TLS connection that sends a few frames at a time.
//!
//! HTTP/2 cuts a long answer into frames of sixteen kilobytes, writes each by itself and has it
//! flushed. To hand the kernel each by itself costs more than to encrypt it, and wakes the client as
//! often. So frames are encrypted as they come and sent together: when enough are gathered, when one
//! is shorter than the longest (nothing follows it for now), or else when the connection is polled
//! again, for which it is woken.
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

/// So much is gathered at most.
const ENOUGH: usize = 128 << 10;
/// A frame that others follow is so long: what clients accept unless they say otherwise.
const FRAME: usize = 16 << 10;

pub struct Gathered<S> {
    inner: TlsStream<S>,
    /// Only where every poll of the connection flushes, may a flush be put off: so does HTTP/2, but
    /// not what a connection may be upgraded to.
    puts_off: bool,
    /// Bytes that were written since the last were sent.
    unsent: usize,
    /// The last write was a frame that others may follow.
    more: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Gathered<S> {
    pub fn new(mut inner: TlsStream<S>) -> Gathered<S> {
        // Room for the records' own bytes, so that no frame is cut in two.
        inner.get_mut().1.set_buffer_limit(Some(2 * ENOUGH));
        let puts_off = inner.get_ref().1.alpn_protocol() == Some(b"h2");
        Gathered { inner, puts_off, unsent: 0, more: false }
    }

    fn send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(context))?;
        self.unsent = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.puts_off {
            return Pin::new(&mut self.inner).poll_write_vectored(context, parts);
        }
        if self.unsent >= ENOUGH {
            ready!(self.send(context))?;
        }
        let mut written = self.inner.get_mut().1.writer().write_vectored(parts)?;
        // The session holds as much as it may.
        if written == 0 && parts.iter().any(|part| !part.is_empty()) {
            ready!(self.send(context))?;
            written = self.inner.get_mut().1.writer().write_vectored(parts)?;
        }
        self.unsent += written;
        self.more = written >= FRAME;
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.more) && self.unsent < ENOUGH {
            context.waker().wake_by_ref();
            return Poll::Ready(Ok(()));
        }
        self.send(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::towards::Anyone;
    use futures_util::FutureExt;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ClientConfig, ServerConfig};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
    use tokio::io::{AsyncReadExt, DuplexStream};
    use tokio_rustls::client::TlsStream as ClientStream;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn connected(protocol: &[u8]) -> (Gathered<DuplexStream>, ClientStream<DuplexStream>) {
        let made = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
            .with_no_client_auth();
        server.alpn_protocols = vec![protocol.to_vec()];
        client.alpn_protocols = vec![protocol.to_vec()];
        let (near, far) = tokio::io::duplex(1 << 20);
        let accepted = TlsAcceptor::from(Arc::new(server)).accept(near);
        let connected = TlsConnector::from(Arc::new(client)).connect("x".try_into().unwrap(), far);
        let (accepted, connected) = tokio::try_join!(accepted, connected).unwrap();
        (Gathered::new(accepted), connected)
    }

    /// Writes so many bytes and has them flushed, as HTTP/2 does with a frame.
    fn frame(server: &mut Gathered<DuplexStream>, bytes: usize, context: &mut Context<'_>) {
        let (all, mut written) = (vec![7; bytes], 0);
        while written < bytes {
            match Pin::new(&mut *server).poll_write(context, &all[written..]) {
                Poll::Ready(Ok(some)) if some > 0 => written += some,
                other => panic!("{other:?}"),
            }
        }
        flush(server, context);
    }

    fn flush(server: &mut Gathered<DuplexStream>, context: &mut Context<'_>) {
        assert!(matches!(Pin::new(server).poll_flush(context), Poll::Ready(Ok(()))));
    }

    /// What has come by now.
    fn come(client: &mut ClientStream<DuplexStream>) -> usize {
        let (mut total, mut buffer) = (0, [0; 8192]);
        while let Some(read) = client.read(&mut buffer).now_or_never() {
            total += read.unwrap();
        }
        total
    }

    #[tokio::test]
    async fn long_frames_are_sent_together_and_none_is_forgotten() {
        let (mut server, mut client) = connected(b"h2").await;
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let context = &mut Context::from_waker(&waker);
        let long = FRAME + 9;
        let count = || woken.0.load(Ordering::Relaxed);

        frame(&mut server, 100, context);
        assert_eq!((come(&mut client), count()), (100, 0));
        // Another poll follows, in which nothing is written.
        frame(&mut server, long, context);
        assert_eq!((come(&mut client), count()), (0, 1));
        flush(&mut server, context);
        assert_eq!((come(&mut client), count()), (long, 1));
        // A short frame takes the long ones before it along.
        frame(&mut server, long, context);
        frame(&mut server, long, context);
        frame(&mut server, 100, context);
        assert_eq!(come(&mut client), 2 * long + 100);
        // So do enough of them.
        for sent in [0, 0, 0, 0, 0, 0, 0, 8 * long] {
            frame(&mut server, long, context);
            assert_eq!(come(&mut client), sent);
        }
    }

    #[tokio::test]
    async fn what_may_be_upgraded_puts_nothing_off() {
        let (mut server, mut client) = connected(b"http/1.1").await;
        let context = &mut Context::from_waker(Waker::noop());
        for bytes in [100, FRAME + 9, 3 * ENOUGH] {
            frame(&mut server, bytes, context);
            assert_eq!(come(&mut client), bytes);
        }
    }
}
