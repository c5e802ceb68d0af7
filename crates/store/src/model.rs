//! The words of the store: keys, versions of a key, events, ranges, transactions.
//!
//! They are etcd's. Everything here is plain data; engines give it meaning.
use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::slot::Slot;
use bytes::Bytes;

/// A point in the store's single history; every transaction that changes something takes the
/// next one. Zero, as an argument, means "now".
pub type Revision = u64;

/// A lease; zero is "no lease".
pub type LeaseId = i64;

/// What one request may carry in keys and values together: etcd's default.
pub const MAX_REQUEST_BYTES: usize = 1536 * 1024;

/// What one transaction may hold: etcd's default for operations.
pub const MAX_TXN_OPS: usize = 128;

/// A key: bytes, shared by every place that mentions it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

/// One version of a key. A deletion is a version too: a tombstone, whose `version` is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Key,
    pub value: Bytes,
    pub create_revision: Revision,
    pub mod_revision: Revision,
    /// How many times the key was written since it was created.
    pub version: u64,
    pub lease: LeaseId,
    /// What readers make of the value.
    pub slot: Slot,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The version written; a tombstone for a deletion.
    pub kv: Arc<KeyValue>,
    /// What it replaced. An engine that cannot know it any more (it was compacted) leaves it out.
    pub prev: Option<Arc<KeyValue>>,
}

/// A half-open range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub start: Key,
    pub end: RangeEnd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeEnd {
    /// The one key that is the start.
    Single,
    /// Every key below this one.
    Before(Key),
    /// Every key from the start on.
    Unbounded,
}

/// A read of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRequest {
    pub range: KeyRange,
    /// At most this many; zero is no limit.
    pub limit: usize,
    /// As of this revision; zero is now.
    pub revision: Revision,
    /// Whether [`RangeResponse::count`] is wanted: it costs a walk of the whole range.
    pub count: bool,
    /// Leave the values out.
    pub keys_only: bool,
    /// Content with what the nearest member knows, which may be old. The embedded engine is
    /// always up to date.
    pub serializable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeResponse {
    /// The store's revision when it answered: what a list carries as its resource version.
    pub revision: Revision,
    pub kvs: Vec<Arc<KeyValue>>,
    /// The limit cut the answer short.
    pub more: bool,
    /// How many keys the range holds, if it was asked for; else how many were returned.
    pub count: usize,
}

/// Whether an acknowledged write may still be lost to a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On disk before it is acknowledged.
    #[default]
    Durable,
    /// Acknowledged once it is in the operating system's hands and synced with the next durable
    /// write, at the latest after the flush interval. For renewals, whose loss means only that
    /// they are made again. The etcd engine treats it as durable.
    Coalescible,
}

/// What a single-key write may ask for beyond its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub lease: LeaseId,
    pub durability: Durability,
}

/// How a guarded write ended. A conflict is an answer, not an error: the caller decides again
/// from the version it is handed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    Applied(Event),
    /// The guard did not hold; this is the key's current version, if it exists.
    Conflict(Option<Arc<KeyValue>>),
}

/// If every comparison holds then `success` else `failure`, as one change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    pub compare: Vec<Compare>,
    pub success: Vec<Op>,
    pub failure: Vec<Op>,
    pub durability: Durability,
}

/// Holds if it holds for every key in the range. A range without keys is compared once, as a key
/// that does not exist (all its numbers are zero); a value comparison then fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    pub range: KeyRange,
    pub relation: Relation,
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Equal,
    NotEqual,
    Greater,
    Less,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Version(u64),
    CreateRevision(Revision),
    ModRevision(Revision),
    Value(Bytes),
    Lease(LeaseId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Range(RangeRequest),
    Put(Put),
    Delete(KeyRange),
    Txn(Box<Txn>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub key: Key,
    /// Nothing keeps the current value, which must exist.
    pub value: Option<Bytes>,
    /// Nothing keeps the current lease.
    pub lease: Option<LeaseId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResponse {
    Range(RangeResponse),
    Put(Event),
    Delete(Vec<Event>),
    Txn(TxnResponse),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnResponse {
    pub revision: Revision,
    pub succeeded: bool,
    pub responses: Vec<OpResponse>,
}

/// What a lease is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseStatus {
    pub id: LeaseId,
    /// Seconds granted.
    pub granted_ttl: u64,
    /// Seconds left.
    pub ttl: u64,
    pub keys: Vec<Key>,
}

/// What a watch hands over at once. Events come in revision order and a revision is never split
/// between batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchBatch {
    pub events: Vec<Event>,
    /// Everything in the range up to this revision has now been delivered.
    pub revision: Revision,
}

impl KeyValue {
    pub fn is_tombstone(&self) -> bool {
        self.version == 0
    }
}

impl Event {
    pub fn revision(&self) -> Revision {
        self.kv.mod_revision
    }

    pub fn is_delete(&self) -> bool {
        self.kv.is_tombstone()
    }

    pub fn is_create(&self) -> bool {
        self.kv.version == 1
    }
}

impl KeyRange {
    pub fn key(key: impl Into<Key>) -> Self {
        KeyRange { start: key.into(), end: RangeEnd::Single }
    }

    /// Every key that begins with these bytes.
    pub fn prefix(prefix: impl Into<Key>) -> Self {
        let start = prefix.into();
        KeyRange { end: prefix_end(&start), start }
    }

    /// The part of this range from `start` on: how a list continues.
    pub fn starting_at(&self, start: impl Into<Key>) -> Self {
        KeyRange { start: start.into(), end: self.end.clone() }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            RangeEnd::Single => *key == *self.start,
            RangeEnd::Before(end) => *key >= *self.start && *key < **end,
            RangeEnd::Unbounded => *key >= *self.start,
        }
    }
}

