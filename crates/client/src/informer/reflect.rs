//! The loop behind an informer: list, watch, and what to do when either breaks.
use super::{Entry, Informer};
use crate::context::Context;
use crate::source::{At, Event, List, Page, Source, Watch, WatchFrom};
use api::names::NamespacedName;
use api::object::{Keep, Object};
use api::status::{Reason, Status};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
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

pub(super) async fn run<K: Keep>(context: Context, source: Arc<dyn Source>, informer: Informer<K>) {
    let ended = informer.clone();
    let mut loop_ = Reflector {
        pauses: Pauses { context: context.clone(), next: FIRST_PAUSE, last: Instant::now() },
        source,
        informer,
        streams: true,
    };
    tokio::select! {
        () = context.stopped() => {}
        () = ended.over() => {}
        () = loop_.run() => {}
    }
}

struct Reflector<K> {
    pauses: Pauses,
    source: Arc<dyn Source>,
    informer: Informer<K>,
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

impl<K: Keep> Reflector<K> {
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
                    tracing::debug!(%status, of = %self.informer.collection().resource, "no streaming lists");
                    self.streams = false;
                }
                // Nobody is there, or he is busy: a list would fare no better.
                Err(status) if matches!(status.code, 429 | 503) => return Err(status),
                // As client-go has it, whatever else is wrong with a stream is not wrong with a list:
                // upstream's server on an old etcd takes the question and then fails.
                Err(status) => {
                    tracing::debug!(%status, of = %self.informer.collection().resource, "a streaming list failed");
                }
            }
        }
        let of = self.informer.collection().clone();
        let mut page = Page { at: At::Latest, limit: PAGE, continue_token: String::new() };
        let mut entries = Vec::new();
        loop {
            let list = self.source.list(of.clone(), page.clone()).await;
            let List { items, revision, continue_token, .. } = match list {
                // Compacted between two pages: all at once then.
                Err(status) if status.is_expired() && !page.continue_token.is_empty() => {
                    entries.clear();
                    page = Page::default();
                    continue;
                }
                list => list?,
            };
            entries.extend(items.iter().filter_map(|object| self.entry(object)));
            if continue_token.is_empty() {
                self.informer.replace(entries, revision);
                return Ok(None);
            }
            page.continue_token = continue_token;
        }
    }

    /// A streaming list, up to the bookmark at its end.
    async fn stream(&mut self) -> Result<Watch, Status> {
        let from = WatchFrom { revision: 0, initial_events: true, timeout: self.lasting() };
        let mut stream = self.source.watch(self.informer.collection().clone(), from).await?;
        let mut entries = Vec::new();
        while let Some(event) = stream.next().await {
            match event? {
                Event::Added(object) | Event::Modified(object) => {
                    entries.extend(self.entry(&object));
                }
                Event::Deleted(object) => {
                    let key = NamespacedName::of(&object);
                    entries.retain(|(other, _)| *other != key);
                }
                Event::Bookmark { revision, initial_events_end: true } => {
                    self.informer.replace(entries, revision);
                    return Ok(stream);
                }
                Event::Bookmark { .. } => {}
            }
        }
        Err(Status::service_unavailable("the server ended a streaming list half-way"))
    }

    async fn watch(&mut self) -> Result<Watch, Status> {
        let revision = self.informer.revision();
        let from = WatchFrom { revision, initial_events: false, timeout: self.lasting() };
        self.source.watch(self.informer.collection().clone(), from).await
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
            Event::Added(object) | Event::Modified(object) => {
                let revision = object.revision();
                let (key, entry) = match self.entry(&object) {
                    Some((key, entry)) => (key, Some(entry)),
                    // What cannot be read is not there.
                    None => (NamespacedName::of(&object), None),
                };
                self.informer.apply(key, entry, revision);
            }
            Event::Deleted(object) => {
                self.informer.apply(NamespacedName::of(&object), None, object.revision());
            }
            Event::Bookmark { revision, .. } => self.informer.advance(revision),
        }
    }

    fn entry(&self, object: &Arc<Object>) -> Option<(NamespacedName, Entry<K>)> {
        match Entry::of(object) {
            Ok(entry) => Some((NamespacedName::of(object), entry)),
            Err(error) => {
                let of = &self.informer.collection().resource;
                tracing::warn!(%error, %of, ?object, "an object cannot be read and is left out");
                None
            }
        }
    }

    /// Watches of many clients do not end all at once.
    fn lasting(&self) -> Option<Duration> {
        Some(self.pauses.context.jitter(WATCH, 1.0))
    }

    async fn failed(&mut self, verb: &str, status: &Status) {
        let pause = self.pauses.next();
        let of = &self.informer.collection().resource;
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
