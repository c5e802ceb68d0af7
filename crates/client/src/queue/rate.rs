//! When what failed is tried again: the later of two answers, one by key and one for all.
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

pub struct RateLimit<T> {
    first: Duration,
    longest: Duration,
    failures: HashMap<T, u32>,
    bucket: Bucket,
}

/// Tokens that come at a steady rate; what finds none waits for its own.
pub(crate) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: Option<Instant>,
}

impl<T: Clone + Eq + Hash> RateLimit<T> {
    /// A key's first pause and its longest; how many retries of all keys a second, and at once.
    pub fn new(first: Duration, longest: Duration, per_second: f64, burst: u32) -> RateLimit<T> {
        let bucket = Bucket::new(per_second, burst);
        RateLimit { first, longest, failures: HashMap::new(), bucket }
    }

    pub(super) fn when(&mut self, key: &T, now: Instant) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let doubled = self.first.as_secs_f64() * 2f64.powi((*failures).min(1000) as i32);
        *failures = failures.saturating_add(1);
        let own = Duration::from_secs_f64(doubled.min(self.longest.as_secs_f64()));
        own.max(self.bucket.take(now))
    }

    pub(super) fn forget(&mut self, key: &T) {
        self.failures.remove(key);
    }

    pub(super) fn failures(&self, key: &T) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }
}

/// Upstream's for controllers: 5 ms to 1000 s by key, 10 a second and 100 at once for all.
impl<T: Clone + Eq + Hash> Default for RateLimit<T> {
    fn default() -> RateLimit<T> {
        RateLimit::new(Duration::from_millis(5), Duration::from_secs(1000), 10.0, 100)
    }
}

impl Bucket {
    pub fn new(per_second: f64, burst: u32) -> Bucket {
        Bucket { per_second, burst: burst.into(), tokens: burst.into(), at: None }
    }

    fn fill(&mut self, now: Instant) {
        if let Some(at) = self.at.replace(now) {
            let came = now.saturating_duration_since(at).as_secs_f64() * self.per_second;
            self.tokens = (self.tokens + came).min(self.burst);
        }
    }

    /// Takes a token, maybe one that is still to come, and says how long until it has.
    pub fn take(&mut self, now: Instant) -> Duration {
        self.fill(now);
        self.tokens -= 1.0;
        Duration::from_secs_f64((-self.tokens).max(0.0) / self.per_second)
    }

    /// Takes a token if there is one.
    pub fn try_take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let is_there = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(is_there));
        is_there
    }
}
