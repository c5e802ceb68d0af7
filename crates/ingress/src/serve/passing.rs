//! Connections that a client and a pod alone can read.
use super::Proxy;
use super::endpoint::{Stream, Working};
use super::{exchange, upstream};
use crate::table::{Action, To};
use client::Context;
use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// How long neither side may say anything. Databases keep quiet connections for long, and whoever has gone without
/// a word is not to be waited for for ever.
pub const QUIET: Duration = Duration::from_secs(3600);

/// Passes a connection on until it ends.
pub async fn pass(proxy: &Proxy, context: &Context, stream: Box<dyn Stream>, action: &Action) {
    // Requests come to an end by themselves: whatever else there is must leave room for them.
    let Ok(_seat) = proxy.passed.clone().try_acquire_owned() else { return };
    let Some(To::Service(destination)) = exchange::choose(&action.backends).map(|one| &one.to)
    else {
        return;
    };
    let Some(upstream) = proxy.upstream(destination) else { return };
    let Some((there, _working)) = dial(&upstream).await else { return };
    tokio::select! {
        () = carry(stream, there) => {}
        () = context.stopped() => {}
    }
}

async fn dial(upstream: &upstream::Upstream) -> Option<(Box<dyn Stream>, Working)> {
    let mut tried = Vec::new();
    while let Some(endpoint) = upstream.choose(&tried).filter(|_| tried.len() < exchange::ATTEMPTS)
    {
        let working = endpoint.begin();
        match endpoint.dial().await {
            Ok(stream) => return Some((stream, working)),
            Err(error) => tracing::debug!(address = %endpoint.address, %error, "not reached"),
        }
        tried.push(endpoint.address);
    }
    None
}

/// Carries what both sides say until both have ended, one has broken off, or nothing has been said for long.
pub async fn carry(one: impl Stream, other: impl Stream) {
    let moved = Arc::new(Mutex::new(Instant::now()));
    let mut one = Watched { inner: one, moved: moved.clone() };
    let mut other = Watched { inner: other, moved: moved.clone() };
    let quiet = async {
        loop {
            let until = *moved.lock() + QUIET;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    };
    tokio::select! {
        // Either side may end it, and does not say why.
        _ = tokio::io::copy_bidirectional(&mut one, &mut other) => {}
        () = quiet => {}
    }
}

/// A stream that notes when something was said.
struct Watched<S> {
    inner: S,
    moved: Arc<Mutex<Instant>>,
}

impl<S: Stream> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.inner).poll_read(context, buffer);
        if outcome.is_ready() {
            *this.moved.lock() = Instant::now();
        }
        outcome
    }
}

impl<S: Stream> AsyncWrite for Watched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.inner).poll_write(context, bytes);
        if outcome.is_ready() {
            *this.moved.lock() = Instant::now();
        }
        outcome
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}
