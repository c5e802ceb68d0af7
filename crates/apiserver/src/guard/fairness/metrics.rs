//! What is counted, by upstream's names.
use super::Fairness;
use super::level::Refusal;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

/// Upper bounds of the buckets of waiting times, in seconds: upstream's.
const SECONDS: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

/// The counters of one schema at one level.
#[derive(Debug, Default)]
pub struct Counters {
    pub dispatched: AtomicU64,
    pub executing: AtomicI64,
    pub executing_seats: AtomicI64,
    pub waiting: AtomicI64,
    pub waiting_seats: AtomicI64,
    pub rejected: [AtomicU64; 3],
    waits: [AtomicU64; SECONDS.len() + 1],
    waited_micros: AtomicU64,
}

impl Counters {
    pub fn waited(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = SECONDS.iter().position(|bound| seconds <= *bound).unwrap_or(SECONDS.len());
        self.waits[bucket].fetch_add(1, Relaxed);
        if !time.is_zero() {
            let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            self.waited_micros.fetch_add(micros, Relaxed);
        }
    }
}

type Gauge = (&'static str, &'static str, &'static str, fn(&Counters) -> i64);

/// Name, type, help, value; by schema and level.
const FLOWS: &[Gauge] = &[
    ("dispatched_requests_total", "counter", "Requests that were let in.", |c| {
        i64::try_from(c.dispatched.load(Relaxed)).unwrap_or(i64::MAX)
    }),
    ("current_executing_requests", "gauge", "Requests under way.", |c| c.executing.load(Relaxed)),
    ("current_executing_seats", "gauge", "Seats taken.", |c| c.executing_seats.load(Relaxed)),
    ("current_inqueue_requests", "gauge", "Requests that wait.", |c| c.waiting.load(Relaxed)),
    ("current_inqueue_seats", "gauge", "Seats waited for.", |c| c.waiting_seats.load(Relaxed)),
];

impl Fairness {
    /// The page's lines.
    pub fn metrics(&self) -> String {
        let mut out = String::new();
        let counters = self.counters.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut all: Vec<_> = counters.iter().collect();
        all.sort_by_key(|(names, _)| *names);
        let labels = |(schema, level): &(String, String)| {
            format!("flow_schema={schema:?},priority_level={level:?}")
        };
        // Writing to a String cannot fail.
        for (name, kind, help, value) in FLOWS {
            head(&mut out, name, kind, help);
            for (names, counters) in &all {
                let _ = writeln!(out, "{PREFIX}{name}{{{}}} {}", labels(names), value(counters));
            }
        }
        head(&mut out, "rejected_requests_total", "counter", "Requests that were turned away.");
        for (names, counters) in &all {
            for (reason, count) in Refusal::WORDS.iter().zip(&counters.rejected) {
                let count = count.load(Relaxed);
                if count > 0 {
                    let labels = labels(names);
                    let _ = writeln!(
                        out,
                        "{PREFIX}rejected_requests_total{{{labels},reason=\"{reason}\"}} {count}"
                    );
                }
            }
        }
        let name = "request_wait_duration_seconds";
        head(&mut out, name, "histogram", "How long requests waited.");
        for (names, counters) in &all {
            let labels = format!("execute=\"true\",{}", labels(names));
            let mut below = 0;
            for (i, count) in counters.waits.iter().enumerate() {
                below += count.load(Relaxed);
                let bound = SECONDS.get(i).map_or("+Inf".to_owned(), ToString::to_string);
                let _ = writeln!(out, "{PREFIX}{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
            }
            let sum = counters.waited_micros.load(Relaxed) as f64 / 1e6;
            let _ = writeln!(out, "{PREFIX}{name}_sum{{{labels}}} {sum}");
            let _ = writeln!(out, "{PREFIX}{name}_count{{{labels}}} {below}");
        }
        let current = self.current();
        for (name, value) in [
            ("nominal_limit_seats", (|level| level.bounds.nominal) as fn(&super::Level) -> u32),
            ("lower_limit_seats", |level| level.bounds.least),
            ("upper_limit_seats", |level| level.bounds.most),
            ("current_limit_seats", |level| level.room.limit.load(Relaxed)),
        ] {
            head(&mut out, name, "gauge", "Seats of a level.");
            for (level_name, level) in &current.levels {
                let value = value(level);
                let _ = writeln!(out, "{PREFIX}{name}{{priority_level={level_name:?}}} {value}");
            }
        }
        out
    }
}

const PREFIX: &str = "apiserver_flowcontrol_";

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}");
}
