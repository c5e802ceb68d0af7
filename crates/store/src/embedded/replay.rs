//! Opening: from segment files to the state they describe.
//!
//! The newest segment with a valid checkpoint is the end of the chain; following `previous` back
//! to the oldest needed one gives the log. A damaged frame is a **torn tail** if no later frame
//! vouches that it had been synced: it was never acknowledged and is dropped. Otherwise it is
//! **damage** to acknowledged data, and the engine refuses to start rather than serve a hole.
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::disk::Disk;
use super::log::{Closed, segment_id, segment_name};
use super::record::{self, Checkpoint, FRAME_HEADER, Flaw, PutRecord, Record, tombstone};
use super::state::{Lease, State};
use crate::model::{Event, Key, KeyValue, LeaseId, Revision};

/// Coalescible revisions that may be acknowledged without having been synced. After a power cut
/// the revision continues this much higher, so that none is ever given twice.
pub const MAX_UNSYNCED: u64 = 1000;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("failed to {action} {name}")]
    Io { action: &'static str, name: String, source: io::Error },
    #[error(
        "log segment {segment} is damaged at byte {offset}: acknowledged writes from there on \
         cannot be trusted. Restore the last backup (`skiff restore`), or, if it is too old, \
         salvage what can still be read into a backup (`skiff restore --salvage`) and restore that"
    )]
    Damaged { segment: String, offset: u64 },
    #[error(
        "log segment {segment} is missing though later ones rely on it. Put the file back, or \
         restore the last backup (`skiff restore`), or salvage the rest \
         (`skiff restore --salvage`)"
    )]
    Missing { segment: String },
}

pub struct Opened {
    pub state: State,
    /// The chain so far, oldest first; the next segment follows the last of them.
    pub chain: Vec<Closed>,
    pub next_id: u64,
}

/// A file that is part of the chain or may be.
struct Segment<'a> {
    id: u64,
    bytes: &'a [u8],
    checkpoint: Option<Checkpoint>,
    /// Where each whole frame ends, up to the first flaw.
    ends: Vec<u64>,
    records: Vec<(u64, Record<'a>)>,
    flaw: Flaw,
}

pub fn replay(disk: &dyn Disk, now: Duration) -> Result<Opened, OpenError> {
    let names = disk.list().map_err(io_error("list", "the store's directory"))?;
    let mut ids: Vec<u64> = names.iter().filter_map(|name| segment_id(name)).collect();
    ids.sort_unstable();
    let files = read_all(disk, &ids)?;
    let segments: BTreeMap<u64, Segment<'_>> =
        in_parallel(&files, |(id, bytes)| (*id, scan(*id, bytes))).into_iter().collect();
    let chain = chain(&segments)?;
    let Some(last) = chain.last().map(|(segment, end)| (segment.id, *end)) else {
        remove(disk, ids.iter().copied())?;
        let next_id = ids.last().map_or(1, |id| id + 1);
        return Ok(Opened { state: State::default(), chain: Vec::new(), next_id });
    };
    // What is read below must not be lost to a power cut after it has been served.
    disk.sync(&segment_name(last.0)).map_err(io_error("sync", &segment_name(last.0)))?;
    let (state, closed) = rebuild(&chain, disk.boot_id(), now);
    let kept: Vec<u64> = closed.iter().map(|segment| segment.id).collect();
    remove(disk, ids.iter().copied().filter(|id| !kept.contains(id)))?;
    Ok(Opened { state, chain: closed, next_id: ids.last().map_or(1, |id| id + 1) })
}

fn io_error(action: &'static str, name: &str) -> impl FnOnce(io::Error) -> OpenError {
    let name = name.to_owned();
    move |source| OpenError::Io { action, name, source }
}

/// Spare segments, failed ones and those whose removal a crash prevented.
fn remove(disk: &dyn Disk, ids: impl Iterator<Item = u64>) -> Result<(), OpenError> {
    for name in ids.map(segment_name) {
        disk.remove(&name).map_err(io_error("remove", &name))?;
    }
    Ok(())
}

fn read_all(disk: &dyn Disk, ids: &[u64]) -> Result<Vec<(u64, Vec<u8>)>, OpenError> {
    in_parallel(ids, |id| {
        let name = segment_name(*id);
        Ok((*id, disk.read(&name).map_err(io_error("read", &name))?))
    })
    .into_iter()
    .collect()
}

/// Maps in order, on as many threads as there are processors.
fn in_parallel<'a, T: Sync, R: Send>(items: &'a [T], f: impl Fn(&'a T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    if items.len() < 2 || threads < 2 {
        return items.iter().map(f).collect();
    }
    let f = &f;
    std::thread::scope(|scope| {
        let parts: Vec<_> = items
            .chunks(items.len().div_ceil(threads))
            .map(|chunk| scope.spawn(move || chunk.iter().map(f).collect::<Vec<R>>()))
            .collect();
        let join = |part: std::thread::ScopedJoinHandle<'_, Vec<R>>| {
            part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        parts.into_iter().flat_map(join).collect()
    })
}

