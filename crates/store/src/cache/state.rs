//! What a cache holds: objects, index, window. No IO and no waiting.
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{CacheOptions, Selection, Term, Windows};
use crate::model::*;
use crate::signal::Signal;

pub type TermId = u32;
type TermIds = SmallVec<[TermId; 4]>;

#[derive(Default)]
pub struct State {
    objects: BTreeMap<Key, Object>,
    window: VecDeque<Recent>,
    window_bytes: u64,
    /// What this window and others may hold.
    windows: Arc<Windows>,
    /// When the window had which revision, every now and then.
    samples: VecDeque<(Instant, Revision)>,
    object_bytes: u64,
    /// The window has every event after this revision.
    window_start: Revision,
    revision: Revision,
    /// Counts the times the cache began anew: older watches have missed events.
    epoch: u64,
    terms: Terms,
    watchers: Vec<(KeyRange, Weak<Signal>)>,
}

struct Object {
    kv: Arc<KeyValue>,
    terms: TermIds,
}

/// An event with the terms the object had before it and has after it.
struct Recent {
    event: Event,
    before: TermIds,
    after: TermIds,
}

impl Recent {
    fn concerns(&self, term: TermId) -> bool {
        self.before.contains(&term) || self.after.contains(&term)
    }

    fn terms(&self) -> impl Iterator<Item = TermId> + use<'_> {
        let fresh = |id: &&TermId| !self.before.contains(id);
        self.before.iter().chain(self.after.iter().filter(fresh)).copied()
    }
}

/// Terms by number: numbers are what objects and events keep. A number is never used again.
#[derive(Default)]
struct Terms {
    ids: HashMap<Term, TermId>,
    entries: HashMap<TermId, TermEntry>,
    next: TermId,
}

struct TermEntry {
    term: Term,
    keys: BTreeSet<Key>,
    /// Events in the window that name it.
    events: usize,
    watchers: Vec<(KeyRange, Weak<Signal>)>,
}

impl Terms {
    fn id(&mut self, term: &Term) -> TermId {
        if let Some(id) = self.ids.get(term) {
            return *id;
        }
        let id = self.next;
        self.next += 1;
        self.ids.insert(term.clone(), id);
        let (keys, watchers) = (BTreeSet::new(), Vec::new());
        self.entries.insert(id, TermEntry { term: term.clone(), keys, events: 0, watchers });
        id
    }

    fn change(&mut self, id: TermId, change: impl FnOnce(&mut TermEntry)) {
        if let Some(entry) = self.entries.get_mut(&id) {
            change(entry);
        }
    }

    /// Terms nobody has and nobody watches would pile up.
    fn forget_if_unused(&mut self, id: TermId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.watchers.retain(|(_, signal)| signal.strong_count() > 0);
        if entry.keys.is_empty() && entry.events == 0 && entry.watchers.is_empty() {
            self.ids.remove(&entry.term);
            self.entries.remove(&id);
        }
    }
}

/// A change with the terms the caller named for the new version.
pub struct Indexed {
    pub event: Event,
    pub terms: Vec<Term>,
}

/// So many samples of its age are taken of a window.
const SAMPLES: u32 = 16;

impl Drop for State {
    fn drop(&mut self) {
        self.windows.used.fetch_sub(self.window_bytes, Relaxed);
    }
}

