//! A watch over an etcd cluster.
//!
//! A task holds the stream and passes batches on through a short queue; when the reader is slow
//! the queue fills, the stream's flow control stops the member, and nothing is buffered here
//! without bound. When the stream breaks the task opens another, on the next member, from the
//! revision after the last one it passed on: etcd never splits a revision between messages, so
//! nothing is lost, and what is older is skipped, so nothing is repeated.
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status};

use super::client::{Client, error_of};
use super::translate::Prefix;
use crate::error::{Error, Result};
use crate::model::*;
use crate::proto::watch_request::RequestUnion;
use crate::proto::{WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};

/// Batches that may wait for the reader.
const QUEUE: usize = 16;

/// Between attempts to find a member.
const PAUSE: Duration = Duration::from_millis(50);

pub struct EtcdWatch {
    batches: mpsc::Receiver<Result<WatchBatch>>,
    progress: Progress,
    task: JoinHandle<()>,
}

#[derive(Clone)]
pub struct Progress(watch::Sender<()>);

impl Progress {
    pub fn request(&self) {
        self.0.send_replace(());
    }
}

impl EtcdWatch {
    pub(super) fn start(client: Client, prefix: Prefix, range: KeyRange, from: Revision) -> Self {
        let (sender, batches) = mpsc::channel(QUEUE);
        let (progress, asked) = watch::channel(());
        let pump = Pump { client, prefix, range, next: from, batches: sender, asked };
        EtcdWatch { batches, progress: Progress(progress), task: tokio::spawn(pump.run()) }
    }

    pub async fn next(&mut self) -> Result<WatchBatch> {
        let over = || Err(Error::Unavailable("the watch is over".into()));
        self.batches.recv().await.unwrap_or_else(over)
    }

    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

impl Drop for EtcdWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Pump {
    client: Client,
    prefix: Prefix,
    range: KeyRange,
    /// The first revision not passed on.
    next: Revision,
    batches: mpsc::Sender<Result<WatchBatch>>,
    asked: watch::Receiver<()>,
}

/// Why a stream is no longer followed.
enum End {
    /// Another one may do.
    Broken,
    /// There is no point in going on.
    Over(Error),
    /// Nobody reads any more.
    Dropped,
}

impl Pump {
    async fn run(mut self) {
        loop {
            let turn = self.client.member().0;
            let end = match self.follow().await {
                Ok(end) => end,
                Err(status) => match error_of(&status) {
                    Error::Unavailable(_) => End::Broken,
                    error => End::Over(error),
                },
            };
            match end {
                End::Broken => {
                    self.client.pass_over(turn);
                    tokio::time::sleep(PAUSE).await;
                }
                End::Over(error) => return drop(self.batches.send(Err(error)).await),
                End::Dropped => return,
            }
        }
    }

    /// Follows one stream to its end.
    async fn follow(&mut self) -> std::result::Result<End, Status> {
        let (requests, receiver) = mpsc::channel(4);
        let (key, range_end) = self.prefix.range(&self.range);
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: self.next as i64,
            progress_notify: true,
            prev_kv: true,
            ..Default::default()
        };
        let send = |request| WatchRequest { request_union: Some(request) };
        let _ = requests.send(send(RequestUnion::CreateRequest(create))).await;
        let mut request = Request::new(tokio_stream::wrappers::ReceiverStream::new(receiver));
        // A member cut off from its leader then ends the stream instead of falling silent.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let member = self.client.member().1.clone();
        let mut stream = member.watch().watch(request).await?.into_inner();
        loop {
            tokio::select! {
                message = stream.message() => match message? {
                    Some(response) => if let Some(end) = self.take(response).await {
                        return Ok(end);
                    },
                    None => return Ok(End::Broken),
                },
                asked = self.asked.changed() => {
                    if asked.is_err() {
                        return Ok(End::Dropped);
                    }
                    let progress = RequestUnion::ProgressRequest(WatchProgressRequest {});
                    // A full queue has a request for progress in it already.
                    let _ = requests.try_send(send(progress));
                }
            }
        }
    }

    async fn take(&mut self, response: WatchResponse) -> Option<End> {
        let header = response.header.unwrap_or_default().revision as u64;
        if response.compact_revision > 0 {
            let compacted = response.compact_revision as u64;
            return Some(End::Over(Error::Compacted { requested: self.next, compacted }));
        }
        if response.canceled {
            return Some(End::Broken);
        }
        if response.created {
            return None;
        }
        let fresh = |event: &Event| event.revision() >= self.next;
        let events: Vec<Event> = response
            .events
            .into_iter()
            .filter_map(|event| self.prefix.event(event))
            .filter(fresh)
            .collect();
        // Without events it is news of progress, as of the header's revision.
        let revision = events.last().map_or(header, Event::revision);
        if events.is_empty() && revision < self.next.saturating_sub(1) {
            return None;
        }
        self.next = self.next.max(revision + 1);
        let sent = self.batches.send(Ok(WatchBatch { events, revision })).await;
        sent.is_err().then_some(End::Dropped)
    }
}
