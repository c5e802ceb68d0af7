//! gRPC on sockets below the kubelet's folder, for programs of the node that root started.
use client::Context;
use parking_lot::Mutex;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use tokio::net::UnixListener;
use tokio::time::Instant;
use tonic::Status;
use tonic::service::Routes;

/// Serves a socket until the context stops. A kubelet without it runs pods all the same.
pub async fn serve(context: &Context, socket: &Path, routes: Routes) {
    let listener = match listen(socket) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!("failed to listen on {}: {error}", socket.display());
            return;
        }
    };
    let incoming = futures_util::stream::unfold(listener, |listener| async {
        Some((listener.accept().await.map(|(stream, _)| stream), listener))
    });
    let served = tonic::transport::Server::builder()
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, context.stopped())
        .await;
    if let Err(error) = served {
        tracing::warn!("failed to serve {}: {error}", socket.display());
    }
}

/// A socket that only we and root may write to; one that is left of a kubelet before goes.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = socket.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
    }
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(socket),
    }
}

/// How many requests a second a socket takes, and how many at once: upstream's numbers.
const RATE: f64 = 100.0;
const BURST: f64 = 10.0;

/// Lets in so many and no more: lists are made anew for everybody who asks.
pub struct Turnstile(Mutex<(f64, Instant)>);

impl Default for Turnstile {
    fn default() -> Turnstile {
        Turnstile(Mutex::new((BURST, Instant::now())))
    }
}

impl Turnstile {
    pub fn admit(&self) -> Result<(), Status> {
        let mut state = self.0.lock();
        let now = Instant::now();
        let (left, since) = *state;
        let left = (left + now.duration_since(since).as_secs_f64() * RATE).min(BURST);
        let is_let_in = left >= 1.0;
        *state = (if is_let_in { left - 1.0 } else { left }, now);
        match is_let_in {
            true => Ok(()),
            false => Err(Status::resource_exhausted("rejected by rate limit")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn who_asks_too_often_is_refused() {
        let turnstile = Turnstile::default();
        let let_in = || (0..50).filter(|_| turnstile.admit().is_ok()).count();
        assert_eq!(let_in(), 10);
        tokio::time::advance(Duration::from_millis(31)).await;
        assert_eq!(let_in(), 3);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(let_in(), 10, "nothing is saved up");
    }
}
