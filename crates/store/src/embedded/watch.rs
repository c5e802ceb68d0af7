//! Watches: cursors over the shared history.
//!
//! A watch owns no buffer. It remembers how far it has read and is woken, by its [`Signal`], when
//! something in its range was published; then it reads the shared history at its own pace. So a
//! watcher that does not read costs nothing, and one that has fallen behind the compaction is told
//! so instead of being given a history with a hole.
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Shared;
use crate::error::{Error, Result};
use crate::model::{Event, KeyRange, Revision, WatchBatch};
use crate::signal::Signal;

/// How many events one call of `next` returns, give or take the last revision's.
const BATCH: usize = 1000;

#[derive(Default)]
pub struct Watchers(Mutex<WatchersInner>);

#[derive(Default)]
struct WatchersInner {
    signals: Vec<(KeyRange, Weak<Signal>)>,
    closed: bool,
}

impl Watchers {
    fn add(&self, range: KeyRange, signal: &Arc<Signal>) {
        let mut inner = self.0.lock();
        inner.signals.push((range, Arc::downgrade(signal)));
    }

    /// Called with the state locked for writing, so that a watch sees either the events or the
    /// signal.
    pub fn publish(&self, events: &[Event]) {
        let mut inner = self.0.lock();
        inner.signals.retain(|(range, signal)| {
            let Some(signal) = signal.upgrade() else { return false };
            if let Some(event) = events.iter().find(|event| range.contains(&event.kv.key)) {
                signal.mark(event.revision());
            }
            true
        });
    }

    pub fn close(&self) {
        let mut inner = self.0.lock();
        inner.closed = true;
        for (_, signal) in &inner.signals {
            if let Some(signal) = signal.upgrade() {
                signal.wake();
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.0.lock().closed
    }
}

pub struct EmbeddedWatch {
    shared: Arc<Shared>,
    range: KeyRange,
    signal: Arc<Signal>,
    /// The first revision not delivered.
    cursor: Revision,
}

/// Asks a watch for its revision while another task waits in `next`.
#[derive(Clone)]
pub struct Progress(Arc<Signal>);

impl Progress {
    pub fn request(&self) {
        self.0.ask();
    }
}

impl EmbeddedWatch {
    pub(super) fn new(shared: Arc<Shared>, range: KeyRange, from: Revision) -> Result<Self> {
        let signal = Arc::new(Signal::default());
        let cursor = {
            let state = shared.state.read();
            shared.watchers.add(range.clone(), &signal);
            if from != 0 && from <= state.compacted() {
                return Err(Error::Compacted { requested: from, compacted: state.compacted() });
            }
            let cursor = if from == 0 { state.published() + 1 } else { from };
            if cursor <= state.published() {
                signal.mark(cursor);
            }
            cursor
        };
        Ok(EmbeddedWatch { shared, range, signal, cursor })
    }

    pub fn progress(&self) -> Progress {
        Progress(self.signal.clone())
    }

    pub async fn next(&mut self) -> Result<WatchBatch> {
        loop {
            if let Some(batch) = self.read()? {
                return Ok(batch);
            }
            if self.shared.watchers.is_closed() {
                return Err(Error::closed());
            }
            self.signal.woken().await;
        }
    }

    fn read(&mut self) -> Result<Option<WatchBatch>> {
        let state = self.shared.state.read();
        let asked = self.signal.was_asked();
        let published = state.published();
        let mut batch = WatchBatch { events: Vec::new(), revision: published };
        let unread = self.signal.take().map(|unread| unread.max(self.cursor));
        if let Some(from) = unread.filter(|from| *from <= published) {
            if from <= state.compacted() {
                // The next call says the same.
                self.signal.mark(from);
                return Err(Error::Compacted { requested: from, compacted: state.compacted() });
            }
            let history = state.history();
            let first = history.partition_point(|event| event.revision() < from);
            for event in history.range(first..) {
                let full = batch.events.len() >= BATCH;
                if full && batch.events.last().is_some_and(|e| e.revision() < event.revision()) {
                    batch.revision = event.revision() - 1;
                    self.signal.mark(event.revision());
                    break;
                }
                if self.range.contains(&event.kv.key) {
                    batch.events.push(event.clone());
                }
            }
        }
        // A watch that begins in the future stays silent until then.
        let ready = !batch.events.is_empty() || asked && self.cursor <= published + 1;
        self.cursor = self.cursor.max(batch.revision + 1);
        Ok(ready.then_some(batch))
    }
}
