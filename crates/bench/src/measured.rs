//! How often and how fast: what a load found, as figures of a report.
use std::fs;
use std::time::Duration;

/// Latencies in microseconds.
#[derive(Default)]
pub struct Measured {
    pub took: Duration,
    pub latencies: Vec<u32>,
}

impl Measured {
    /// What was measured at another time counts as well.
    pub fn add(&mut self, other: Measured) {
        self.took += other.took;
        self.latencies.extend(other.latencies);
    }

    pub fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.took.as_secs_f64()
    }

    pub fn figures(mut self) -> [(&'static str, f64); 4] {
        self.latencies.sort_unstable();
        let at = |share: f64| {
            let last = self.latencies.len().saturating_sub(1);
            let index = (last as f64 * share) as usize;
            self.latencies.get(index).map_or(0.0, |us| f64::from(*us) / 1000.0)
        };
        [("ops/s", self.rate()), ("p50 ms", at(0.5)), ("p99 ms", at(0.99)), ("p99.9 ms", at(0.999))]
    }
}

/// Bytes of memory that a process holds; `self` is this one.
pub fn resident(process: &str) -> u64 {
    let pages = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    pages.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Processor time that a process has taken so far, in seconds.
pub fn processor_seconds(process: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The program's name, in brackets, may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}