impl State {
    pub fn new(windows: Arc<Windows>) -> Self {
        let mut state = State::default();
        state.windows = windows;
        state
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// What the values of all objects weigh.
    pub fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    pub fn window_start(&self) -> Revision {
        self.window_start
    }

    /// Begins with these objects; whoever watched before has missed something.
    pub fn reset(&mut self, objects: Vec<(Arc<KeyValue>, Vec<Term>)>, revision: Revision) {
        for entry in self.terms.entries.values_mut() {
            entry.keys.clear();
            entry.events = 0;
        }
        self.objects.clear();
        self.window.clear();
        self.samples.clear();
        self.weigh(0);
        self.object_bytes = 0;
        (self.window_start, self.revision) = (revision, revision);
        self.epoch += 1;
        for (kv, terms) in objects {
            let terms = self.index(&kv.key, &terms);
            self.object_bytes += kv.value.len() as u64;
            self.objects.insert(kv.key.clone(), Object { kv, terms });
        }
        let all = self.terms.entries.values().flat_map(|entry| &entry.watchers);
        for signal in self.watchers.iter().chain(all).filter_map(|(_, signal)| signal.upgrade()) {
            signal.mark(0);
        }
    }

    fn index(&mut self, key: &Key, terms: &[Term]) -> TermIds {
        let ids: TermIds = terms.iter().map(|term| self.terms.id(term)).collect();
        for id in &ids {
            self.terms.change(*id, |entry| {
                entry.keys.insert(key.clone());
            });
        }
        ids
    }

    /// Takes over changes and everything up to a revision, and wakes those they concern.
    pub fn apply(&mut self, changes: Vec<Indexed>, revision: Revision, options: &CacheOptions) {
        let mut window_bytes = self.window_bytes;
        for Indexed { mut event, terms } in changes {
            let key = event.kv.key.clone();
            let before = self.objects.remove(&key);
            // The cache's own version, so that the bytes are shared whatever the engine sent.
            event.prev = before.as_ref().map(|object| object.kv.clone());
            self.object_bytes -= event.prev.as_ref().map_or(0, |prev| prev.value.len() as u64);
            let before = before.map(|object| object.terms).unwrap_or_default();
            for id in &before {
                self.terms.change(*id, |entry| {
                    entry.keys.remove(&key);
                });
            }
            let mut after = TermIds::new();
            if !event.is_delete() {
                after = self.index(&key, &terms);
                let object = Object { kv: event.kv.clone(), terms: after.clone() };
                self.object_bytes += object.kv.value.len() as u64;
                self.objects.insert(key, object);
            }
            let recent = Recent { event, before, after };
            self.wake(&recent);
            window_bytes += weight(&recent.event);
            self.window.push_back(recent);
        }
        self.weigh(window_bytes);
        self.revision = self.revision.max(revision);
        self.sample(options.window_age);
        while self.window.len() > options.window_events
            || self.windows.are_full_for(self.window_bytes)
        {
            let Some(oldest) = self.window.front() else { return };
            self.forget(oldest.event.revision());
        }
    }

    fn weigh(&mut self, window_bytes: u64) {
        let before = std::mem::replace(&mut self.window_bytes, window_bytes);
        self.windows.used.fetch_add(window_bytes, Relaxed);
        self.windows.used.fetch_sub(before, Relaxed);
    }

    fn sample(&mut self, age: Duration) {
        let now = Instant::now();
        let due = self.samples.back().is_none_or(|(at, _)| now - *at >= age / SAMPLES);
        if due && !self.window.is_empty() {
            self.samples.push_back((now, self.revision));
        }
    }

    /// When the oldest events will be too old; never if there are none.
    pub fn next_age(&self, age: Duration) -> Option<Instant> {
        self.samples.front().map(|(at, _)| *at + age)
    }

    /// Forgets what is too old now.
    pub fn age(&mut self, age: Duration) {
        let now = Instant::now();
        while let Some((_, revision)) = self.samples.pop_front_if(|(at, _)| *at + age <= now) {
            self.forget(revision);
        }
        // What came after the last sample and was followed by silence.
        self.sample(age);
    }

    fn wake(&mut self, recent: &Recent) {
        let event = &recent.event;
        let wake = |watchers: &mut Vec<(KeyRange, Weak<Signal>)>| {
            watchers.retain(|(range, signal)| {
                let Some(signal) = signal.upgrade() else { return false };
                if range.contains(&event.kv.key) {
                    signal.mark(event.revision());
                }
                true
            });
        };
        wake(&mut self.watchers);
        for id in recent.terms() {
            self.terms.change(id, |entry| {
                entry.events += 1;
                wake(&mut entry.watchers);
            });
        }
    }

    /// Drops the events up to a revision.
    fn forget(&mut self, revision: Revision) {
        let mut window_bytes = self.window_bytes;
        while let Some(recent) =
            self.window.pop_front_if(|recent| recent.event.revision() <= revision)
        {
            self.window_start = recent.event.revision();
            window_bytes -= weight(&recent.event);
            for id in recent.terms() {
                self.terms.change(id, |entry| entry.events -= 1);
                self.terms.forget_if_unused(id);
            }
        }
        self.weigh(window_bytes);
    }

    /// Events after a revision that concern a selection; up to about `limit`, whole revisions.
    /// With them the revision up to which they are complete.
    pub fn events(
        &self,
        from: Revision,
        range: &KeyRange,
        term: Option<TermId>,
        limit: usize,
    ) -> (Vec<Event>, Revision) {
        let first = self.window.partition_point(|recent| recent.event.revision() < from);
        let mut found: Vec<Event> = Vec::new();
        for recent in self.window.range(first..) {
            let revision = recent.event.revision();
            if found.len() >= limit && found.last().is_some_and(|e| e.revision() < revision) {
                return (found, revision - 1);
            }
            if range.contains(&recent.event.kv.key) && term.is_none_or(|term| recent.concerns(term))
            {
                found.push(recent.event.clone());
            }
        }
        (found, self.revision)
    }

    pub fn subscribe(&mut self, selection: &Selection, signal: &Arc<Signal>) -> Option<TermId> {
        let watcher = (selection.range.clone(), Arc::downgrade(signal));
        match &selection.term {
            None => {
                // Those that are gone are forgotten with the next event; on a quiet resource that
                // may be far, so also before the list grows.
                if self.watchers.len() == self.watchers.capacity() {
                    self.watchers.retain(|(_, signal)| signal.strong_count() > 0);
                }
                self.watchers.push(watcher);
                None
            }
            Some(term) => {
                let id = self.terms.id(term);
                self.terms.change(id, |entry| entry.watchers.push(watcher));
                Some(id)
            }
        }
    }

    /// A watch of this term is gone.
    pub fn unsubscribe(&mut self, term: TermId) {
        self.terms.forget_if_unused(term);
    }

    pub fn select(&self, selection: &Selection) -> Box<dyn Iterator<Item = &Arc<KeyValue>> + '_> {
        let Some(bounds) = bounds(&selection.range) else { return Box::new(std::iter::empty()) };
        let Some(term) = &selection.term else {
            return Box::new(self.objects.range(bounds).map(|(_, object)| &object.kv));
        };
        let Some(entry) = self.terms.ids.get(term).and_then(|id| self.terms.entries.get(id)) else {
            return Box::new(std::iter::empty());
        };
        let objects = entry.keys.range(bounds).filter_map(|key| self.objects.get(key));
        Box::new(objects.map(|object| &object.kv))
    }

