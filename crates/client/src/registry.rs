//! A registry of counts that a component shows as Prometheus' text.
use crate::metrics::Metrics;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The upper bounds of a histogram's buckets, for each that has its own.
pub type Bounds = &'static [(&'static str, &'static [f64])];

/// Those of any other: upstream's exponential ones from a millisecond on.
const BOUNDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];

#[derive(Default)]
pub struct Registry {
    families: Mutex<BTreeMap<&'static str, BTreeMap<String, Series>>>,
    bounds: Bounds,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registry")
    }
}

#[derive(Debug, Clone)]
enum Series {
    Counter(f64),
    Gauge(f64),
    Histogram { bounds: &'static [f64], buckets: Vec<u64>, count: u64, sum: f64 },
}

impl Registry {
    /// One whose histograms have these buckets, where they are named.
    pub fn with_bounds(bounds: Bounds) -> Registry {
        Registry { families: Mutex::default(), bounds }
    }

    /// Several at once.
    pub fn add(&self, name: &'static str, labels: &[(&'static str, &str)], value: f64) {
        self.change(name, labels, Series::Counter(0.0), |series| {
            if let Series::Counter(count) = series {
                *count += value;
            }
        });
    }

    /// What is counted no more.
    pub fn forget(&self, name: &'static str, labels: &[(&'static str, &str)]) {
        if let Some(family) = self.families.lock().get_mut(name) {
            family.remove(&written(labels));
        }
    }

    fn change(
        &self,
        name: &'static str,
        labels: &[(&'static str, &str)],
        new: Series,
        change: impl FnOnce(&mut Series),
    ) {
        let mut families = self.families.lock();
        change(families.entry(name).or_default().entry(written(labels)).or_insert(new));
    }

    /// Everything, in Prometheus' text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, all) in &*self.families.lock() {
            let kind = match all.values().next() {
                Some(Series::Gauge(_)) => "gauge",
                Some(Series::Histogram { .. }) => "histogram",
                _ => "counter",
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# TYPE {name} {kind}");
            for (labels, series) in all {
                let _ = line(&mut text, name, labels, series);
            }
        }
        text
    }
}

fn line(text: &mut String, name: &str, labels: &str, series: &Series) -> std::fmt::Result {
    let braced = |labels: &str| match labels.is_empty() {
        true => String::new(),
        false => format!("{{{labels}}}"),
    };
    match series {
        Series::Counter(value) | Series::Gauge(value) => {
            writeln!(text, "{name}{} {value}", braced(labels))
        }
        Series::Histogram { bounds, buckets, count, sum } => {
            let comma = if labels.is_empty() { "" } else { "," };
            for (bound, count) in bounds.iter().zip(buckets) {
                writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}")?;
            }
            writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}")?;
            writeln!(text, "{name}_sum{} {sum}", braced(labels))?;
            writeln!(text, "{name}_count{} {count}", braced(labels))
        }
    }
}

fn written(labels: &[(&'static str, &str)]) -> String {
    let escaped =
        |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    labels.collect::<Vec<_>>().join(",")
}

impl Metrics for Registry {
    fn count(&self, name: &'static str, labels: &[(&'static str, &str)]) {
        self.add(name, labels, 1.0);
    }

    fn set(&self, name: &'static str, labels: &[(&'static str, &str)], value: f64) {
        self.change(name, labels, Series::Gauge(0.0), |series| *series = Series::Gauge(value));
    }

    fn observe(&self, name: &'static str, labels: &[(&'static str, &str)], value: f64) {
        let named = self.bounds.iter().find(|(metric, _)| *metric == name);
        let bounds = named.map_or(BOUNDS, |(_, bounds)| bounds);
        // No list is made for those that are there already.
        let new = Series::Histogram { bounds, buckets: Vec::new(), count: 0, sum: 0.0 };
        self.change(name, labels, new, |series| {
            if let Series::Histogram { bounds, buckets, count, sum } = series {
                buckets.resize(bounds.len(), 0);
                for (bound, bucket) in bounds.iter().zip(buckets) {
                    *bucket += u64::from(value <= *bound);
                }
                *count += 1;
                *sum += value;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_as_prometheus_reads_them() {
        let registry = Registry::default();
        registry.count("b_total", &[("code", "200"), ("path", "\"x\"")]);
        registry.count("b_total", &[("code", "200"), ("path", "\"x\"")]);
        registry.set("a", &[("gone", "x")], 2.5);
        registry.set("a", &[], 1.5);
        registry.forget("a", &[("gone", "x")]);
        registry.observe("c_seconds", &[], 0.003);
        let text = registry.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..4],
            [
                "# TYPE a gauge",
                "a 1.5",
                "# TYPE b_total counter",
                r#"b_total{code="200",path="\"x\""} 2"#,
            ]
        );
        assert!(lines.contains(&r#"c_seconds_bucket{le="0.002"} 0"#), "{text}");
        assert!(lines.contains(&r#"c_seconds_bucket{le="0.004"} 1"#), "{text}");
        assert!(text.ends_with("c_seconds_sum 0.003\nc_seconds_count 1\n"), "{text}");
    }

    #[test]
    fn a_histogram_may_have_buckets_of_its_own() {
        let registry = Registry::with_bounds(&[("c_seconds", &[0.5, 25.0])]);
        registry.observe("c_seconds", &[("x", "y")], 3.0);
        registry.observe("c_seconds", &[("x", "y")], 0.25);
        assert_eq!(
            registry.text(),
            "# TYPE c_seconds histogram\n\
             c_seconds_bucket{x=\"y\",le=\"0.5\"} 1\n\
             c_seconds_bucket{x=\"y\",le=\"25\"} 2\n\
             c_seconds_bucket{x=\"y\",le=\"+Inf\"} 2\n\
             c_seconds_sum{x=\"y\"} 3.25\n\
             c_seconds_count{x=\"y\"} 2\n"
        );
    }
}
