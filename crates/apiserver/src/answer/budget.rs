//! A byte budget for large lists, and one for large bodies, so that many of them at once cannot drive
//! the process out of memory.
//!
//! Seats bound how many requests are made at once; this bounds what they hold on to, until the last
//! byte is sent: a client that reads slowly keeps its list's share. Who finds too little left waits,
//! and is turned away (429) when that takes too long. Small lists are free.
use crate::answer::Answer;
use crate::answer::holding;
use api::status::Status;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Below this a list costs nothing worth counting.
const FREE: u64 = 64 << 10;
/// What is counted in.
const UNIT: u64 = 1 << 10;
/// The part of the machine's memory that lists may hold.
const PART: u64 = 4;
/// And at least.
const LEAST: u64 = 64 << 20;

pub struct Budget {
    units: u32,
    left: Arc<Semaphore>,
    patience: Duration,
}

/// What a list or a body holds; given back when it is dropped.
#[derive(Default)]
pub struct Held(Option<OwnedSemaphorePermit>);

impl Budget {
    pub fn new(bytes: u64, patience: Duration) -> Budget {
        // A semaphore has its own limit, far beyond any machine's memory.
        let units = (bytes / UNIT).clamp(1, (Semaphore::MAX_PERMITS as u64).min(u32::MAX.into()));
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        Budget { units, left: Arc::new(Semaphore::new(units as usize)), patience }
    }

    /// What the machine can spare.
    pub fn of_machine() -> u64 {
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = memory.lines().find(|line| line.starts_with("MemTotal:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        (kilobytes.unwrap_or(0) * 1024 / PART).max(LEAST)
    }

    /// Waits until so many bytes are left. One list that is larger than everything gets everything.
    pub async fn take(&self, bytes: u64) -> Result<Held, Status> {
        if bytes < FREE {
            return Ok(Held(None));
        }
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).min(self.units);
        let taking = self.left.clone().acquire_many_owned(units);
        match tokio::time::timeout(self.patience, taking).await {
            Ok(Ok(permit)) => Ok(Held(Some(permit))),
            _ => Err(Status::too_many_requests("Too many requests, please try again later.", 1)),
        }
    }
}

impl Held {
    /// Holds on until the answer is sent, which may take so long.
    pub fn until_sent(self, answer: Answer, at_most: Duration) -> Answer {
        match self {
            Held(None) => answer,
            held => holding::until_sent_within(answer, held, at_most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::full;
    use http_body_util::BodyExt;

    fn answer() -> Answer {
        Answer::new(full(vec![b'x'; 100]))
    }

    #[tokio::test(start_paused = true)]
    async fn lists_beyond_the_budget_wait_until_others_are_sent() {
        let budget = Arc::new(Budget::new(1 << 20, Duration::from_secs(15)));
        let long = Duration::from_secs(600);
        let first = budget.take(600 << 10).await.expect("room").until_sent(answer(), long);
        let small = budget.take(1000).await.expect("small ones are free");
        let refused = budget.take(600 << 10).await.err().expect("no room in time");
        assert_eq!((refused.code, refused.suggests_client_delay()), (429, Some(1)));
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.take(600 << 10).await.map(drop).map_err(|status| status.code) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        // The client has read it all.
        first.into_body().collect().await.expect("a body");
        assert_eq!(waiting.await.expect("it ran"), Ok(()));
        drop(small);
        // One that is larger than everything is not lost.
        assert!(budget.take(1 << 30).await.is_ok());
        assert_eq!(budget.left.available_permits(), 1024);
    }

    #[test]
    fn the_machine_has_some_memory() {
        assert!(Budget::of_machine() >= LEAST);
    }
}
