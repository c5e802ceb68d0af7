//! Connections of those who have not said yet who they are.
//!
//! A connection costs memory before anything is known of its other end: its session, what it may
//! send before it is read, a head that is not complete. There is room for so many strangers and no
//! more. Where all of it is taken, the one who has been a stranger for the longest is shown out, so
//! that nobody keeps others out by just being there: whoever means it has said who he is long before.
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Connections of strangers at one door. With what the API server has one of them hold, 100 MB at most.
const ROOM: usize = 512;
/// A stranger has at least so long to say who he is.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Strangers(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    next: u64,
    /// In the order in which they came.
    all: BTreeMap<u64, (Instant, Arc<Notify>)>,
}

/// One connection that begins as a stranger's.
pub struct Stranger {
    among: Arc<Strangers>,
    number: u64,
    is_known: AtomicBool,
    out: Arc<Notify>,
}

impl Strangers {
    /// Waits for room, and makes some.
    pub async fn admit(self: &Arc<Self>) -> Stranger {
        loop {
            let wait = match self.try_admit() {
                Ok(stranger) => return stranger,
                Err(wait) => wait,
            };
            tokio::time::sleep_until(wait).await;
        }
    }

    /// Or when there may be room.
    fn try_admit(self: &Arc<Self>) -> Result<Stranger, Instant> {
        let mut waiting = self.0.lock();
        let now = Instant::now();
        if waiting.all.len() >= ROOM
            && let Some(oldest) = waiting.all.first_entry()
        {
            let due = oldest.get().0 + GRACE;
            if now < due {
                return Err(due);
            }
            oldest.remove().1.notify_one();
        }
        let (number, out) = (waiting.next, Arc::new(Notify::new()));
        waiting.next += 1;
        waiting.all.insert(number, (now, out.clone()));
        Ok(Stranger { among: self.clone(), number, is_known: AtomicBool::new(false), out })
    }
}

impl Stranger {
    /// He has said who he is.
    pub fn is_known(&self) {
        if !self.is_known.swap(true, Relaxed) {
            self.among.0.lock().all.remove(&self.number);
        }
    }

    /// Until his place is needed.
    pub async fn shown_out(&self) {
        self.out.notified().await;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.is_known();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_stranger_makes_room_and_those_who_are_known_stay() {
        let strangers = Arc::new(Strangers::default());
        let known = strangers.admit().await;
        known.is_known();
        let mut here = Vec::new();
        for _ in 0..ROOM {
            here.push(strangers.admit().now_or_never().expect("room"));
        }
        // Everybody has had no time yet.
        assert!(strangers.try_admit().is_err());
        let late = strangers.admit().await;
        here[0].shown_out().now_or_never().expect("the first has to go");
        for other in here[1..].iter().chain([&known, &late]) {
            assert!(other.shown_out().now_or_never().is_none());
        }
        // Whoever goes by himself makes room at once.
        here.truncate(10);
        assert!(strangers.try_admit().is_ok());
        assert_eq!(strangers.0.lock().all.len(), 10);
    }
}
