//! The watch cache: one resource's objects, its recent events, and everybody who watches them.
//!
//! A cache follows one prefix of the store. Lists, watches and consistent reads of that resource
//! are served from it, whichever engine is below; the engine sees one watch per resource however
//! many clients there are. Objects are the engine's own [`KeyValue`]s: with the embedded engine
//! the bytes exist once in the process, and the cache adds a map entry and, per index term, a set
//! entry: 70 to 100 bytes an object (the benchmark `store` measures it) and about 24 a term.
//!
//! ```text
//!  store ── watch ──► feed ──► objects, index, window ──► lists
//!                                      │ signal
//!                                      └──► watches (a cursor each)
//! ```
//! **Indexes.** What an object means is the caller's: its [`Indexer`] names terms (namespace,
//! a label, a field) per object, once per change. A list or watch of a term touches only the
//! objects that have it, and only its watchers are woken.
//!
//! **Slow watchers.** A watch is a cursor over the window, which is bounded in events, bytes and age.
//! One that does not read holds nothing up and buffers nothing; when the window has moved past it,
//! it is disconnected with [`Error::Compacted`] and its client lists again. Ten thousand watchers
//! of one resource are ten thousand cursors over the same bytes.
//!
//! **How far the cache is** only the engine can tell when the newest change is another resource's:
//! it is asked for progress. Older etcds answer with revisions whose events they have yet to send.
//! They are never asked; what the cache cannot be sure of is read from them instead.
mod feed;
mod state;
mod watch;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::RwLock;

pub use watch::{CacheWatch, Item};

use crate::error::{Error, Result};
use crate::model::*;
use crate::store::Store;
use state::State;

/// One index entry of an object: which index, which value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term {
    pub index: &'static str,
    pub value: String,
}

impl Term {
    pub fn new(index: &'static str, value: impl Into<String>) -> Self {
        Term { index, value: value.into() }
    }
}

/// Names the terms of an object.
pub type Indexer = Arc<dyn Fn(&KeyValue) -> Vec<Term> + Send + Sync>;

#[derive(Clone)]
pub struct CacheOptions {
    pub prefix: Key,
    pub indexer: Indexer,
    /// Events a watch may resume over.
    pub window_events: usize,
    /// For how long: as long as the engines keep history.
    pub window_age: Duration,
    /// And their bytes, in this cache and in all that share it.
    pub windows: Arc<Windows>,
    /// How long a read waits for a revision the cache has not seen.
    pub patience: Duration,
}

impl CacheOptions {
    /// A cache of a prefix without indexes.
    pub fn new(prefix: impl Into<Key>) -> Self {
        CacheOptions {
            prefix: prefix.into(),
            indexer: Arc::new(|_| Vec::new()),
            window_events: 32 * 1024,
            window_age: Duration::from_secs(300),
            windows: Arc::default(),
            patience: Duration::from_secs(3),
        }
    }
}

/// What the windows of several caches may hold together. One that is alone may have all of it; when
/// others want some, the one that grows gives way, but keeps a share of its own.
#[derive(Debug)]
pub struct Windows {
    limit: u64,
    used: AtomicU64,
}

impl Windows {
    pub fn new(limit: u64) -> Self {
        Windows { limit, used: AtomicU64::new(0) }
    }

    /// What they hold now.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Whether a window of this size has to give something back.
    fn are_full_for(&self, own: u64) -> bool {
        own > self.limit / 16 && self.used() > self.limit
    }
}

impl Default for Windows {
    fn default() -> Self {
        Windows::new(32 << 20)
    }
}

/// Which objects: those in a range that have the term, if one is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub range: KeyRange,
    pub term: Option<Term>,
}

/// As of when a list is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Whatever the cache has.
    Any,
    /// Everything acknowledged before the read began.
    Latest,
    NotOlderThan(Revision),
    Exactly(Revision),
}

/// A handle on a cache; clones share it, and the last one to go stops it.
#[derive(Clone)]
pub struct WatchCache {
    shared: Arc<Shared>,
    _feed: Arc<feed::Feed>,
}

pub(crate) struct Shared {
    store: Store,
    options: CacheOptions,
    state: RwLock<State>,
    /// The revision the cache is at, for those who wait for one.
    reached: tokio::sync::watch::Sender<Revision>,
    /// Asks the engine how far the cache's watch is; none if its answers cannot be believed.
    progress: parking_lot::Mutex<Option<crate::store::Progress>>,
    /// Why the cache cannot follow: an object that nobody can read.
    broken: parking_lot::Mutex<Option<Error>>,
}

impl Shared {
    /// A cache that cannot follow has nothing to say: the past would pass for the present.
    fn check(&self) -> Result<()> {
        self.broken.lock().clone().map_or(Ok(()), Err)
    }
}

impl WatchCache {
    /// Reads the prefix and begins to follow it. Needs a Tokio runtime.
    pub async fn start(store: Store, options: CacheOptions) -> Result<Self> {
        let (shared, feed) = feed::start(store, options).await?;
        Ok(WatchCache { shared, _feed: Arc::new(feed) })
    }

    /// Everything in the cache, for a [`Selection`].
    pub fn range(&self) -> KeyRange {
        KeyRange::prefix(&self.shared.options.prefix)
    }

    /// The revision the cache is at.
    pub fn revision(&self) -> Revision {
        self.shared.state.read().revision()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shared.state.read().len()
    }

