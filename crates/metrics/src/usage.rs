//! What was used between two looks.
use crate::sample::Point;
use jiff::Timestamp;
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    pub at: Timestamp,
    pub window_seconds: f64,
    /// Billionths of a processor.
    pub nano_cores: u64,
    pub memory_bytes: u64,
}

/// Shorter than this a rate says nothing.
const SHORTEST: f64 = 1.0;

/// Between two points, if they tell of the same life and of enough time. One that started between the
/// looks is measured from its start.
pub fn between(before: Option<&Point>, after: &Point) -> Option<Usage> {
    let seconds = |at: Timestamp| at.as_millisecond() as f64 / 1000.0;
    let (from, used) = match before {
        Some(before)
            if before.started == after.started && before.cpu_seconds <= after.cpu_seconds =>
        {
            (seconds(before.at), after.cpu_seconds - before.cpu_seconds)
        }
        _ if after.started > 0.0 => (after.started, after.cpu_seconds),
        _ => return None,
    };
    let window_seconds = seconds(after.at) - from;
    if window_seconds < SHORTEST {
        return None;
    }
    let nano_cores = (used / window_seconds * 1e9) as u64;
    Some(Usage { at: after.at, window_seconds, nano_cores, memory_bytes: after.memory_bytes })
}

impl Usage {
    /// As a `ResourceList`, in the units that upstream's metrics server uses.
    pub fn resources(&self) -> Value {
        let cpu =
            if self.nano_cores == 0 { "0".to_owned() } else { format!("{}n", self.nano_cores) };
        let memory = if self.memory_bytes == 0 {
            "0".to_owned()
        } else {
            format!("{}Ki", self.memory_bytes / 1024)
        };
        json!({ "cpu": cpu, "memory": memory })
    }

    /// As Go writes a duration of milliseconds.
    pub fn window(&self) -> String {
        let milliseconds = (self.window_seconds * 1000.0).round() as i64;
        let (minutes, rest) = (milliseconds / 60_000, milliseconds % 60_000);
        let mut text = format!("{}.{:03}", rest / 1000, rest % 1000);
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
        let hours = minutes / 60;
        match (hours, minutes % 60) {
            (0, 0) => format!("{text}s"),
            (0, minutes) => format!("{minutes}m{text}s"),
            (hours, minutes) => format!("{hours}h{minutes}m{text}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(second: i64, cpu_seconds: f64, started: f64) -> Point {
        let at = Timestamp::from_second(second).expect("a moment");
        Point { at, cpu_seconds, memory_bytes: 4096, started }
    }

    fn check(before: Option<Point>, after: Point, expected: Option<(u64, &str)>) {
        let usage = between(before.as_ref(), &after);
        let told = usage.map(|usage| (usage.nano_cores, usage.window()));
        assert_eq!(told, expected.map(|(cores, window)| (cores, window.to_owned())));
    }

    #[test]
    fn usage_is_the_rate_between_two_looks_at_one_life() {
        check(Some(point(100, 1.0, 50.0)), point(115, 2.5, 50.0), Some((100_000_000, "15s")));
        // It was started again since: its own life counts.
        check(Some(point(100, 9.0, 50.0)), point(115, 1.0, 105.0), Some((100_000_000, "10s")));
        // The first look: since the start.
        check(None, point(160, 6.0, 100.0), Some((100_000_000, "1m0s")));
        // A node's first look says nothing, nor does one that is hardly later.
        check(None, point(160, 6.0, 0.0), None);
        check(Some(point(100, 1.0, 0.0)), point(100, 1.0, 0.0), None);
        // A machine that was started again counts from zero.
        check(Some(point(100, 9.0, 0.0)), point(115, 1.0, 0.0), None);
    }

    #[test]
    fn numbers_are_written_as_upstreams_metrics_server_does() {
        let usage = between(Some(&point(100, 1.0, 50.0)), &point(115, 1.0, 50.0)).expect("usage");
        assert_eq!(usage.resources(), json!({ "cpu": "0", "memory": "4Ki" }));
        let long = Usage { window_seconds: 3723.25, ..usage };
        assert_eq!(long.window(), "1h2m3.25s");
    }
}
