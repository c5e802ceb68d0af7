//! etcd's Watch service: many watches on one stream.
//!
//! Each watch is a task that copies from its cursor into the stream's queue. The stream's flow
//! control is the only buffer: a client that does not read stops its tasks, and if the history it
//! has not read is compacted meanwhile, its watch is cancelled, as etcd's would be.
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{Member, convert, header_at, status_of};
use crate::embedded::{EmbeddedWatch, Progress};
use crate::error::Error;
use crate::model::{Revision, WatchBatch};
use crate::proto::watch_create_request::FilterType;
use crate::proto::watch_request::RequestUnion;
use crate::proto::*;

/// Messages that may wait for the client.
const QUEUE: usize = 64;

/// How often a quiet watch that asked for it hears of progress.
const PROGRESS: Duration = Duration::from_secs(5);

/// The watch id of what concerns the whole stream.
const EVERY_WATCH: i64 = -1;

#[tonic::async_trait]
impl watch_server::Watch for Member {
    type WatchStream = ReceiverStream<Result<WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (responses, receiver) = mpsc::channel(QUEUE);
        let stream = Stream {
            member: self.clone(),
            responses,
            watches: HashMap::new(),
            next_id: 0,
            moved: Arc::new(Notify::new()),
            wanted: None,
        };
        tokio::spawn(stream.run(request.into_inner()));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

struct Stream {
    member: Member,
    responses: mpsc::Sender<Result<WatchResponse, Status>>,
    watches: HashMap<i64, Running>,
    next_id: i64,
    /// A watch has delivered more.
    moved: Arc<Notify>,
    /// The revision a request for progress waits for.
    wanted: Option<Revision>,
}

struct Running {
    task: JoinHandle<()>,
    progress: Progress,
    /// Everything up to this revision is in the stream's queue.
    delivered: Arc<AtomicU64>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stream {
    async fn run(mut self, mut requests: Streaming<WatchRequest>) {
        loop {
            let moved = self.moved.clone();
            let handled = tokio::select! {
                request = requests.message() => match request {
                    Ok(Some(request)) => self.handle(request).await,
                    _ => return,
                },
                () = moved.notified(), if self.wanted.is_some() => self.report_progress().await,
                () = self.responses.closed() => return,
            };
            if handled.is_none() {
                return;
            }
        }
    }

    /// Nothing means that the client is gone.
    async fn send(&self, response: WatchResponse) -> Option<()> {
        self.responses.send(Ok(response)).await.ok()
    }

    async fn handle(&mut self, request: WatchRequest) -> Option<()> {
        match request.request_union? {
            RequestUnion::CreateRequest(request) => self.create(request).await,
            RequestUnion::CancelRequest(WatchCancelRequest { watch_id }) => {
                self.watches.remove(&watch_id);
                let header = self.member.header();
                let canceled =
                    WatchResponse { header, watch_id, canceled: true, ..Default::default() };
                let answered = self.send(canceled).await;
                self.report_progress().await.and(answered)
            }
            RequestUnion::ProgressRequest(_) => {
                self.wanted = Some(self.member.engine.revision());
                for watch in self.watches.values() {
                    watch.progress.request();
                }
                self.report_progress().await
            }
        }
    }

    async fn create(&mut self, request: WatchCreateRequest) -> Option<()> {
        let header = self.member.header();
        let watch_id = if request.watch_id != 0 { request.watch_id } else { self.next_id };
        if self.watches.contains_key(&watch_id) {
            let cancel_reason = "etcdserver: duplicate watch id".to_owned();
            let refused = WatchResponse {
                header,
                watch_id: EVERY_WATCH,
                created: true,
                canceled: true,
                cancel_reason,
                ..Default::default()
            };
            return self.send(refused).await;
        }
        self.next_id = self.next_id.max(watch_id) + 1;
        let range = range_of(&request.key, &request.range_end);
        let from = request.start_revision.max(0) as u64;
        let opened = self.member.engine.watch(range, from);
        let created = WatchResponse { header, watch_id, created: true, ..Default::default() };
        self.send(created).await?;
        match opened {
            Ok(watch) => {
                let delivered = Arc::new(AtomicU64::new(from.saturating_sub(1)));
                let progress = watch.progress();
                let copying = Copying {
                    watch,
                    watch_id,
                    prev_kv: request.prev_kv,
                    no_put: request.filters().any(|filter| filter == FilterType::Noput),
                    no_delete: request.filters().any(|filter| filter == FilterType::Nodelete),
                    notify: request.progress_notify,
                    responses: self.responses.clone(),
                    delivered: delivered.clone(),
                    moved: self.moved.clone(),
                };
                let task = tokio::spawn(copying.run());
                self.watches.insert(watch_id, Running { task, progress, delivered });
                Some(())
            }
            Err(error) => self.send(cancelled(watch_id, error)).await,
        }
    }

    /// Answers a request for progress once every watch is that far.
    async fn report_progress(&mut self) -> Option<()> {
        let Some(wanted) = self.wanted else { return Some(()) };
        self.watches.retain(|_, watch| !watch.task.is_finished());
        let far = |watch: &Running| watch.delivered.load(Ordering::Acquire) >= wanted;
        if !self.watches.values().all(far) {
            return Some(());
        }
        self.wanted = None;
        let header = Some(header_at(wanted));
        self.send(WatchResponse { header, watch_id: EVERY_WATCH, ..Default::default() }).await
    }
}

fn cancelled(watch_id: i64, error: Error) -> WatchResponse {
    let (compact_revision, revision) = match &error {
        Error::Compacted { compacted, .. } => (*compacted as i64, *compacted),
        _ => (0, 0),
    };
    WatchResponse {
        header: Some(header_at(revision)),
        watch_id,
        canceled: true,
        compact_revision,
        cancel_reason: status_of(error).message().to_owned(),
        ..Default::default()
    }
}

/// One watch on its way into the stream.
struct Copying {
    watch: EmbeddedWatch,
    watch_id: i64,
    prev_kv: bool,
    no_put: bool,
    no_delete: bool,
    notify: bool,
    responses: mpsc::Sender<Result<WatchResponse, Status>>,
    delivered: Arc<AtomicU64>,
    moved: Arc<Notify>,
}

impl Copying {
    async fn run(mut self) {
        let progress = self.watch.progress();
        let mut due = false;
        loop {
            let batch = match tokio::time::timeout(PROGRESS, self.watch.next()).await {
                Ok(Ok(batch)) => batch,
                Ok(Err(error)) => {
                    let _ = self.responses.send(Ok(cancelled(self.watch_id, error))).await;
                    self.moved.notify_one();
                    return;
                }
                Err(_) => {
                    if self.notify {
                        due = true;
                        progress.request();
                    }
                    continue;
                }
            };
            let revision = batch.revision;
            let events = self.wanted(batch);
            if !events.is_empty() || std::mem::take(&mut due) {
                let response = WatchResponse {
                    header: Some(header_at(revision)),
                    watch_id: self.watch_id,
                    events,
                    ..Default::default()
                };
                if self.responses.send(Ok(response)).await.is_err() {
                    return;
                }
            }
            self.delivered.fetch_max(revision, Ordering::AcqRel);
            self.moved.notify_one();
        }
    }

    fn wanted(&self, batch: WatchBatch) -> Vec<mvccpb::Event> {
        let keep = |event: &&crate::model::Event| match event.is_delete() {
            true => !self.no_delete,
            false => !self.no_put,
        };
        let events = batch.events.iter().filter(keep);
        events.map(|event| convert::event(event, self.prev_kv)).collect()
    }
}