    pub fn list(&self, selection: &Selection, limit: usize) -> RangeResponse {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let mut selected = self.select(selection);
        let kvs: Vec<_> = selected.by_ref().take(limit).cloned().collect();
        let rest = selected.count();
        let count = kvs.len() + rest;
        RangeResponse { revision: self.revision, kvs, more: rest > 0, count }
    }

    /// As of an earlier revision: what is now, with the events since undone. Nothing if the window
    /// does not reach back so far.
    pub fn list_at(
        &self,
        selection: &Selection,
        limit: usize,
        at: Revision,
    ) -> Option<RangeResponse> {
        if at < self.window_start {
            return None;
        }
        let term = match &selection.term {
            None => None,
            Some(term) => match self.terms.ids.get(term) {
                Some(id) => Some(*id),
                // No object has it, no event in the window touched one that had.
                None => return Some(RangeResponse { revision: at, ..RangeResponse::default() }),
            },
        };
        let first = self.window.partition_point(|recent| recent.event.revision() <= at);
        // What each key was, by the first event after: later ones do not matter.
        let mut then: HashMap<&Key, &Recent> = HashMap::new();
        for recent in self.window.range(first..) {
            then.entry(&recent.event.kv.key).or_insert(recent);
        }
        if then.is_empty() {
            let listed = self.list(selection, limit);
            return Some(RangeResponse { revision: at, ..listed });
        }
        let mut kvs: BTreeMap<&Key, &Arc<KeyValue>> = self
            .select(selection)
            .filter(|kv| !then.contains_key(&kv.key))
            .map(|kv| (&kv.key, kv))
            .collect();
        for (key, next) in then {
            if selection.range.contains(key)
                && term.is_none_or(|term| next.before.contains(&term))
                && let Some(kv) = &next.event.prev
            {
                kvs.insert(key, kv);
            }
        }
        let limit = if limit == 0 { usize::MAX } else { limit };
        let count = kvs.len();
        let kvs: Vec<_> = kvs.into_values().take(limit).cloned().collect();
        Some(RangeResponse { revision: at, more: kvs.len() < count, kvs, count })
    }
}

fn weight(event: &Event) -> u64 {
    (event.kv.key.len() + event.kv.value.len()) as u64
}

fn bounds(range: &KeyRange) -> Option<(Bound<Key>, Bound<Key>)> {
    let start = range.start.clone();
    let end = match &range.end {
        RangeEnd::Single => Bound::Included(start.clone()),
        RangeEnd::Before(end) if *end <= start => return None,
        RangeEnd::Before(end) => Bound::Excluded(end.clone()),
        RangeEnd::Unbounded => Bound::Unbounded,
    };
    Some((Bound::Included(start), end))
}
