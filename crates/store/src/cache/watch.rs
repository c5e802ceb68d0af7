//! A client's watch: a cursor over the cache's window.
use std::sync::Arc;

use super::state::TermId;
use super::{Selection, Shared};
use crate::error::{Error, Result};
use crate::model::*;
use crate::signal::Signal;

/// Events or initial objects handed over at a time.
const BATCH: usize = 500;

/// What a watch says next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Part of the list a streaming watch begins with.
    Initial(Vec<Arc<KeyValue>>),
    /// That list was complete, as of this revision: the client's "initial events end" bookmark.
    InitialEnd(Revision),
    Events(WatchBatch),
}

pub struct CacheWatch {
    shared: Arc<Shared>,
    selection: Selection,
    term: Option<TermId>,
    signal: Arc<Signal>,
    epoch: u64,
    /// Everything up to this revision has been delivered.
    delivered: Revision,
    initial: Option<std::vec::IntoIter<Arc<KeyValue>>>,
}

impl CacheWatch {
    pub(super) fn resume(
        shared: Arc<Shared>,
        selection: Selection,
        after: Revision,
    ) -> Result<Self> {
        let signal = Arc::new(Signal::default());
        let (term, epoch) = {
            let mut state = shared.state.write();
            if after < state.window_start() {
                let compacted = state.window_start();
                return Err(Error::Compacted { requested: after + 1, compacted });
            }
            let term = state.subscribe(&selection, &signal);
            // What concerns it already; a watch with nothing to read is never too slow.
            let (missed, _) = state.events(after + 1, &selection.range, term, 1);
            if let Some(first) = missed.first() {
                signal.mark(first.revision());
            }
            (term, state.epoch())
        };
        Ok(CacheWatch { shared, selection, term, signal, epoch, delivered: after, initial: None })
    }

    pub(super) fn with_initial(shared: Arc<Shared>, selection: Selection) -> Self {
        let signal = Arc::new(Signal::default());
        let (term, epoch, delivered, objects) = {
            let mut state = shared.state.write();
            // Pointers only: the objects are shared by all who stream them.
            let objects: Vec<_> = state.select(&selection).cloned().collect();
            let term = state.subscribe(&selection, &signal);
            (term, state.epoch(), state.revision(), objects)
        };
        let initial = Some(objects.into_iter());
        CacheWatch { shared, selection, term, signal, epoch, delivered, initial }
    }

    /// These objects come first: what there was when the watch begins.
    pub(super) fn beginning_with(mut self, objects: Vec<Arc<KeyValue>>) -> Self {
        self.initial = Some(objects.into_iter());
        self
    }

    /// What comes next. Cancel safe. After an error the watch is over: [`Error::Compacted`] tells
    /// the client to list again, because it was too slow or the cache had to begin anew.
    pub async fn next(&mut self) -> Result<Item> {
        if let Some(initial) = &mut self.initial {
            let objects: Vec<_> = initial.by_ref().take(BATCH).collect();
            if !objects.is_empty() {
                return Ok(Item::Initial(objects));
            }
            self.initial = None;
            return Ok(Item::InitialEnd(self.delivered));
        }
        loop {
            if let Some(batch) = self.read()? {
                return Ok(Item::Events(batch));
            }
            self.signal.woken().await;
        }
    }

    /// Everything this watch concerns up to this revision has been delivered: what a bookmark
    /// may say now.
    pub fn bookmark(&self) -> Revision {
        let state = self.shared.state.read();
        let caught_up = self.signal.unread().is_none() && self.epoch == state.epoch();
        if caught_up && self.initial.is_none() {
            self.delivered.max(state.revision())
        } else {
            self.delivered
        }
    }

    fn read(&mut self) -> Result<Option<WatchBatch>> {
        let state = self.shared.state.read();
        let Some(unread) = self.signal.take() else { return Ok(None) };
        let from = unread.max(self.delivered + 1);
        if self.epoch != state.epoch() || from <= state.window_start() {
            self.signal.mark(unread);
            return Err(Error::Compacted { requested: from, compacted: state.window_start() });
        }
        let (events, complete) = state.events(from, &self.selection.range, self.term, BATCH);
        if complete < state.revision() {
            self.signal.mark(complete + 1);
        }
        self.delivered = self.delivered.max(complete);
        Ok((!events.is_empty()).then_some(WatchBatch { events, revision: complete }))
    }
}

impl Drop for CacheWatch {
    fn drop(&mut self) {
        if let Some(term) = self.term {
            // The term's entry looks whether anybody still holds this.
            self.signal = Arc::default();
            self.shared.state.write().unsubscribe(term);
        }
    }
}
