//! The keys in memory: every live version and the recent history of each.
//!
//! Versions a transaction has written but the log has not yet made durable are already in their
//! chains, above the *published* revision; readers look at or below it and so never see them.
//! That is all the isolation there is: a later transaction of the same batch reads what an earlier
//! one wrote, a failed batch is taken back, and publishing is the change of one number.
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::record::{stored_bytes, tombstone};
use crate::error::{Error, Result};
use crate::model::*;

/// The versions of one key, oldest first. Almost always there is one.
type Chain = SmallVec<[Arc<KeyValue>; 2]>;

#[derive(Default)]
pub struct State {
    keys: BTreeMap<Key, Chain>,
    /// Published changes since the compaction, in order: what watches read.
    history: VecDeque<Event>,
    history_bytes: u64,
    published: Revision,
    compacted: Revision,
    /// Revisions that reads under way still need, and how many of them.
    readers: BTreeMap<Revision, usize>,
    leases: HashMap<LeaseId, Lease>,
    live_keys: usize,
    live_bytes: u64,
}

pub struct Lease {
    pub ttl: u64,
    /// On the engine's clock.
    pub deadline: Duration,
    pub keys: BTreeSet<Key>,
}

impl State {
    /// A store that nobody has written to is at revision one, as etcd's: zero would not do as an
    /// answer, for as a question it means "now".
    pub fn empty() -> Self {
        State { published: 1, ..State::default() }
    }

    /// From what the log said: chains sorted by key, history in order.
    pub fn restore(
        keys: BTreeMap<Key, Chain>,
        history: VecDeque<Event>,
        published: Revision,
        compacted: Revision,
        leases: HashMap<LeaseId, Lease>,
    ) -> Self {
        let mut state = State { keys, history, published, compacted, leases, ..State::default() };
        for latest in state.keys.values().filter_map(|chain| chain.last()) {
            if !latest.is_tombstone() {
                state.live_keys += 1;
                state.live_bytes += stored_bytes(latest);
            }
            if let Some(lease) = state.leases.get_mut(&latest.lease) {
                lease.keys.insert(latest.key.clone());
            }
        }
        state.history_bytes = state.history.iter().map(|e| stored_bytes(&e.kv)).sum();
        state
    }

    pub fn published(&self) -> Revision {
        self.published
    }

    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    pub fn live_keys(&self) -> usize {
        self.live_keys
    }

    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub fn history(&self) -> &VecDeque<Event> {
        &self.history
    }

    pub fn history_bytes(&self) -> u64 {
        self.history_bytes
    }

    pub fn leases(&self) -> &HashMap<LeaseId, Lease> {
        &self.leases
    }

    pub fn lease_mut(&mut self, id: LeaseId) -> Option<&mut Lease> {
        self.leases.get_mut(&id)
    }

    pub fn get(&self, key: &[u8], at: Revision) -> Option<&Arc<KeyValue>> {
        visible(self.keys.get(key)?, at)
    }

    /// All versions kept of a key.
    pub fn versions(&self, key: &[u8]) -> &[Arc<KeyValue>] {
        self.keys.get(key).map_or(&[], |chain| chain.as_slice())
    }

    /// The revision a read is made at, or why it cannot be.
    pub fn read_revision(&self, requested: Revision) -> Result<Revision> {
        match requested {
            0 => Ok(self.published),
            r if r > self.published => {
                Err(Error::FutureRevision { requested, current: self.published })
            }
            r if r < self.compacted => {
                Err(Error::Compacted { requested, compacted: self.compacted })
            }
            r => Ok(r),
        }
    }

