//! How a watch sleeps: it is told the lowest revision it has not read, once.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::model::Revision;

const NOTHING: u64 = u64::MAX;

/// Shared by a watch and whoever publishes to it. Marking and taking happen under the lock of the
/// history that is being published to, so that neither can slip between the other's steps.
pub struct Signal {
    unread: AtomicU64,
    asked: AtomicBool,
    wake: Notify,
}

impl Default for Signal {
    fn default() -> Self {
        let unread = AtomicU64::new(NOTHING);
        Signal { unread, asked: AtomicBool::new(false), wake: Notify::new() }
    }
}

impl Signal {
    /// There is something to read at this revision.
    pub fn mark(&self, revision: Revision) {
        if self.unread.fetch_min(revision, Ordering::AcqRel) == NOTHING {
            self.wake.notify_one();
        }
    }

    /// The lowest revision marked since the last time.
    pub fn take(&self) -> Option<Revision> {
        Some(self.unread.swap(NOTHING, Ordering::AcqRel)).filter(|unread| *unread != NOTHING)
    }

    pub fn unread(&self) -> Option<Revision> {
        Some(self.unread.load(Ordering::Acquire)).filter(|unread| *unread != NOTHING)
    }

    /// Asks for a report of progress.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    pub fn was_asked(&self) -> bool {
        self.asked.swap(false, Ordering::AcqRel)
    }

    pub fn wake(&self) {
        self.wake.notify_one();
    }

    pub async fn woken(&self) {
        self.wake.notified().await;
    }
}
