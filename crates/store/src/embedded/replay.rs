//! Opening: from segment files to the state they describe.
//!
//! The newest segment with a valid checkpoint is the end of the chain; following `previous` back
//! to the oldest needed one gives the log. A damaged frame is a **torn tail** if no later frame
//! vouches that it had been synced: it was never acknowledged and is dropped. Otherwise it is
//! **damage** to acknowledged data, and the engine refuses to start rather than serve a hole.
//!
//! What can be read need not be on the disk: after a failed sync the kernel keeps the pages but
//! never writes them, and tells no later process. So the whole frames that no frame vouches for are
//! **carried** into the next segment, and what the log seems no longer to need is removed only when
//! that one is durable.
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::disk::Disk;
use super::log::{Closed, segment_id, segment_name};
use super::record::{self, Checkpoint, FRAME_HEADER, Record, tombstone};
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
    /// The chain as far as it is surely durable, oldest first; the next segment follows the last
    /// of them.
    pub chain: Vec<Closed>,
    /// Records that the next segment must begin with.
    pub carried: Vec<u8>,
    /// Segments to remove once it has.
    pub stale: Vec<u64>,
    pub next_id: u64,
}

/// A file that is part of the chain or may be, as it was understood; its bytes are gone.
struct Segment {
    id: u64,
    checkpoint: Option<Checkpoint>,
    /// Where each whole frame ends, up to the first flaw.
    ends: Vec<u64>,
    /// How much of it had been synced when the last whole frame was written.
    durable: u64,
    /// What the frames say, each with the end of its frame.
    facts: Vec<(u64, Fact)>,
    /// A frame after the first flaw says that the flaw's place had been synced.
    vouched_for: bool,
}

/// A record that no longer needs the file.
enum Fact {
    Version(Arc<KeyValue>),
    Grant(LeaseId, u64),
    Revoke(LeaseId),
    Compact(Revision),
    Checkpoint(Box<Checkpoint>),
    Dropped(u64),
    Closed,
}

pub fn replay(disk: &dyn Disk, now: Duration) -> Result<Opened, OpenError> {
    let ids = segment_ids(disk)?;
    let segments: BTreeMap<u64, Segment> = on_all_processors(&ids, |ids| read_segments(disk, ids))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .map(|segment| (segment.id, segment))
        .collect();
    let next_id = ids.last().map_or(1, |id| id + 1);
    let empty: Vec<u64> =
        segments.values().filter(|s| s.checkpoint.is_none()).map(|s| s.id).collect();
    let chain = chain(segments)?;
    // These may hold the space that the next segment needs.
    remove(disk, &empty)?;
    if chain.is_empty() {
        let (carried, stale) = (Vec::new(), Vec::new());
        return Ok(Opened { state: State::empty(), chain: Vec::new(), carried, stale, next_id });
    }
    let mut opened = rebuild(chain, disk.boot_id(), now);
    let mut stale = ids;
    stale.retain(|id| !empty.contains(id) && opened.chain.iter().all(|kept| kept.id != *id));
    (opened.stale, opened.next_id) = (stale, next_id);
    Ok(opened)
}

fn segment_ids(disk: &dyn Disk) -> Result<Vec<u64>, OpenError> {
    let names = disk.list().map_err(io_error("list", "the store's directory"))?;
    let mut ids: Vec<u64> = names.iter().filter_map(|name| segment_id(name)).collect();
    ids.sort_unstable();
    Ok(ids)
}

fn io_error(action: &'static str, name: &str) -> impl FnOnce(io::Error) -> OpenError {
    let name = name.to_owned();
    move |source| OpenError::Io { action, name, source }
}

/// Spare segments, failed ones and those whose removal a crash prevented.
pub fn remove(disk: &dyn Disk, ids: &[u64]) -> Result<(), OpenError> {
    for name in ids.iter().copied().map(segment_name) {
        disk.remove(&name).map_err(io_error("remove", &name))?;
    }
    Ok(())
}

/// Reads one file after the other through the same memory: what is kept of a file has an
/// allocation of its own, and fresh pages for every file would cost more than all the rest.
fn read_segments(disk: &dyn Disk, ids: &[u64]) -> Result<Vec<Segment>, OpenError> {
    let mut bytes = Vec::new();
    let mut segments = Vec::new();
    for id in ids {
        let name = segment_name(*id);
        disk.read(&name, &mut bytes).map_err(io_error("read", &name))?;
        segments.push(scan(*id, &bytes));
    }
    Ok(segments)
}

/// Splits the items between as many threads as there are processors; results in order.
fn on_all_processors<T: Sync, R: Send>(items: &[T], f: impl Fn(&[T]) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    if items.len() < 2 || threads < 2 {
        return vec![f(items)];
    }
    let f = &f;
    std::thread::scope(|scope| {
        let parts: Vec<_> = items
            .chunks(items.len().div_ceil(threads))
            .map(|part| scope.spawn(move || f(part)))
            .collect();
        let join = |part: std::thread::ScopedJoinHandle<'_, R>| {
            part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        parts.into_iter().map(join).collect()
    })
}