    /// What their values weigh.
    pub fn bytes(&self) -> u64 {
        self.shared.state.read().object_bytes()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until the cache is not older than this; returns where it is.
    pub async fn wait_for(&self, revision: Revision) -> Result<Revision> {
        let mut reached = self.shared.reached.subscribe();
        let waiting = async {
            loop {
                let now = *reached.borrow_and_update();
                if now >= revision {
                    return Ok(now);
                }
                self.shared.check()?;
                // The event may be in another resource: then only the engine can tell that
                // nothing is missing here. It is asked again because an etcd member that is
                // behind answers with what it knows.
                if let Some(progress) = &*self.shared.progress.lock() {
                    progress.request();
                }
                let again = Duration::from_millis(100);
                if let Ok(Err(_)) = tokio::time::timeout(again, reached.changed()).await {
                    return Err(Error::Unavailable("the watch cache was stopped".into()));
                }
            }
        };
        let current = || *self.shared.reached.borrow();
        tokio::time::timeout(self.shared.options.patience, waiting).await.unwrap_or_else(|_| {
            Err(Error::FutureRevision { requested: revision, current: current() })
        })
    }

    /// Waits until the cache has everything that was acknowledged before the call.
    pub async fn wait_for_latest(&self) -> Result<Revision> {
        let revision = self.shared.store.revision().await?;
        self.wait_for(revision).await
    }

    pub async fn get(&self, key: &[u8], at: At) -> Result<Option<Arc<KeyValue>>> {
        let selection = Selection { range: KeyRange::key(key), term: None };
        Ok(self.list(&selection, 0, at).await?.kvs.pop())
    }

    /// Lists in key order, at most `limit` (zero: all). To continue, select from
    /// [`RangeResponse::continue_key`] at exactly the first page's revision.
    pub async fn list(&self, selection: &Selection, limit: usize, at: At) -> Result<RangeResponse> {
        if !self.answers_for(at).await? {
            return self.list_from_store(selection, limit, at).await;
        }
        let At::Exactly(revision) = at else {
            return Ok(self.shared.state.read().list(selection, limit));
        };
        match self.shared.store.oldest_revision() {
            // Where nothing was changed since, the cache could still tell; but history has one end for
            // all, and clients are to learn of it.
            Some(compacted) if revision < compacted => {
                return Err(Error::Compacted { requested: revision, compacted });
            }
            Some(_) => {}
            // Only the engine knows.
            None if revision < self.revision() => {
                return self.list_from_store(selection, limit, at).await;
            }
            None => {}
        }
        let listed = self.shared.state.read().list_at(selection, limit, revision);
        match listed {
            Some(response) => Ok(response),
            // Older than the window; the engine may still have it.
            None => self.list_from_store(selection, limit, at).await,
        }
    }

    /// Waits until the cache can answer as of then. It never can if the engine does not tell
    /// whether anything is missing: then that itself is to be asked.
    async fn answers_for(&self, at: At) -> Result<bool> {
        self.shared.check()?;
        let believed = self.shared.store.answers_progress();
        match at {
            At::Any => Ok(true),
            At::Latest if believed => self.wait_for_latest().await.map(|_| true),
            At::Latest => Ok(false),
            At::NotOlderThan(revision) | At::Exactly(revision) if believed => {
                self.wait_for(revision).await.map(|_| true)
            }
            At::NotOlderThan(revision) | At::Exactly(revision) => Ok(self.revision() >= revision),
        }
    }

    async fn list_from_store(
        &self,
        selection: &Selection,
        limit: usize,
        at: At,
    ) -> Result<RangeResponse> {
        let revision = if let At::Exactly(revision) = at { revision } else { 0 };
        // A term is filtered here, after the engine's limit would have counted others.
        let engine_limit = if selection.term.is_some() { 0 } else { limit };
        let request = RangeRequest::new(selection.range.clone()).limit(engine_limit).at(revision);
        let mut response = self.shared.store.range(request.counted()).await?;
        if let Some(term) = &selection.term {
            response.kvs.retain(|kv| (self.shared.options.indexer)(kv).contains(term));
            response.count = response.kvs.len();
            if limit > 0 && response.kvs.len() > limit {
                response.kvs.truncate(limit);
                response.more = true;
            }
        }
        match at {
            At::Exactly(revision) => response.revision = revision,
            At::NotOlderThan(requested) if response.revision < requested => {
                return Err(Error::FutureRevision { requested, current: response.revision });
            }
            _ => {}
        }
        Ok(response)
    }

    /// Watches what changes after a revision the window still has. An event is delivered if the
    /// object had or has the selection's term: the caller sees it come and go.
    pub fn watch(&self, selection: Selection, after: Revision) -> Result<CacheWatch> {
        self.shared.check()?;
        CacheWatch::resume(self.shared.clone(), selection, after)
    }

    /// Streams the objects as of then, then what changes.
    pub async fn watch_list(&self, selection: Selection, at: At) -> Result<CacheWatch> {
        if self.answers_for(at).await? {
            return Ok(CacheWatch::with_initial(self.shared.clone(), selection));
        }
        let listed = self.list_from_store(&selection, 0, at).await?;
        Ok(self.watch(selection, listed.revision)?.beginning_with(listed.kvs))
    }
}
