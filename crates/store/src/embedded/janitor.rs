//! The janitor: the thread that keeps segments ready and gives old ones back.
//!
//! It takes the oldest segment, has the committer write again, a little at a time, what of it is
//! still needed, and removes the file. Always the oldest: so a tombstone leaves the log no earlier
//! than the versions it buried, and a full disk needs room for one segment to make room, not for a
//! copy of everything as a snapshot would.
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::Shared;
use super::commit::Request;
use super::log::{Closed, segment_name};
use super::record::{self, FRAME_HEADER, Record};
use crate::error::Result;
use crate::model::{Key, Revision};

/// Bytes written again in one go: small beside a batch of writes, so that none is held up, and
/// beside a segment, which they must not outgrow.
const STEP_BYTES: u64 = 64 << 10;

/// How soon a full disk is tried again.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Desk {
    inner: Mutex<DeskInner>,
    called: Condvar,
    settled: Condvar,
}

#[derive(Default)]
struct DeskInner {
    segments: Vec<Closed>,
    told: bool,
    full: bool,
    cleaning: bool,
    /// The janitor waits for news.
    idle: bool,
    /// How often it has done all it could.
    rounds: u64,
    /// The round whose end somebody waits for.
    awaited: u64,
    closing: bool,
}

impl Desk {
    /// The committer's report after a batch: cheap when nothing changed.
    pub fn report(&self, segments: &[Closed]) {
        let mut inner = self.inner.lock();
        if inner.segments != segments {
            inner.segments.clear();
            inner.segments.extend_from_slice(segments);
            inner.told = true;
            self.called.notify_one();
        }
    }

    /// Has the janitor look at the state again.
    pub fn call(&self) {
        self.inner.lock().told = true;
        self.called.notify_one();
    }

    pub fn close(&self) {
        self.inner.lock().closing = true;
        self.called.notify_one();
        self.settled.notify_all();
    }

    /// Waits for news; nothing means that the store closes.
    fn wait(&self) -> Option<Vec<Closed>> {
        let mut inner = self.inner.lock();
        let idle = |i: &DeskInner| !i.told && !i.closing;
        inner.idle = true;
        self.settled.notify_all();
        if inner.full {
            self.called.wait_while_for(&mut inner, |i| idle(i), RETRY);
        } else {
            self.called.wait_while(&mut inner, |i| idle(i));
        }
        (inner.told, inner.idle) = (false, false);
        (!inner.closing).then(|| inner.segments.clone())
    }

    /// Has the janitor do all it can, beginning now; which round that is.
    pub fn appeal(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.told = true;
        self.called.notify_one();
        // A round that is under way may have passed what would help.
        inner.awaited = inner.rounds + if inner.idle { 1 } else { 2 };
        inner.awaited
    }

    pub fn rounds(&self) -> u64 {
        self.inner.lock().rounds
    }

    /// A round is over; whether somebody waits for one.
    fn end_round(&self, full: bool) -> bool {
        let mut inner = self.inner.lock();
        (inner.cleaning, inner.full) = (false, full);
        inner.rounds += 1;
        inner.rounds <= inner.awaited
    }

    /// Returns when all that was told has been dealt with.
    pub fn settle(&self) {
        let busy = |i: &mut DeskInner| (i.told || !i.idle) && !i.closing;
        self.settled.wait_while(&mut self.inner.lock(), busy);
    }

    fn segments(&self) -> Vec<Closed> {
        self.inner.lock().segments.clone()
    }

    fn is_closing(&self) -> bool {
        self.inner.lock().closing
    }

    /// Whether space may be about to come.
    pub fn is_cleaning(&self) -> bool {
        self.inner.lock().cleaning
    }

    fn set_cleaning(&self) {
        self.inner.lock().cleaning = true;
    }
}

pub struct Janitor {
    shared: Arc<Shared>,
    /// Segments up to this one have been cut to their length.
    cut: u64,
    /// The disk was full: every segment that can be given back is, not only when it pays.
    tight: bool,
}

impl Janitor {
    pub fn new(shared: Arc<Shared>) -> Self {
        Janitor { shared, cut: 0, tight: false }
    }