fn scan(id: u64, bytes: &[u8]) -> Segment<'_> {
    let mut segment = Segment {
        id,
        bytes,
        checkpoint: None,
        ends: Vec::new(),
        records: Vec::new(),
        flaw: Flaw::End,
    };
    let mut offset = 0;
    while let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
        let payload = match record::read_frame(rest, id) {
            Ok((payload, _)) => payload,
            Err(flaw) => {
                segment.flaw = flaw;
                break;
            }
        };
        let Some(records) = record::decode(payload) else {
            segment.flaw = Flaw::Damaged;
            break;
        };
        if offset == 0 {
            match records.first() {
                Some(Record::Checkpoint(checkpoint)) => {
                    segment.checkpoint = Some(checkpoint.clone());
                }
                _ => break,
            }
        }
        offset += FRAME_HEADER + payload.len();
        segment.ends.push(offset as u64);
        segment.records.extend(records.into_iter().map(|record| (offset as u64, record)));
    }
    segment
}

impl Segment<'_> {
    fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Whether a frame after the first flaw says that the flaw's place had been synced.
    fn is_vouched_for(&self) -> bool {
        let end = self.end();
        let tail = &self.bytes[end as usize..];
        let owner = self.id.to_le_bytes();
        // A frame's owner stands eight bytes into its header.
        (8..tail.len().saturating_sub(16)).any(|at| {
            tail[at..].starts_with(&owner)
                && record::read_frame(&tail[at - 8..], self.id)
                    .is_ok_and(|(_, durable)| durable > end)
        })
    }

    fn damaged(&self) -> OpenError {
        OpenError::Damaged { segment: segment_name(self.id), offset: self.end() }
    }
}

/// The segments that make up the log, oldest first, each with the bytes that count.
fn chain<'a, 'b>(
    segments: &'b BTreeMap<u64, Segment<'a>>,
) -> Result<Vec<(&'b Segment<'a>, u64)>, OpenError> {
    let mut chain = Vec::new();
    let mut newest_first = segments.values().rev();
    let last = loop {
        let Some(segment) = newest_first.next() else { return Ok(chain) };
        // A spare, or a segment whose beginning failed: unless it was written further.
        if segment.is_vouched_for() {
            return Err(segment.damaged());
        }
        if segment.checkpoint.is_some() {
            break segment;
        }
    };
    let mut oldest = last.checkpoint.as_ref().map_or(last.id, |c| c.oldest.min(last.id));
    for (_, record) in &last.records {
        if let Record::Dropped { segment } = record {
            oldest = oldest.max(segment + 1);
        }
    }
    let (mut segment, mut end) = (last, last.end());
    loop {
        if segment.ends.binary_search(&end).is_err() {
            return Err(segment.damaged());
        }
        chain.push((segment, end));
        let Some(checkpoint) = &segment.checkpoint else { return Err(segment.damaged()) };
        if checkpoint.previous < oldest {
            chain.reverse();
            return Ok(chain);
        }
        end = checkpoint.previous_end;
        segment = segments
            .get(&checkpoint.previous)
            .ok_or_else(|| OpenError::Missing { segment: segment_name(checkpoint.previous) })?;
    }
}

/// A version as found in the log.
#[derive(Clone, Copy)]
struct Found<'a> {
    key: &'a [u8],
    revision: Revision,
    /// Its place in the log: orders the changes of one transaction.
    place: usize,
    put: Option<PutRecord<'a>>,
}