    /// Live versions in a range as of a revision, in key order.
    pub fn live<'a>(
        &'a self,
        range: &KeyRange,
        at: Revision,
    ) -> impl Iterator<Item = &'a Arc<KeyValue>> + use<'a> {
        let start = Bound::Included(range.start.clone());
        let end = match &range.end {
            RangeEnd::Single => Bound::Included(range.start.clone()),
            RangeEnd::Before(end) if *end <= range.start => Bound::Excluded(range.start.clone()),
            RangeEnd::Before(end) => Bound::Excluded(end.clone()),
            RangeEnd::Unbounded => Bound::Unbounded,
        };
        // An empty range would be a panic of the map's.
        let empty = matches!(&end, Bound::Excluded(end) if *end <= range.start);
        let bounds = if empty { (start.clone(), start) } else { (start, end) };
        let walk = if empty { None } else { Some(self.keys.range(bounds)) };
        walk.into_iter().flatten().filter_map(move |(_, chain)| visible(chain, at))
    }

    pub fn pin(&mut self, revision: Revision) {
        *self.readers.entry(revision).or_default() += 1;
    }

    pub fn unpin(&mut self, revision: Revision) {
        if let Entry::Occupied(mut readers) = self.readers.entry(revision) {
            *readers.get_mut() -= 1;
            if *readers.get() == 0 {
                readers.remove();
            }
        }
    }

    /// Evaluates a transaction on top of everything written so far; what it changes takes the
    /// revision `base + 1`. An error changes nothing.
    pub fn apply(
        &mut self,
        txn: &Txn,
        base: Revision,
        events: &mut Vec<Event>,
    ) -> Result<TxnResponse> {
        let first = events.len();
        let result = check(txn, &HashSet::new()).and_then(|_| self.run(txn, base + 1, events));
        if result.is_err() {
            self.take_back(&events.split_off(first));
        }
        result
    }

    fn run(
        &mut self,
        txn: &Txn,
        revision: Revision,
        events: &mut Vec<Event>,
    ) -> Result<TxnResponse> {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let ops = if succeeded { &txn.success } else { &txn.failure };
        let mut responses = Vec::with_capacity(ops.len());
        for op in ops {
            responses.push(match op {
                Op::Range(request) => OpResponse::Range(self.range_in_txn(request, revision)?),
                Op::Put(put) => OpResponse::Put(self.put(put, revision, events)?),
                Op::Delete(range) => OpResponse::Delete(self.delete(range, revision, events)),
                Op::Txn(txn) => OpResponse::Txn(self.run(txn, revision, events)?),
            });
        }
        Ok(TxnResponse { revision, succeeded, responses })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let mut keys = self.live(&compare.range, Revision::MAX).peekable();
        if keys.peek().is_none() {
            return compare.holds_for(None);
        }
        keys.all(|kv| compare.holds_for(Some(kv)))
    }

    fn range_in_txn(&self, request: &RangeRequest, revision: Revision) -> Result<RangeResponse> {
        let at = match request.revision {
            0 => Revision::MAX,
            r => self.read_revision(r)?,
        };
        let limit = if request.limit == 0 { usize::MAX } else { request.limit };
        let mut live = self.live(&request.range, at);
        let kvs: Vec<_> = live.by_ref().take(limit).cloned().collect();
        let rest = live.count();
        Ok(RangeResponse { revision, more: rest > 0, count: kvs.len() + rest, kvs })
    }

    fn put(&mut self, put: &Put, revision: Revision, events: &mut Vec<Event>) -> Result<Event> {
        let prev = self.get(&put.key, Revision::MAX).cloned();
        let keep =
            |what| Error::Invalid(format!("key {} does not exist: no {what} to keep", put.key));
        let kv = KeyValue {
            // One allocation serves all versions of a key.
            key: prev.as_ref().map_or_else(|| put.key.clone(), |prev| prev.key.clone()),
            value: match (&put.value, &prev) {
                (Some(value), _) => value.clone(),
                (None, Some(prev)) => prev.value.clone(),
                (None, None) => return Err(keep("value")),
            },
            lease: match (put.lease, &prev) {
                (Some(lease), _) => lease,
                (None, Some(prev)) => prev.lease,
                (None, None) => return Err(keep("lease")),
            },
            create_revision: prev.as_ref().map_or(revision, |prev| prev.create_revision),
            mod_revision: revision,
            version: prev.as_ref().map_or(1, |prev| prev.version + 1),
            slot: Default::default(),
        };
        if kv.lease != 0 && !self.leases.contains_key(&kv.lease) {
            return Err(Error::LeaseNotFound(kv.lease));
        }
        let event = Event { kv: Arc::new(kv), prev };
        self.push(&event);
        events.push(event.clone());
        Ok(event)
    }

    fn delete(
        &mut self,
        range: &KeyRange,
        revision: Revision,
        events: &mut Vec<Event>,
    ) -> Vec<Event> {
        let doomed: Vec<_> = self.live(range, Revision::MAX).cloned().collect();
        let deleted: Vec<Event> = doomed
            .into_iter()
            .map(|kv| Event { kv: tombstone(kv.key.clone(), revision), prev: Some(kv) })
            .collect();
        for event in &deleted {
            self.push(event);
        }
        events.extend(deleted.iter().cloned());
        deleted
    }

    fn push(&mut self, event: &Event) {
        self.keys.entry(event.kv.key.clone()).or_default().push(event.kv.clone());
    }

    /// Undoes unpublished changes, the newest first.
    pub fn take_back(&mut self, events: &[Event]) {
        for event in events.iter().rev() {
            if let Some(chain) = self.keys.get_mut(&event.kv.key) {
                chain.pop();
                if chain.is_empty() {
                    self.keys.remove(&event.kv.key);
                }
            }
        }
    }

    /// Makes changes visible to readers.
    pub fn publish(&mut self, events: &[Event]) {
        for event in events {
            let Event { kv, prev } = event;
            if let Some(prev) = prev {
                self.live_keys -= 1;
                self.live_bytes -= stored_bytes(prev);
                if let Some(lease) = self.leases.get_mut(&prev.lease) {
                    lease.keys.remove(&kv.key);
                }
            }
            if !kv.is_tombstone() {
                self.live_keys += 1;
                self.live_bytes += stored_bytes(kv);
                if let Some(lease) = self.leases.get_mut(&kv.lease) {
                    lease.keys.insert(kv.key.clone());
                }
            }
            self.published = kv.mod_revision;
            self.history_bytes += stored_bytes(kv);
            self.history.push_back(event.clone());
        }
    }

    pub fn add_lease(&mut self, id: LeaseId, ttl: u64, deadline: Duration) {
        self.leases.insert(id, Lease { ttl, deadline, keys: BTreeSet::new() });
    }

    pub fn remove_lease(&mut self, id: LeaseId) {
        self.leases.remove(&id);
    }

    /// Declares history up to a revision gone; [`State::sweep`] then removes it.
    pub fn compact(&mut self, revision: Revision) {
        self.compacted = self.compacted.max(revision);
    }

    /// Removes a bounded amount of compacted history; true while there is more to do.
    pub fn sweep(&mut self, limit: usize) -> bool {
        for _ in 0..limit {
            let Some(event) = self.history.pop_front_if(|event| {
                let needed = self.readers.keys().next().copied().unwrap_or(Revision::MAX);
                event.kv.mod_revision <= self.compacted.min(needed)
            }) else {
                return false;
            };
            self.history_bytes -= stored_bytes(&event.kv);
            self.trim(&event.kv);
        }
        true
    }

    /// Once a version is the base of all readable history, those before it are not needed; nor is
    /// the version itself if it is a tombstone.
    fn trim(&mut self, kv: &KeyValue) {
        let Some(chain) = self.keys.get_mut(&kv.key) else { return };
        let gone = |v: &KeyValue| {
            v.mod_revision < kv.mod_revision
                || v.mod_revision == kv.mod_revision && kv.is_tombstone()
        };
        let stale = chain.iter().take_while(|v| gone(v)).count();
        chain.drain(..stale);
        if chain.is_empty() {
            self.keys.remove(&kv.key);
        } else if chain.spilled() && chain.len() <= chain.inline_size() {
            chain.shrink_to_fit();
        }
    }
}

