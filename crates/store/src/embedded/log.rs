//! The log: numbered segment files, appended to by one thread.
//!
//! A segment begins with a checkpoint that names the segment before it and how many of its bytes
//! count. So the log is a chain read backwards from its newest link, and **nothing is ever
//! overwritten**: a start, a failed write and a failed sync all simply begin a new segment that
//! disowns the doubtful tail of the old one. (After a failed `fsync` Linux may drop the dirty pages
//! and report success the next time; trusting the same file again would lose data silently.)
//!
//! Segments are created ahead with their space allocated ([`Spares`]), so that the commit path
//! neither waits for a directory nor finds the disk full in the middle of a frame, and the last
//! of them are a reserve that only what frees space may use.
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::disk::{Disk, DiskFile};
use super::record::{self, Checkpoint, FRAME_HEADER, Record};
use crate::model::Revision;

/// How many segments are kept ready.
pub const SPARES: usize = 4;

/// Who asks for room, and so how deep into the reserve it may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// Anything that adds data: leaves three spare segments.
    Ordinary,
    /// Deletions and compaction: leave two.
    Freeing,
    /// Moving live data out of an old segment: may take the last, for it gives one back. It needs
    /// a second one when something else is written meanwhile.
    Cleaning,
}

impl Claim {
    fn leaves(self) -> usize {
        match self {
            Claim::Ordinary => 3,
            Claim::Freeing => 2,
            Claim::Cleaning => 0,
        }
    }
}

pub fn segment_name(id: u64) -> String {
    format!("{id:016x}.log")
}

pub fn segment_id(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_suffix(".log")?, 16).ok()
}

/// Segments made ahead of their use, shared with the janitor that makes them.
pub struct Spares {
    disk: Arc<dyn Disk>,
    segment_size: u64,
    inner: Mutex<SparesInner>,
    /// The last attempt to make one failed for want of space.
    full: AtomicBool,
}

struct SparesInner {
    /// Highest number first: they are used from the end.
    ready: Vec<(u64, Box<dyn DiskFile>)>,
    next_id: u64,
    last_used: u64,
}

impl Spares {
    pub fn new(disk: Arc<dyn Disk>, segment_size: u64, next_id: u64) -> Self {
        let inner = SparesInner { ready: Vec::new(), next_id, last_used: 0 };
        Spares { disk, segment_size, inner: Mutex::new(inner), full: AtomicBool::new(false) }
    }

    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Makes segments until enough are ready; the committer does not wait for it.
    pub fn fill(&self) -> io::Result<()> {
        loop {
            let id = {
                let mut inner = self.inner.lock();
                if inner.ready.len() >= SPARES {
                    return Ok(());
                }
                inner.next_id += 1;
                inner.next_id - 1
            };
            let file = self.make(id, self.segment_size)?;
            let mut inner = self.inner.lock();
            if id < inner.last_used {
                // The committer could not wait and made its own. The chain's numbers must rise.
                drop(inner);
                self.disk.remove(&segment_name(id))?;
                continue;
            }
            inner.ready.push((id, file));
            inner.ready.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        }
    }

    fn make(&self, id: u64, size: u64) -> io::Result<Box<dyn DiskFile>> {
        let made = self.disk.create(&segment_name(id), size);
        self.full.store(made.as_ref().is_err_and(is_disk_full), Ordering::Relaxed);
        made
    }

    /// A segment with room for `bytes`, the lowest number first.
    fn take(&self, bytes: u64, claim: Claim) -> io::Result<(u64, Box<dyn DiskFile>)> {
        let mut inner = self.inner.lock();
        let fits = bytes <= self.segment_size;
        if !fits {
            // Larger than a spare: those made before it are given up to keep the numbers rising.
            for (id, _) in std::mem::take(&mut inner.ready) {
                self.disk.remove(&segment_name(id))?;
            }
        }
        let leaves = if fits { claim.leaves() } else { 0 };
        while inner.ready.len() <= leaves {
            let id = inner.next_id;
            inner.next_id += 1;
            let file = self.make(id, self.segment_size.max(bytes))?;
            inner.ready.insert(0, (id, file));
        }
        let (id, file) = inner.ready.pop().ok_or(io::ErrorKind::StorageFull)?;
        inner.last_used = id;
        Ok((id, file))
    }
}

pub fn is_disk_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A segment that is no longer written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    pub id: u64,
    pub end: u64,
    /// No record in it is younger.
    pub last_revision: Revision,
}

struct Current {
    id: u64,
    /// Who had it opened: a segment of the reserve is not for ordinary writes.
    claim: Claim,
    file: Box<dyn DiskFile>,
    size: u64,
    end: u64,
    durable: u64,
}

pub struct Log {
    spares: Arc<Spares>,
    current: Option<Current>,
    /// The chain's last trustworthy link while `current` is not there.
    previous: (u64, u64),
    closed: Vec<Closed>,
    boot_id: u128,
    /// Records acknowledged but not synced: written again should a sync fail.
    unsynced: Vec<u8>,
    frame: Vec<u8>,
}

/// What a new segment's checkpoint takes from the engine.
pub struct Facts {
    pub revision: Revision,
    pub compacted: Revision,
    pub leases: Vec<(i64, u64)>,
}

impl Log {
    pub fn new(
        spares: Arc<Spares>,
        previous: (u64, u64),
        closed: Vec<Closed>,
        unsynced: Vec<u8>,
        boot_id: u128,
    ) -> Self {
        Log { spares, current: None, previous, closed, boot_id, unsynced, frame: Vec::new() }
    }

