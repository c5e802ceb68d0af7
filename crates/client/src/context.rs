//! What a component gets from outside: time, chance, where to count, and the word to stop.
use crate::metrics::{Metrics, NoMetrics};
use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Cheap to clone; a clone is the same context. Durations are measured with tokio's clock, so a
/// test that pauses it has them pass in no time.
#[derive(Clone)]
pub struct Context {
    clock: Clock,
    random: Arc<Mutex<Rng>>,
    metrics: Arc<dyn Metrics>,
    /// One's own word to stop, and those of whom one is a part.
    stops: Arc<[watch::Sender<bool>]>,
}

#[derive(Clone)]
enum Clock {
    System,
    /// Goes with tokio's clock, from a moment that the test chose, and was set anew by so many
    /// milliseconds since.
    Simulated {
        origin: Timestamp,
        since: Instant,
        set: Arc<AtomicI64>,
    },
}

impl Context {
    pub fn new() -> Context {
        Context::with(Clock::System, Rng::new())
    }

    /// Begins at `origin`, goes on as tokio's clock does, and is as random as `seed`.
    pub fn simulated(origin: Timestamp, seed: u64) -> Context {
        let (since, set) = (Instant::now(), Arc::default());
        Context::with(Clock::Simulated { origin, since, set }, Rng::with_seed(seed))
    }

    /// Sets a simulated clock forward, or back, as people and time servers do; durations are measured
    /// as before.
    pub fn set_clock(&self, by: SignedDuration) {
        if let Clock::Simulated { set, .. } = &self.clock {
            let by = i64::try_from(by.as_millis()).unwrap_or_default();
            set.fetch_add(by, Relaxed);
        }
    }

    fn with(clock: Clock, random: Rng) -> Context {
        let stops = Arc::new([watch::Sender::new(false)]);
        Context { clock, random: Arc::new(Mutex::new(random)), metrics: Arc::new(NoMetrics), stops }
    }

    #[must_use]
    pub fn with_metrics(self, metrics: Arc<dyn Metrics>) -> Context {
        Context { metrics, ..self }
    }

    /// A part that can be stopped by itself, and stops with the whole.
    #[must_use]
    pub fn part(&self) -> Context {
        let own = std::iter::once(watch::Sender::new(false));
        let stops = own.chain(self.stops.iter().cloned()).collect();
        Context { stops, ..self.clone() }
    }

    pub fn now(&self) -> Timestamp {
        match &self.clock {
            Clock::System => Timestamp::now(),
            Clock::Simulated { origin, since, set } => {
                let elapsed = SignedDuration::try_from(since.elapsed()).unwrap_or_default();
                let elapsed = elapsed + SignedDuration::from_millis(set.load(Relaxed));
                origin.saturating_add(elapsed).unwrap_or(*origin)
            }
        }
    }

    /// A number from 0 up to 1.
    pub fn chance(&self) -> f64 {
        self.random.lock().f64()
    }

    pub fn number(&self) -> u64 {
        self.random.lock().u64(..)
    }

    /// The duration and up to `factor` times it more.
    pub fn jitter(&self, duration: Duration, factor: f64) -> Duration {
        duration.mul_f64(1.0 + factor * self.chance())
    }

    /// A random UUID (version 4).
    pub fn uuid(&self) -> String {
        let mut random = self.random.lock();
        let bits = (random.u128(..) & !(0xf << 76) & !(0b11 << 62)) | (4 << 76) | (0b10 << 62);
        let text = format!("{bits:032x}");
        [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
    }

    pub fn metrics(&self) -> &dyn Metrics {
        &*self.metrics
    }

    pub fn stop(&self) {
        self.stops[0].send_replace(true);
    }

    pub fn is_stopped(&self) -> bool {
        self.stops.iter().any(|stop| *stop.borrow())
    }

    /// Until somebody says stop.
    pub async fn stopped(&self) {
        let waits = self.stops.iter().map(|stop| {
            let mut heard = stop.subscribe();
            // The sender lives as long as this context does.
            Box::pin(async move { drop(heard.wait_for(|stopped| *stopped).await) })
        });
        futures_util::future::select_all(waits).await;
    }

    /// Sleeps; false if it was told to stop meanwhile.
    pub async fn sleep(&self, duration: Duration) -> bool {
        tokio::select! {
            () = self.stopped() => false,
            () = tokio::time::sleep(duration) => true,
        }
    }
}

impl Default for Context {
    fn default() -> Context {
        Context::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn simulated_time_goes_with_tokios() {
        let context = Context::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
        assert!(context.sleep(Duration::from_secs(3600)).await);
        assert_eq!(context.now().to_string(), "2026-01-01T01:00:00Z");
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_stops_with_the_whole_and_not_the_other_way() {
        let whole = Context::simulated(Timestamp::UNIX_EPOCH, 1);
        let (one, other) = (whole.part(), whole.part());
        one.stop();
        assert_eq!([&one, &other, &whole].map(Context::is_stopped), [true, false, false]);
        assert!(!one.sleep(Duration::from_secs(1)).await);
        whole.stop();
        other.stopped().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_uuid_says_its_version() {
        let uuid = Context::simulated(Timestamp::UNIX_EPOCH, 7).uuid();
        assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"), "{uuid}");
        assert!(["8", "9", "a", "b"].contains(&&uuid[19..20]), "{uuid}");
    }
}