fn scan(id: u64, bytes: &[u8]) -> Segment {
    let mut segment = Segment {
        id,
        checkpoint: None,
        ends: Vec::new(),
        durable: 0,
        facts: Vec::new(),
        vouched_for: false,
    };
    let mut offset = 0;
    while let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
        let Ok((payload, durable)) = record::read_frame(rest, id) else { break };
        let Some(records) = record::decode(payload) else { break };
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
        segment.durable = durable;
        segment.facts.extend(records.into_iter().filter_map(fact).map(|f| (offset as u64, f)));
    }
    segment.vouched_for = is_vouched_for(id, &bytes[offset..], offset as u64);
    segment
}

fn fact(record: Record<'_>) -> Option<Fact> {
    Some(match record {
        Record::Put(put) => Fact::Version(put.to_version(put.key.into())),
        Record::Delete { key, revision } => Fact::Version(tombstone(key.into(), revision)),
        Record::Grant { lease, ttl } => Fact::Grant(lease, ttl),
        Record::Revoke { lease } => Fact::Revoke(lease),
        Record::Compact { revision } => Fact::Compact(revision),
        Record::Checkpoint(checkpoint) => Fact::Checkpoint(Box::new(checkpoint)),
        Record::Dropped { segment } => Fact::Dropped(segment),
        Record::Closed => Fact::Closed,
        Record::End { .. } => return None,
    })
}

/// Whether a whole frame in this tail of a segment says that the tail's beginning had been synced.
fn is_vouched_for(id: u64, tail: &[u8], beginning: u64) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    // Almost always the tail was never written.
    if tail.chunks(ZEROS.len()).all(|chunk| *chunk == ZEROS[..chunk.len()]) {
        return false;
    }
    let owner = id.to_le_bytes();
    // A frame's owner stands eight bytes into its header.
    (8..tail.len().saturating_sub(16)).any(|at| {
        tail[at..].starts_with(&owner)
            && record::read_frame(&tail[at - 8..], id).is_ok_and(|(_, durable)| durable > beginning)
    })
}

impl Segment {
    fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn damaged(&self) -> OpenError {
        OpenError::Damaged { segment: segment_name(self.id), offset: self.end() }
    }
}

/// The segments that make up the log, oldest first, each with the bytes that count.
fn chain(mut segments: BTreeMap<u64, Segment>) -> Result<Vec<(Segment, u64)>, OpenError> {
    let mut chain = Vec::new();
    let last = loop {
        let Some((_, segment)) = segments.pop_last() else { return Ok(chain) };
        // A spare, or a segment whose beginning failed: unless it was written further.
        if segment.vouched_for {
            return Err(segment.damaged());
        }
        if segment.checkpoint.is_some() {
            break segment;
        }
    };
    let mut oldest = last.checkpoint.as_ref().map_or(last.id, |c| c.oldest.min(last.id));
    for (_, fact) in &last.facts {
        if let Fact::Dropped(segment) = fact {
            oldest = oldest.max(segment + 1);
        }
    }
    let mut end = last.end();
    let mut segment = last;
    loop {
        if segment.ends.binary_search(&end).is_err() {
            return Err(segment.damaged());
        }
        let Some(checkpoint) = &segment.checkpoint else { return Err(segment.damaged()) };
        let (previous, previous_end) = (checkpoint.previous, checkpoint.previous_end);
        chain.push((segment, end));
        if previous < oldest {
            chain.reverse();
            return Ok(chain);
        }
        let missing = || OpenError::Missing { segment: segment_name(previous) };
        segment = segments.remove(&previous).ok_or_else(missing)?;
        end = previous_end;
    }
}

/// A version and its place in the log, which orders the changes of one transaction.
type Found = (Arc<KeyValue>, usize);

