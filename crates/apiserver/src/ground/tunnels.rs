//! Ways to machines that cannot be dialled: they open them, and what is for them goes through.
use bytes::Bytes;
use client::http::Dial;
use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Ways that one machine may have open here.
const MOST: usize = 8;
/// A silent way is asked whether it is still one; it is none if nothing comes back.
const SILENT: Duration = Duration::from_secs(10);
const UNANSWERED: Duration = Duration::from_secs(5);

/// What is on its way from one end of a connection to the other.
const BUFFER: usize = 1 << 16;

#[derive(Default)]
pub struct Tunnels {
    /// By the machine's name, the newest last.
    open: Mutex<HashMap<String, Vec<(u64, Sender)>>>,
    next: AtomicU64,
}

type Sender = SendRequest<Empty<Bytes>>;

/// A way to a machine.
#[derive(Debug, Clone)]
pub struct Way(Sender);

impl Tunnels {
    /// A machine has opened a way to itself: it can be gone until it ends.
    pub async fn hold(&self, machine: &str, stream: Upgraded) {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(SILENT)
            .keep_alive_timeout(UNANSWERED)
            .keep_alive_while_idle(true);
        let Ok((sender, connection)) = builder.handshake(stream).await else {
            return;
        };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut open = self.lock();
            let ways = open.entry(machine.to_owned()).or_default();
            ways.push((id, sender));
            if ways.len() > MOST {
                ways.remove(0);
            }
        }
        // However it ends: it may also be told to.
        let _open = Open { tunnels: self, machine, id };
        let _ = connection.await;
    }

    pub fn to(&self, machine: &str) -> Option<Way> {
        let open = self.lock();
        open.get(machine)?.last().map(|(_, sender)| Way(sender.clone()))
    }

    /// Connections to a port of a machine, if it has opened a way to itself.
    pub fn dial(&self, machine: &str, port: u16) -> Option<Dial> {
        let way = self.to(machine)?;
        Some(Arc::new(move || {
            let (ours, mut theirs) = tokio::io::duplex(BUFFER);
            let way = way.clone();
            tokio::spawn(async move {
                // Who waits for the other end sees it end.
                let mut there = way.dial(port).await?;
                tokio::io::copy_bidirectional(&mut theirs, &mut there).await
            });
            ours
        }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<(u64, Sender)>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A way that is open, until this goes.
struct Open<'a> {
    tunnels: &'a Tunnels,
    machine: &'a str,
    id: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut open = self.tunnels.lock();
        if let Some(ways) = open.get_mut(self.machine) {
            ways.retain(|(other, _)| *other != self.id);
            if ways.is_empty() {
                open.remove(self.machine);
            }
        }
    }
}

impl Way {
    /// A connection to a port of the machine, if it leads there.
    pub async fn dial(&self, port: u16) -> io::Result<TokioIo<Upgraded>> {
        let request = Request::connect(format!("localhost:{port}")).body(Empty::new());
        let request = request.map_err(io::Error::other)?;
        let mut sender = self.0.clone();
        let mut answer = sender.send_request(request).await.map_err(io::Error::other)?;
        if !answer.status().is_success() {
            let said = answer.status();
            return Err(io::Error::other(format!("the node's own way to it answers {said}")));
        }
        let stream = hyper::upgrade::on(&mut answer).await.map_err(io::Error::other)?;
        Ok(TokioIo::new(stream))
    }
}