fn visible(chain: &Chain, at: Revision) -> Option<&Arc<KeyValue>> {
    let newest = chain.last()?;
    let version = if newest.mod_revision <= at {
        newest
    } else {
        &chain[chain.partition_point(|v| v.mod_revision <= at).checked_sub(1)?]
    };
    (!version.is_tombstone()).then_some(version)
}

/// A key may be written once in a transaction, for its version carries one revision. Returns the
/// keys the transaction may write.
fn check<'a>(txn: &'a Txn, before: &HashSet<&'a Key>) -> Result<HashSet<&'a Key>> {
    if txn.compare.len().max(txn.success.len()).max(txn.failure.len()) > MAX_TXN_OPS {
        return Err(Error::Invalid(format!("more than {MAX_TXN_OPS} operations in a transaction")));
    }
    let twice = |key: &Key| Error::Invalid(format!("key {key} is written twice"));
    let mut all = HashSet::new();
    for ops in [&txn.success, &txn.failure] {
        let mut written = before.clone();
        let mut deleted: Vec<&KeyRange> = Vec::new();
        for op in ops {
            match op {
                Op::Put(put) => {
                    if !written.insert(&put.key) || deleted.iter().any(|r| r.contains(&put.key)) {
                        return Err(twice(&put.key));
                    }
                }
                Op::Delete(range) => {
                    if let Some(key) = written.iter().find(|key| range.contains(key)) {
                        return Err(twice(key));
                    }
                    deleted.push(range);
                }
                Op::Txn(txn) => written = check(txn, &written)?,
                Op::Range(_) => {}
            }
        }
        all.extend(written);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(state: &mut State, key: &str, value: &'static str) {
        let txn = Txn { success: vec![Op::put(key, value, 0)], ..Txn::default() };
        commit(state, &txn);
    }

    fn delete(state: &mut State, key: &str) {
        let txn = Txn { success: vec![Op::Delete(KeyRange::key(key))], ..Txn::default() };
        commit(state, &txn);
    }

    fn commit(state: &mut State, txn: &Txn) {
        let mut events = Vec::new();
        state.apply(txn, state.published(), &mut events).unwrap();
        state.publish(&events);
    }

    fn at(state: &State, revision: Revision) -> String {
        let range = KeyRange::prefix("");
        let live = state.live(&range, revision);
        live.map(|kv| format!("{}={}", kv.key, String::from_utf8_lossy(&kv.value)))
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn sample() -> State {
        let mut state = State::default();
        put(&mut state, "a", "1");
        put(&mut state, "b", "2");
        put(&mut state, "a", "3");
        delete(&mut state, "b");
        put(&mut state, "b", "5");
        state
    }

    #[test]
    fn every_revision_can_be_read() {
        let state = sample();
        for (revision, expected) in
            [(1, "a=1"), (2, "a=1 b=2"), (3, "a=3 b=2"), (4, "a=3"), (5, "a=3 b=5")]
        {
            assert_eq!(at(&state, revision), expected);
        }
    }

    #[test]
    fn compaction_removes_history_but_nothing_that_can_be_read() {
        for compacted in 1..=5 {
            let mut state = sample();
            let before: Vec<_> = (compacted..=5).map(|r| at(&state, r)).collect();
            state.compact(compacted);
            while state.sweep(1) {}
            let after: Vec<_> = (compacted..=5).map(|r| at(&state, r)).collect();
            assert_eq!(before, after, "compacted at {compacted}");
            assert_eq!(state.history.len() as u64, 5 - compacted);
        }
        let mut state = sample();
        delete(&mut state, "a");
        delete(&mut state, "b");
        state.compact(7);
        while state.sweep(100) {}
        assert!(state.keys.is_empty(), "a deleted key leaves nothing behind");
        assert_eq!((state.live_keys, state.live_bytes, state.history_bytes), (0, 0, 0));
    }

    #[test]
    fn a_read_under_way_holds_the_sweep_back() {
        let mut state = sample();
        state.pin(2);
        state.compact(5);
        while state.sweep(1) {}
        assert_eq!(at(&state, 2), "a=1 b=2");
        state.unpin(2);
        while state.sweep(1) {}
        assert!(state.history.is_empty());
    }

    #[test]
    fn a_batch_taken_back_was_never_there() {
        let mut state = sample();
        let mut events = Vec::new();
        let first = Txn { success: vec![Op::put("a", "x", 0)], ..Txn::default() };
        let second = Txn {
            success: vec![Op::Delete(KeyRange::prefix("")), Op::put("c", "y", 0)],
            ..first.clone()
        };
        state.apply(&first, 5, &mut events).unwrap();
        // A delete of everything does not write "c" twice, but this one would.
        assert!(state.apply(&second, 6, &mut events).is_err());
        let third = Txn { success: vec![Op::Delete(KeyRange::prefix(""))], ..Txn::default() };
        state.apply(&third, 6, &mut events).unwrap();
        assert_eq!(at(&state, 5), "a=3 b=5", "unpublished writes are invisible");
        state.take_back(&events);
        assert_eq!(at(&state, Revision::MAX), "a=3 b=5");
    }
}