fn prefix_end(prefix: &[u8]) -> RangeEnd {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return RangeEnd::Before(end.into());
        }
    }
    RangeEnd::Unbounded
}

impl RangeRequest {
    pub fn new(range: KeyRange) -> Self {
        RangeRequest {
            range,
            limit: 0,
            revision: 0,
            count: false,
            keys_only: false,
            serializable: false,
        }
    }

    pub fn limit(self, limit: usize) -> Self {
        RangeRequest { limit, ..self }
    }

    pub fn at(self, revision: Revision) -> Self {
        RangeRequest { revision, ..self }
    }

    pub fn counted(self) -> Self {
        RangeRequest { count: true, ..self }
    }
}

impl RangeResponse {
    /// Where the next page of a list that was cut short begins.
    pub fn continue_key(&self) -> Option<Key> {
        let last = self.kvs.last().filter(|_| self.more)?;
        Some(last.key.next())
    }
}

impl WriteOptions {
    pub fn lease(lease: LeaseId) -> Self {
        WriteOptions { lease, ..Self::default() }
    }

    pub fn coalescible() -> Self {
        WriteOptions { durability: Durability::Coalescible, ..Self::default() }
    }
}

impl Outcome {
    pub fn applied(self) -> Option<Event> {
        match self {
            Outcome::Applied(event) => Some(event),
            Outcome::Conflict(_) => None,
        }
    }
}

impl Compare {
    pub fn mod_revision(key: impl Into<Key>, revision: Revision) -> Self {
        Compare {
            range: KeyRange::key(key),
            relation: Relation::Equal,
            target: Target::ModRevision(revision),
        }
    }

    /// Whether it holds for one key.
    pub fn holds_for(&self, kv: Option<&KeyValue>) -> bool {
        let number = |f: fn(&KeyValue) -> u64| kv.map_or(0, f);
        let ordering = match &self.target {
            Target::Version(n) => number(|kv| kv.version).cmp(n),
            Target::CreateRevision(n) => number(|kv| kv.create_revision).cmp(n),
            Target::ModRevision(n) => number(|kv| kv.mod_revision).cmp(n),
            Target::Lease(n) => kv.map_or(0, |kv| kv.lease).cmp(n),
            Target::Value(value) => match kv {
                Some(kv) => kv.value.cmp(value),
                None => return false,
            },
        };
        match self.relation {
            Relation::Equal => ordering.is_eq(),
            Relation::NotEqual => ordering.is_ne(),
            Relation::Greater => ordering.is_gt(),
            Relation::Less => ordering.is_lt(),
        }
    }
}

impl Op {
    pub fn put(key: impl Into<Key>, value: impl Into<Bytes>, lease: LeaseId) -> Self {
        Op::Put(Put { key: key.into(), value: Some(value.into()), lease: Some(lease) })
    }

    pub fn get(key: impl Into<Key>) -> Self {
        Op::Range(RangeRequest::new(KeyRange::key(key)))
    }
}

impl Txn {
    /// Bytes of keys and values it carries: what [`MAX_REQUEST_BYTES`] limits.
    pub fn payload_bytes(&self) -> usize {
        let ops = self.success.iter().chain(&self.failure).map(|op| match op {
            Op::Put(put) => put.key.len() + put.value.as_ref().map_or(0, Bytes::len),
            Op::Delete(range) | Op::Range(RangeRequest { range, .. }) => range.start.len(),
            Op::Txn(txn) => txn.payload_bytes(),
        });
        let compare = self.compare.iter().map(|c| match &c.target {
            Target::Value(value) => value.len() + c.range.start.len(),
            _ => c.range.start.len(),
        });
        ops.sum::<usize>() + compare.sum::<usize>()
    }
}

impl Key {
    /// The first key after this one.
    pub fn next(&self) -> Key {
        let mut bytes = Vec::with_capacity(self.len() + 1);
        bytes.extend_from_slice(self);
        bytes.push(0);
        bytes.into()
    }
}

impl Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Key {
    fn from(key: &str) -> Self {
        Key(key.as_bytes().into())
    }
}

impl From<String> for Key {
    fn from(key: String) -> Self {
        Key(key.into_bytes().into())
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Self {
        Key(key.into())
    }
}

impl From<Vec<u8>> for Key {
    fn from(key: Vec<u8>) -> Self {
        Key(key.into())
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_its_successor() {
        for (prefix, end) in [
            (b"/a/".as_slice(), RangeEnd::Before("/a0".into())),
            (b"a\xff", RangeEnd::Before("b".into())),
            (b"\xff\xff", RangeEnd::Unbounded),
            (b"", RangeEnd::Unbounded),
        ] {
            assert_eq!(KeyRange::prefix(prefix).end, end, "{prefix:?}");
        }
    }

    #[test]
    fn a_range_contains_its_keys_only() {
        let pods = KeyRange::prefix("/pods/");
        for (key, inside) in [
            ("/pods/a", true),
            ("/pods/", true),
            ("/pods", false),
            ("/pods0", false),
            ("/q", false),
        ] {
            assert_eq!(pods.contains(key.as_bytes()), inside, "{key}");
        }
        assert!(pods.starting_at("/pods/b").contains(b"/pods/b"));
        assert!(!pods.starting_at("/pods/b").contains(b"/pods/a"));
    }
}