fn rebuild(chain: Vec<(Segment, u64)>, boot_id: u128, now: Duration) -> Opened {
    let mut found: Vec<Found> = Vec::new();
    let mut leases: BTreeMap<LeaseId, u64> = BTreeMap::new();
    let (mut revision, mut compacted, mut last_boot, mut closed_well) = (1, 0, 0, false);
    let (mut closed, mut carried) = (Vec::new(), Vec::new());
    let newest = chain.last().map_or(0, |(segment, _)| segment.id);
    for (segment, end) in chain {
        // A segment's successor vouches for it; the newest has only its own word.
        let durable = if segment.id == newest { segment.durable } else { end };
        for (at, fact) in segment.facts.into_iter().take_while(|(at, _)| *at <= end) {
            closed_well = matches!(fact, Fact::Closed);
            match fact {
                Fact::Version(kv) => {
                    revision = revision.max(kv.mod_revision);
                    // All else that may be there is in the next segment's checkpoint.
                    if at > durable {
                        record::encode_version(&kv, &mut carried);
                    }
                    let place = found.len();
                    found.push((kv, place));
                }
                Fact::Grant(lease, ttl) => drop(leases.insert(lease, ttl)),
                Fact::Revoke(lease) => drop(leases.remove(&lease)),
                Fact::Compact(revision) => compacted = compacted.max(revision),
                Fact::Checkpoint(checkpoint) => {
                    revision = revision.max(checkpoint.revision);
                    compacted = compacted.max(checkpoint.compacted);
                    last_boot = checkpoint.boot_id;
                    leases = checkpoint.leases.into_iter().collect();
                }
                Fact::Dropped(_) | Fact::Closed => {}
            }
        }
        if durable > 0 {
            closed.push(Closed { id: segment.id, end: durable, last_revision: revision });
        }
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
    let state = State::restore(keys, history, revision, compacted, leases);
    Opened { state, chain: closed, carried, stale: Vec::new(), next_id: 0 }
}

/// The newest readable version of every key.
pub struct Salvaged {
    pub revision: Revision,
    pub versions: Vec<Arc<KeyValue>>,
}

/// Reads around damage: every whole frame of every file, but for tails a later segment disowned.
pub fn salvage(disk: &dyn Disk) -> Result<Salvaged, OpenError> {
    let ids = segment_ids(disk)?;
    let ends: HashMap<u64, u64> = read_segments(disk, &ids)?
        .into_iter()
        .filter_map(|segment| segment.checkpoint)
        .map(|checkpoint| (checkpoint.previous, checkpoint.previous_end))
        .collect();
    let (mut found, mut revision) = (Vec::new(), 0);
    let mut bytes = Vec::new();
    for id in &ids {
        let name = segment_name(*id);
        disk.read(&name, &mut bytes).map_err(io_error("read", &name))?;
        let end = ends.get(id).map_or(bytes.len(), |end| bytes.len().min(*end as usize));
        let mut offset = 0;
        while offset < end {
            let whole = record::read_frame(&bytes[offset..], *id).ok().map(|(payload, _)| payload);
            let Some((payload, records)) = whole.and_then(|p| Some((p, record::decode(p)?))) else {
                offset += 1;
                continue;
            };
            offset += FRAME_HEADER + payload.len();
            for fact in records.into_iter().filter_map(fact) {
                match fact {
                    Fact::Version(kv) => {
                        revision = revision.max(kv.mod_revision);
                        found.push((kv, found.len()));
                    }
                    Fact::Checkpoint(checkpoint) => revision = revision.max(checkpoint.revision),
                    _ => {}
                }
            }
        }
    }
    let (keys, _) = chains(found, Revision::MAX);
    let versions = keys.into_values().filter_map(|mut chain| chain.pop()).collect();
    Ok(Salvaged { revision, versions })
}

type Chain = SmallVec<[Arc<KeyValue>; 2]>;

/// Sorts what was found by key; keeps of each the base as of the compaction and all that follows.
fn chains(mut found: Vec<Found>, compacted: Revision) -> (BTreeMap<Key, Chain>, VecDeque<Event>) {
    let order = |(kv, place): &Found, (other, later): &Found| {
        (&kv.key, kv.mod_revision, place).cmp(&(&other.key, other.mod_revision, later))
    };
    found.sort_by(order);
    // A version moved by the janitor is there twice.
    found.dedup_by(|(a, _), (b, _)| a.mod_revision == b.mod_revision && a.key == b.key);
    let mut changes: Vec<(Revision, usize, Event)> = Vec::new();
    let mut keys: Vec<(Key, Chain)> = Vec::new();
    let mut versions: Vec<Found> = Vec::new();
    let mut found = found.into_iter().peekable();
    while let Some(version) = found.next() {
        let last = found.peek().is_none_or(|(next, _)| next.key != version.0.key);
        versions.push(version);
        if last {
            let chain = chain_of(versions.drain(..), compacted, &mut changes);
            if let Some(first) = chain.first() {
                keys.push((first.key.clone(), chain));
            }
        }
    }
    changes.sort_by_key(|(revision, place, _)| (*revision, *place));
    (keys.into_iter().collect(), changes.into_iter().map(|(_, _, event)| event).collect())
}

/// One key's versions, oldest first, and the changes of it that are history.
fn chain_of(
    versions: impl Iterator<Item = Found>,
    compacted: Revision,
    changes: &mut Vec<(Revision, usize, Event)>,
) -> Chain {
    let mut chain = Chain::new();
    for (mut kv, place) in versions {
        if kv.mod_revision <= compacted {
            // The newest of these is the base; a tombstone is the base of nothing.
            chain.clear();
            if !kv.is_tombstone() {
                chain.push(kv);
            }
            continue;
        }
        let before = chain.last();
        // One allocation serves all versions of a key.
        if let (Some(before), Some(kv)) = (before, Arc::get_mut(&mut kv)) {
            kv.key = before.key.clone();
        }
        let prev = before.filter(|before| !before.is_tombstone()).cloned();
        changes.push((kv.mod_revision, place, Event { kv: kv.clone(), prev }));
        chain.push(kv);
    }
    chain
}