fn rebuild(chain: &[(&Segment<'_>, u64)], boot_id: u128, now: Duration) -> (State, Vec<Closed>) {
    let mut found: Vec<Found<'_>> = Vec::new();
    let mut leases: BTreeMap<LeaseId, u64> = BTreeMap::new();
    let (mut revision, mut compacted, mut last_boot, mut closed_well) = (0, 0, 0, false);
    let mut closed = Vec::new();
    for (segment, end) in chain {
        for (_, record) in segment.records.iter().take_while(|(at, _)| at <= end) {
            closed_well = matches!(record, Record::Closed);
            match record {
                Record::Put(put) => {
                    revision = revision.max(put.mod_revision);
                    let (key, place) = (put.key, found.len());
                    found.push(Found { key, revision: put.mod_revision, place, put: Some(*put) });
                }
                Record::Delete { key, revision: deleted } => {
                    revision = revision.max(*deleted);
                    let place = found.len();
                    found.push(Found { key, revision: *deleted, place, put: None });
                }
                Record::Grant { lease, ttl } => drop(leases.insert(*lease, *ttl)),
                Record::Revoke { lease } => drop(leases.remove(lease)),
                Record::Compact { revision } => compacted = compacted.max(*revision),
                Record::Checkpoint(checkpoint) => {
                    revision = revision.max(checkpoint.revision);
                    compacted = compacted.max(checkpoint.compacted);
                    last_boot = checkpoint.boot_id;
                    leases = checkpoint.leases.iter().copied().collect();
                }
                Record::Dropped { .. } | Record::Closed | Record::End { .. } => {}
            }
        }
        closed.push(Closed { id: segment.id, end: *end, last_revision: revision });
    }
    if !closed_well && (last_boot != boot_id || boot_id == 0) {
        // Power was cut: coalescible writes may be gone that a client has seen. Their revisions
        // are skipped, and who watched from them is sent to list again.
        revision += MAX_UNSYNCED;
        compacted = revision;
    }
    let (keys, history) = chains(found, compacted);
    // Nobody could renew a lease while the engine was down: each begins anew.
    let lease = |(id, ttl)| {
        let deadline = now + Duration::from_secs(ttl);
        (id, Lease { ttl, deadline, keys: Default::default() })
    };
    let leases: HashMap<LeaseId, Lease> = leases.into_iter().map(lease).collect();
    (State::restore(keys, history, revision, compacted, leases), closed)
}

/// The newest readable version of every key.
pub struct Salvaged {
    pub revision: Revision,
    pub versions: Vec<Arc<KeyValue>>,
}

/// Reads around damage: every whole frame of every file, but for tails a later segment disowned.
pub fn salvage(disk: &dyn Disk) -> Result<Salvaged, OpenError> {
    let names = disk.list().map_err(io_error("list", "the store's directory"))?;
    let mut ids: Vec<u64> = names.iter().filter_map(|name| segment_id(name)).collect();
    ids.sort_unstable();
    let files = read_all(disk, &ids)?;
    let ends: HashMap<u64, u64> = files
        .iter()
        .filter_map(|(id, bytes)| scan(*id, bytes).checkpoint)
        .map(|checkpoint| (checkpoint.previous, checkpoint.previous_end))
        .collect();
    let (mut found, mut revision) = (Vec::new(), 0);
    for (id, bytes) in &files {
        let end = ends.get(id).map_or(bytes.len(), |end| bytes.len().min(*end as usize));
        let mut offset = 0;
        while offset < end {
            let whole = record::read_frame(&bytes[offset..], *id).ok().map(|(payload, _)| payload);
            let Some((payload, records)) = whole.and_then(|p| Some((p, record::decode(p)?))) else {
                offset += 1;
                continue;
            };
            offset += FRAME_HEADER + payload.len();
            for record in records {
                let place = found.len();
                let version = match record {
                    Record::Put(put) => {
                        Found { key: put.key, revision: put.mod_revision, place, put: Some(put) }
                    }
                    Record::Delete { key, revision } => Found { key, revision, place, put: None },
                    Record::Checkpoint(checkpoint) => {
                        revision = revision.max(checkpoint.revision);
                        continue;
                    }
                    _ => continue,
                };
                revision = revision.max(version.revision);
                found.push(version);
            }
        }
    }
    let (keys, _) = chains(found, Revision::MAX);
    let versions = keys.into_values().filter_map(|mut chain| chain.pop()).collect();
    Ok(Salvaged { revision, versions })
}

type Chains = BTreeMap<Key, smallvec::SmallVec<[Arc<KeyValue>; 2]>>;

/// Sorts what was found by key; keeps of each the base as of the compaction and all that follows.
fn chains(mut found: Vec<Found<'_>>, compacted: Revision) -> (Chains, VecDeque<Event>) {
    found.sort_by(|a, b| (a.key, a.revision, a.place).cmp(&(b.key, b.revision, b.place)));
    // A version moved by the janitor is there twice.
    found.dedup_by(|a, b| a.revision == b.revision && a.key == b.key);
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (i, version) in found.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if found[group.start].key == version.key => group.end = i + 1,
            _ => groups.push(i..i + 1),
        }
    }
    let built = in_parallel(&groups, |group| chain_of(&found[group.clone()], compacted));
    let mut changes: Vec<(Revision, usize, Event)> = Vec::new();
    let mut keys = Vec::with_capacity(built.len());
    for (chain, events) in built {
        changes.extend(events);
        if let Some(first) = chain.first() {
            keys.push((first.key.clone(), chain));
        }
    }
    changes.sort_by_key(|(revision, place, _)| (*revision, *place));
    (keys.into_iter().collect(), changes.into_iter().map(|(_, _, event)| event).collect())
}

type Built = (smallvec::SmallVec<[Arc<KeyValue>; 2]>, Vec<(Revision, usize, Event)>);

fn chain_of(versions: &[Found<'_>], compacted: Revision) -> Built {
    let base = versions.partition_point(|v| v.revision <= compacted).saturating_sub(1);
    let mut chain = smallvec::SmallVec::new();
    let mut events = Vec::new();
    let mut key: Option<Key> = None;
    let mut prev: Option<Arc<KeyValue>> = None;
    for version in &versions[base..] {
        if version.put.is_none() && version.revision <= compacted {
            continue;
        }
        let key = key.get_or_insert_with(|| Key::from(version.key)).clone();
        let kv = match version.put {
            Some(put) => put.to_version(key),
            None => tombstone(key, version.revision),
        };
        chain.push(kv.clone());
        if version.revision > compacted {
            let event = Event { kv: kv.clone(), prev: prev.take() };
            events.push((version.revision, version.place, event));
        }
        prev = (!kv.is_tombstone()).then_some(kv);
    }
    (chain, events)
}
