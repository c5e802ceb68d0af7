//! The loop behind an informer: list, watch, and what to do when either breaks.
use super::sink::Sink;
use crate::context::Context;
use crate::source::{At, Event, List, Page, Source, Watch, WatchFrom};
use api::status::{Reason, Status};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Pauses between attempts: upstream's (`tools/cache/reflector.go`).
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After so long without a failure the next one is a first one.
const FORGIVEN: Duration = Duration::from_secs(120);
/// A watch lasts so long, and up to twice as long.
const WATCH: Duration = Duration::from_secs(300);
/// One that ends sooner, having said nothing, was not worth much.
const SHORT: Duration = Duration::from_secs(1);
const PAGE: u32 = 500;

/// Until the context stops, or nobody wants it any more.
pub(super) async fn run(
    context: Context,
    source: Arc<dyn Source>,
    sink: Box<dyn Sink>,
    mut over: watch::Receiver<bool>,
) {
    let mut loop_ = Reflector {
        pauses: Pauses { context: context.clone(), next: FIRST_PAUSE, last: Instant::now() },
        source,
        sink,
        streams: true,
    };
    tokio::select! {
        () = context.stopped() => {}
        // The sender is the informer's, which the loop holds.
        _ = over.wait_for(|over| *over) => {}
        () = loop_.run() => {}
    }
}

struct Reflector {
    pauses: Pauses,
    source: Arc<dyn Source>,
    sink: Box<dyn Sink>,
    /// The server has not refused to stream a list.
    streams: bool,
}

/// How a watch ended.
enum End {
    /// The server ended it: go on from where it was.
    Over,
    /// Its revision is no longer known: list again.
    Expired,
}

impl Reflector {
    async fn run(&mut self) {
        loop {
            let mut watch = match self.list().await {
                Ok(watch) => watch,
                Err(status) => {
                    self.failed("list", &status).await;
                    continue;
                }
            };
            loop {
                let ended = match watch.take() {
                    Some(stream) => self.follow(stream).await,
                    None => match self.watch().await {
                        Ok(stream) => self.follow(stream).await,
                        Err(status) => Err(status),
                    },
                };
                match ended {
                    Ok(End::Over) => {}
                    Ok(End::Expired) => break,
                    Err(status) if status.is_expired() => break,
                    Err(status) => self.failed("watch", &status).await,
                }
            }
        }
    }

    /// Every object there is, and if it was streamed, the stream to go on with.
    async fn list(&mut self) -> Result<Option<Watch>, Status> {
        if self.streams {
            match self.stream().await {
                Ok(stream) => return Ok(Some(stream)),
                // What a server says that cannot stream lists, or not this one.
                Err(status)
                    if status.is(Reason::Invalid)
                        || status.is(Reason::BadRequest)
                        || status.is(Reason::MethodNotAllowed) =>
                {
                    tracing::debug!(%status, of = %self.sink.collection().resource, "no streaming lists");
                    self.streams = false;
                }
                // Nobody is there, or he is busy: a list would fare no better.
                Err(status) if matches!(status.code, 429 | 503) => return Err(status),
                // As client-go has it, whatever else is wrong with a stream is not wrong with a list:
                // upstream's server on an old etcd takes the question and then fails.
                Err(status) => {
                    tracing::debug!(%status, of = %self.sink.collection().resource, "a streaming list failed");
                }
            }
        }
        let of = self.sink.collection().clone();
        let mut page = Page { at: At::Latest, limit: PAGE, continue_token: String::new() };
        self.sink.begin();
        loop {
            let list = self.source.list(of.clone(), page.clone()).await;
            let List { items, revision, continue_token, .. } = match list {
                // Compacted between two pages: all at once then.
                Err(status) if status.is_expired() && !page.continue_token.is_empty() => {
                    self.sink.begin();
                    page = Page::default();
                    continue;
                }
                list => list?,
            };
            items.iter().for_each(|object| self.sink.stage(object));
            if continue_token.is_empty() {
                self.sink.settle(revision);
                return Ok(None);
            }
            page.continue_token = continue_token;
        }
    }

    /// A streaming list, up to the bookmark at its end.
    async fn stream(&mut self) -> Result<Watch, Status> {
        let from = WatchFrom { revision: 0, initial_events: true, timeout: self.lasting() };
        self.sink.begin();
        let mut stream = self.source.watch(self.sink.collection().clone(), from).await?;
        while let Some(event) = stream.next().await {
            match event? {
                Event::Added(object) | Event::Modified(object) => self.sink.stage(&object),
                Event::Deleted(object) => self.sink.unstage(&object),
                Event::Bookmark { revision, initial_events_end: true } => {
                    self.sink.settle(revision);
                    return Ok(stream);
                }
                Event::Bookmark { .. } => {}
            }
        }
        Err(Status::service_unavailable("the server ended a streaming list half-way"))
    }

    async fn watch(&mut self) -> Result<Watch, Status> {
        let revision = self.sink.revision();
        let from = WatchFrom { revision, initial_events: false, timeout: self.lasting() };
        self.source.watch(self.sink.collection().clone(), from).await
    }

    async fn follow(&mut self, mut stream: Watch) -> Result<End, Status> {
        let (began, mut events) = (Instant::now(), 0);
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => self.take(event),
                Err(status) if status.is_expired() => return Ok(End::Expired),
                Err(status) => return Err(status),
            }
            events += 1;
        }
        if events == 0 && began.elapsed() < SHORT {
            return Err(Status::service_unavailable("very short watch, and nothing was received"));
        }
        Ok(End::Over)
    }

    fn take(&self, event: Event) {
        match event {
            Event::Added(object) | Event::Modified(object) => self.sink.put(&object),
            Event::Deleted(object) => self.sink.remove(&object),
            Event::Bookmark { revision, .. } => self.sink.advance(revision),
        }
    }

    /// Watches of many clients do not end all at once.
    fn lasting(&self) -> Option<Duration> {
        Some(self.pauses.context.jitter(WATCH, 1.0))
    }

    async fn failed(&mut self, verb: &str, status: &Status) {
        let pause = self.pauses.next();
        let of = &self.sink.collection().resource;
        tracing::warn!(%status, %of, ?pause, "failed to {verb}");
        tokio::time::sleep(pause).await;
    }
}

/// How long to wait before the next attempt.
struct Pauses {
    context: Context,
    next: Duration,
    last: Instant,
}

impl Pauses {
    fn next(&mut self) -> Duration {
        if self.last.elapsed() > FORGIVEN {
            self.next = FIRST_PAUSE;
        }
        self.last = Instant::now();
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST_PAUSE);
        self.context.jitter(pause, 1.0)
    }
}
