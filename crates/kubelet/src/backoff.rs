//! Later and later: what fails again and again is tried after 10 s, 20 s, … 300 s, and from the
//! beginning when it has been well for ten minutes (`k8s.io/client-go/util/flowcontrol`).
use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;
use std::time::Duration;

pub const FIRST: SignedDuration = SignedDuration::from_secs(10);
pub const LONGEST: SignedDuration = SignedDuration::from_secs(300);

#[derive(Debug, Clone)]
pub struct Backoff {
    entries: HashMap<String, Entry>,
    longest: SignedDuration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { entries: HashMap::new(), longest: LONGEST }
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    delay: SignedDuration,
    updated: Timestamp,
}

impl Backoff {
    /// With another longest pause.
    pub fn up_to(longest: Duration) -> Backoff {
        let longest = SignedDuration::try_from(longest).unwrap_or(LONGEST);
        Backoff { longest, ..Backoff::default() }
    }

    /// Until when to wait, and how long that is in all, if what ended at `ended` must not be tried
    /// yet.
    pub fn waits(
        &self,
        key: &str,
        ended: Timestamp,
        now: Timestamp,
    ) -> Option<(Timestamp, SignedDuration)> {
        let entry = self.entries.get(key).filter(|entry| !entry.is_over(ended))?;
        let until = ended.saturating_add(entry.delay).ok()?;
        (now < until).then_some((until, entry.delay))
    }

    /// It is being tried again.
    pub fn next(&mut self, key: &str, ended: Timestamp, now: Timestamp) {
        let delay = match self.entries.get(key).filter(|entry| !entry.is_over(ended)) {
            Some(entry) => (entry.delay * 2).min(self.longest),
            None => FIRST.min(self.longest),
        };
        self.entries.insert(key.to_owned(), Entry { delay, updated: now });
    }
}

impl Entry {
    fn is_over(&self, ended: Timestamp) -> bool {
        ended.duration_since(self.updated) > LONGEST * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_five_minutes_and_begin_anew_after_ten_good_ones() {
        let mut backoff = Backoff::default();
        let mut now = Timestamp::UNIX_EPOCH;
        let mut delays = Vec::new();
        for _ in 0..7 {
            assert!(delays.is_empty() || backoff.waits("a", now, now).is_some());
            if let Some((until, delay)) = backoff.waits("a", now, now) {
                now = until;
                delays.push(delay.as_secs());
            } else {
                delays.push(0);
            }
            let ended = now;
            backoff.next("a", ended, now);
        }
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300]);
        let later = now + SignedDuration::from_secs(601);
        assert_eq!(backoff.waits("a", later, later), None);
    }
}
