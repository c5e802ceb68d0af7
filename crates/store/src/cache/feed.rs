//! Keeps a cache up to date: lists once, then follows the engine's watch; begins anew when the
//! engine says that history is gone.
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::state::{Indexed, State};
use super::{CacheOptions, Shared, Term};
use crate::error::{Error, Result};
use crate::model::*;
use crate::store::{Store, Watch};

/// Between attempts to reach an engine that is away.
const RETRY: Duration = Duration::from_millis(200);

/// The same, when what is wrong will hardly pass by itself.
const LONGEST: Duration = Duration::from_secs(5);

/// Objects read from the engine at a time.
const PAGE: usize = 10_000;

/// Stops following when it is dropped.
pub struct Feed(JoinHandle<()>);

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub async fn start(store: Store, options: CacheOptions) -> Result<(Arc<Shared>, Feed)> {
    let shared = Arc::new(Shared {
        store,
        state: RwLock::new(State::new(options.windows.clone())),
        options,
        reached: tokio::sync::watch::channel(0).0,
        progress: Mutex::new(None),
        broken: Mutex::new(None),
    });
    // From the oldest revision there is, so that clients may resume what they watched before
    // this process began.
    let watch = begin(&shared, shared.store.oldest_revision()).await?;
    let target = shared.store.revision().await?;
    let feed = Feed(tokio::spawn(follow(shared.clone(), watch)));
    // A fresh cache that has not caught up would answer with the past.
    if shared.store.answers_progress() {
        let mut reached = shared.reached.subscribe();
        while *reached.borrow_and_update() < target {
            shared.check()?;
            if let Some(progress) = &*shared.progress.lock() {
                progress.request();
            }
            if reached.changed().await.is_err() {
                break;
            }
        }
    }
    Ok((shared, feed))
}

async fn follow(shared: Arc<Shared>, mut watch: Watch) {
    loop {
        let age = shared.options.window_age;
        let too_old = shared.state.read().next_age(age);
        let next = tokio::select! {
            next = watch.next() => next,
            () = tokio::time::sleep_until(too_old.unwrap_or_else(Instant::now)), if too_old.is_some() => {
                shared.state.write().age(age);
                continue;
            }
        };
        let error = match next {
            Ok(batch) => {
                take(&shared, batch);
                continue;
            }
            Err(error) => error,
        };
        // A store that was closed will not come back, and nobody is to be alarmed.
        if error.is_closed() {
            tracing::debug!(prefix = %shared.options.prefix, "the store was closed");
        } else {
            tracing::warn!(prefix = %shared.options.prefix, %error, "watch cache begins anew");
        }
        // An engine that is away or closed ends every watch at once: without a pause this would
        // be a busy loop. Compacted history says nothing about the engine.
        if !matches!(error, Error::Compacted { .. }) {
            tokio::time::sleep(RETRY).await;
        }
        let mut pause = RETRY;
        watch = loop {
            match begin(&shared, None).await {
                Ok(watch) => break watch,
                // It takes people to mend that; until then everything would be read in vain.
                Err(error @ Error::Untransformable(_)) => {
                    *shared.broken.lock() = Some(error);
                    // Whoever waits for a revision waits in vain.
                    shared.reached.send_modify(|_| {});
                    pause = (pause * 2).min(LONGEST);
                }
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
        };
        *shared.broken.lock() = None;
    }
}

/// Lists the prefix and opens the watch that continues the list.
async fn begin(shared: &Shared, at: Option<Revision>) -> Result<Watch> {
    let prefix = KeyRange::prefix(&shared.options.prefix);
    let (objects, revision) = match list(shared, &prefix, at).await {
        // History was compacted under the list.
        Err(Error::Compacted { .. }) => list(shared, &prefix, None).await?,
        listed => listed?,
    };
    let watch = shared.store.watch(prefix, revision + 1).await?;
    *shared.progress.lock() = shared.store.answers_progress().then(|| watch.progress());
    shared.state.write().reset(objects, revision);
    shared.reached.send_replace(revision);
    Ok(watch)
}

type Objects = Vec<(Arc<KeyValue>, Vec<Term>)>;

async fn list(
    shared: &Shared,
    prefix: &KeyRange,
    at: Option<Revision>,
) -> Result<(Objects, Revision)> {
    let mut objects = Vec::new();
    // Before the first revision there was nothing.
    if at == Some(0) {
        return Ok((objects, 0));
    }
    let mut revision = at.unwrap_or(0);
    let mut range = prefix.clone();
    loop {
        let request = RangeRequest::new(range).limit(PAGE).at(revision);
        let page = shared.store.range(request).await?;
        if revision == 0 {
            revision = page.revision;
        }
        let next = page.continue_key();
        objects.extend(page.kvs.into_iter().map(|kv| {
            let terms = (shared.options.indexer)(&kv);
            (kv, terms)
        }));
        match next {
            Some(next) => range = prefix.starting_at(next),
            None => return Ok((objects, revision)),
        }
    }
}

fn take(shared: &Shared, batch: WatchBatch) {
    // The caller's function may decode the object: not under the lock.
    let index = |event: Event| {
        let deleted = event.is_delete();
        let terms = if deleted { Vec::new() } else { (shared.options.indexer)(&event.kv) };
        Indexed { event, terms }
    };
    let changes: Vec<Indexed> = batch.events.into_iter().map(index).collect();
    let revision = {
        let mut state = shared.state.write();
        state.apply(changes, batch.revision, &shared.options);
        state.revision()
    };
    // Only news wakes those who wait: a report of no progress must not make them ask again.
    shared.reached.send_if_modified(|reached| std::mem::replace(reached, revision) != revision);
}