    pub fn run(mut self) {
        while let Some(segments) = self.shared.janitor.wait() {
            self.give_back_tails(&segments);
            while !self.shared.janitor.is_closing()
                && let Some(oldest) = self.next_to_clean()
            {
                self.shared.janitor.set_cleaning();
                // What the last one gave back: to stop half way would cost space.
                let _ = self.shared.spares.fill();
                if let Err(error) = self.clean(oldest) {
                    tracing::warn!(segment = oldest.id, %error, "cleaning a log segment");
                    break;
                }
            }
            let filled = self.shared.spares.fill();
            if let Err(error) = &filled {
                tracing::warn!(%error, "no space for the store's next log segment");
            }
            self.tight |= filled.is_err();
            let cleaned = self.shared.janitor.is_cleaning();
            if self.shared.janitor.end_round(filled.is_err()) || filled.is_err() || cleaned {
                // The committer drops history, which lets more segments be cleaned, and looks
                // again at what waits for space.
                self.shared.queue.wake();
            }
        }
    }

    /// A closed segment's space was allocated to the full size.
    fn give_back_tails(&mut self, segments: &[Closed]) {
        for segment in segments.iter().filter(|segment| segment.id > self.cut) {
            // Failing costs only space.
            let _ = self.shared.disk.truncate(&segment_name(segment.id), segment.end);
        }
        self.cut = segments.last().map_or(self.cut, |segment| segment.id.max(self.cut));
    }

    /// The oldest segment, if the log is worth shortening and no history lies in it.
    fn next_to_clean(&mut self) -> Option<Closed> {
        let segments = self.shared.janitor.segments();
        let oldest = *segments.first()?;
        let state = self.shared.state.read();
        let swept = state.compacted() >= oldest.last_revision
            && state.history().front().is_none_or(|e| e.revision() > oldest.last_revision);
        if !swept {
            return None;
        }
        let (live, size) = (state.live_bytes(), self.shared.options.segment_size);
        let logged: u64 = segments.iter().map(|segment| segment.end).sum();
        let wanted = if self.tight || self.shared.spares.is_full() {
            // Every byte counts, but moving data that is all alive gains nothing.
            self.tight = logged > live + size / 2;
            self.tight
        } else {
            logged > 2 * live + 2 * size || segments.len() as u64 > 16 + 4 * live / size
        };
        wanted.then_some(oldest)
    }

    fn clean(&self, segment: Closed) -> Result<()> {
        let name = segment_name(segment.id);
        let unreadable = |e: std::io::Error| {
            crate::error::Error::Unavailable(format!("reading log segment {name}: {e}"))
        };
        let mut bytes = Vec::new();
        self.shared.disk.read(&name, &mut bytes).map_err(unreadable)?;
        let mut step: Vec<(Key, Revision)> = Vec::new();
        let most = STEP_BYTES.min(self.shared.options.segment_size / 16) as usize;
        let mut step_bytes = 0;
        let mut offset = 0;
        while offset < segment.end as usize {
            let Ok((payload, _)) = record::read_frame(&bytes[offset..], segment.id) else {
                // Damaged since it was written: left alone, for the next start to report.
                return Err(unreadable(std::io::ErrorKind::InvalidData.into()));
            };
            for record in record::decode(payload).unwrap_or_default() {
                let Record::Put(put) = record else { continue };
                step.push((put.key.into(), put.mod_revision));
                step_bytes += put.value.len();
                if step_bytes > most || step.len() >= 256 {
                    self.relocate(std::mem::take(&mut step))?;
                    step_bytes = 0;
                }
            }
            offset += FRAME_HEADER + payload.len();
        }
        self.relocate(step)?;
        let (reply, dropped) = oneshot::channel();
        self.ask(Request::Drop { segment: segment.id, reply }, dropped)?;
        if let Err(error) = self.shared.disk.remove(&name) {
            // The next start removes it.
            tracing::warn!(segment = name, %error, "removing a log segment");
        }
        Ok(())
    }

    fn relocate(&self, versions: Vec<(Key, Revision)>) -> Result<()> {
        if versions.is_empty() {
            return Ok(());
        }
        let (reply, relocated) = oneshot::channel();
        self.ask(Request::Relocate { versions, reply }, relocated)
    }

    fn ask(&self, request: Request, answer: oneshot::Receiver<Result<()>>) -> Result<()> {
        self.shared.queue.send(request)?;
        answer.blocking_recv().unwrap_or_else(|_| Err(crate::error::Error::closed()))
    }
}
