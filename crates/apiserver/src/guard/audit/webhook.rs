//! Events sent to a service, in batches.
use super::Error;
use super::backend::{BatchOptions, Message};
use crate::ground::kubeconfig::{Client, Kubeconfig};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub struct Webhook {
    client: Client,
    backoff: Duration,
}

impl Webhook {
    pub fn read(config: &Path, backoff: Duration) -> Result<Webhook, Error> {
        let config = Kubeconfig::read(config).map_err(|error| Error::Webhook(error.to_string()))?;
        let client = config.client().map_err(|error| Error::Webhook(error.to_string()))?;
        Ok(Webhook { client, backoff })
    }

    /// Sends events that are JSON already. Whatever the failure, it is tried again: a service that
    /// comes back is worth it.
    pub async fn send(&self, events: &[Vec<u8>]) -> Result<(), String> {
        let mut body =
            br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#
                .to_vec();
        for (i, event) in events.iter().enumerate() {
            if i > 0 {
                body.push(b',');
            }
            body.extend_from_slice(event);
        }
        body.extend_from_slice(b"]}");
        let body = Bytes::from(body);
        self.client.post_again(body, self.backoff, |_| true).await.map(drop)
    }
}

/// Gathers what comes and sends it, until nobody can send any more.
pub async fn send_all(
    webhook: Webhook,
    mut messages: mpsc::Receiver<Message>,
    options: BatchOptions,
    max_bytes: Option<usize>,
) {
    let webhook = Arc::new(webhook);
    let mut sending = JoinSet::new();
    let mut throttle = options.throttle.map(|(rate, burst)| Throttle::new(rate, burst));
    loop {
        let (batch, flush, closed) = gather(&mut messages, &options).await;
        for part in split(batch, max_bytes.unwrap_or(usize::MAX)) {
            if let Some(throttle) = &mut throttle {
                throttle.wait().await;
            }
            let webhook = webhook.clone();
            // A slow answer does not hold the next batch up.
            sending.spawn(async move {
                if let Err(cause) = webhook.send(&part).await {
                    let events = part.len();
                    tracing::error!(
                        cause,
                        events,
                        plugin = "webhook",
                        "error in audit plugin affecting audit events"
                    );
                }
            });
        }
        while sending.try_join_next().is_some() {}
        if flush.is_some() || closed {
            while sending.join_next().await.is_some() {}
        }
        if let Some(done) = flush {
            // Whoever asked may have gone.
            let _ = done.send(());
        }
        if closed {
            return;
        }
    }
}

type Batch = (Vec<Vec<u8>>, Option<oneshot::Sender<()>>, bool);

/// A full batch, or what came until the wait was over. An idle server waits for nothing.
async fn gather(messages: &mut mpsc::Receiver<Message>, options: &BatchOptions) -> Batch {
    let mut batch = Vec::new();
    let mut until = None;
    while batch.len() < options.max_size {
        let next = match until {
            None => messages.recv().await,
            Some(until) => match tokio::time::timeout_at(until, messages.recv()).await {
                Ok(next) => next,
                Err(_) => break,
            },
        };
        match next {
            Some(Message::Line(line)) => batch.push(line),
            Some(Message::Flush(done)) => return (batch, Some(done), false),
            None => return (batch, None, true),
        }
        until.get_or_insert_with(|| Instant::now() + options.max_wait);
    }
    (batch, None, false)
}

fn split(batch: Vec<Vec<u8>>, max_bytes: usize) -> Vec<Vec<Vec<u8>>> {
    let mut parts: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut size = usize::MAX;
    for line in batch {
        let added = line.len();
        match parts.last_mut() {
            Some(part) if size.saturating_add(added) <= max_bytes => part.push(line),
            _ => {
                parts.push(vec![line]);
                size = 0;
            }
        }
        size = size.saturating_add(added);
    }
    parts
}

/// So many a second, and some more after a pause.
struct Throttle {
    every: Duration,
    burst: u32,
    /// When the next one would be due if there had been no pause.
    due: Instant,
}

impl Throttle {
    fn new(rate: f32, burst: u32) -> Throttle {
        let every = Duration::from_secs_f32(1.0 / rate.max(f32::MIN_POSITIVE));
        Throttle { every, burst, due: Instant::now() }
    }

    async fn wait(&mut self) {
        let now = Instant::now();
        let earliest = now.checked_sub(self.every * self.burst.saturating_sub(1)).unwrap_or(now);
        self.due = self.due.max(earliest);
        tokio::time::sleep_until(self.due).await;
        self.due += self.every;
    }
}