    /// Segments that nothing but the janitor touches any more, oldest first. The one given up last
    /// is not among them until its successor is durable: its tail, though disowned, may hold the
    /// only copy on disk of what was acknowledged without a sync.
    pub fn closed(&self) -> &[Closed] {
        match (&self.current, self.closed.split_last()) {
            (None, Some((_, settled))) => settled,
            _ => &self.closed,
        }
    }

    pub fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    pub fn unsynced_bytes(&self) -> usize {
        self.unsynced.len()
    }

    /// Forgets a segment nothing needs any more; its file may go once this record is synced.
    pub fn forget(&mut self, id: u64) -> Vec<u8> {
        self.closed.retain(|segment| segment.id > id);
        let mut payload = Vec::new();
        record::encode(&Record::Dropped { segment: id }, &mut payload);
        payload
    }

    /// Appends records; when it returns they are durable, or, without `sync`, with the kernel.
    ///
    /// A failing file is given up for a new one at once, so one failed write or sync is not seen
    /// outside. If that fails too the records are *not* part of the log, and the next call begins
    /// a new segment.
    pub fn append(
        &mut self,
        payload: &[u8],
        sync: bool,
        claim: Claim,
        facts: impl Fn() -> Facts,
    ) -> io::Result<()> {
        if claim == Claim::Ordinary
            && self.current.as_ref().is_some_and(|c| c.claim > Claim::Ordinary)
            && self.spares.is_full()
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let fits = self
            .current
            .as_ref()
            .is_some_and(|c| c.end + (FRAME_HEADER + payload.len()) as u64 <= c.size);
        if self.current.is_some() && !fits {
            self.close_current(facts().revision)?;
        }
        let written = match &mut self.current {
            Some(current) => {
                let frame = frame_of(&mut self.frame, &[payload], current.id, current.durable);
                write_frame(current, frame, sync)
            }
            None => self.begin_segment(payload, claim, &facts),
        };
        if let Err(error) = written {
            if is_disk_full(&error) && self.current.is_none() {
                return Err(error);
            }
            tracing::warn!(%error, "a log segment failed and is given up for a new one");
            self.abandon_current(facts().revision);
            self.begin_segment(payload, claim, &facts)?;
        }
        if self.current.as_ref().is_some_and(|c| c.durable == c.end) {
            self.unsynced.clear();
        } else {
            self.unsynced.extend_from_slice(payload);
        }
        Ok(())
    }

    pub fn sync(&mut self, facts: impl Fn() -> Facts) -> io::Result<()> {
        if self.unsynced.is_empty() {
            return Ok(());
        }
        if let Some(current) = &mut self.current
            && current.file.sync().is_ok()
        {
            current.durable = current.end;
        } else {
            self.abandon_current(facts().revision);
            // It was acknowledged: the last segment is not too good for it.
            self.begin_segment(&[], Claim::Cleaning, &facts)?;
        }
        self.unsynced.clear();
        Ok(())
    }

    /// The full segment is synced before the next one vouches for its length.
    fn close_current(&mut self, revision: Revision) -> io::Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        if current.durable < current.end {
            if current.file.sync().is_err() {
                self.abandon_current(revision);
                return Ok(());
            }
            current.durable = current.end;
            self.unsynced.clear();
        }
        self.abandon_current(revision);
        Ok(())
    }

    /// Stops writing the current segment; what of it was synced counts.
    fn abandon_current(&mut self, revision: Revision) {
        if let Some(Current { id, durable, .. }) = self.current.take() {
            self.previous = (id, durable);
            self.closed.push(Closed { id, end: durable, last_revision: revision });
        }
    }

    /// A new segment: checkpoint, what was acknowledged but not synced, the new records; synced,
    /// for only then may the old segment's tail be disowned.
    fn begin_segment(
        &mut self,
        payload: &[u8],
        claim: Claim,
        facts: &impl Fn() -> Facts,
    ) -> io::Result<()> {
        let facts = facts();
        let checkpoint = Record::Checkpoint(Checkpoint {
            previous: self.previous.0,
            previous_end: self.previous.1,
            oldest: self.closed.first().map_or(u64::MAX, |segment| segment.id),
            revision: facts.revision,
            compacted: facts.compacted,
            boot_id: self.boot_id,
            leases: facts.leases,
        });
        let mut head = Vec::new();
        record::encode(&checkpoint, &mut head);
        let bytes = FRAME_HEADER + head.len() + self.unsynced.len() + payload.len();
        let (id, file) = self.spares.take(bytes as u64, claim)?;
        let size = self.spares.segment_size.max(bytes as u64);
        let mut current = Current { id, claim, file, size, end: 0, durable: 0 };
        let frame = frame_of(&mut self.frame, &[&head, &self.unsynced, payload], id, 0);
        // On failure the number is spent: the chain skips it and the next start removes it.
        write_frame(&mut current, frame, true)?;
        self.current = Some(current);
        Ok(())
    }
}

fn frame_of<'a>(
    frame: &'a mut Vec<u8>,
    parts: &[&[u8]],
    segment: u64,
    durable: u64,
) -> &'a mut [u8] {
    frame.clear();
    frame.resize(FRAME_HEADER, 0);
    for part in parts {
        frame.extend_from_slice(part);
    }
    record::seal_frame(frame, segment, durable);
    frame
}

fn write_frame(current: &mut Current, frame: &[u8], sync: bool) -> io::Result<()> {
    let mut written = 0;
    while written < frame.len() {
        let offset = current.end + written as u64;
        match current.file.write_at(&frame[written..], offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => written += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    if sync {
        current.file.sync()?;
        current.durable = current.end + frame.len() as u64;
    }
    current.end += frame.len() as u64;
    Ok(())
}
