//! How long admission takes, by upstream's names (`apiserver/pkg/admission/metrics`): each plugin, and each of
//! the two steps with all of its plugins. A plugin that is not asked about a kind is not counted there.
//!
//! Every write passes many plugins: each has its places beforehand, and to count takes no lock and makes no text.
use super::attributes::Operation;
use super::plugins::{Plugin, When};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, in seconds: upstream's.
const SECONDS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

const OPERATIONS: [Operation; 4] =
    [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

/// The half of admission that may change what is written, and the one that may only refuse it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Admit,
    Validate,
}

const STEPS: [(Step, &str); 2] = [(Step::Admit, "admit"), (Step::Validate, "validate")];

/// What was asked, about what, and whether it was refused.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub step: Step,
    pub operation: Operation,
    pub rejected: bool,
}

#[derive(Default)]
struct Series {
    /// Those that took no longer than a bound, and longer than the one before it.
    buckets: [AtomicU64; SECONDS.len()],
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

/// By step, operation and outcome.
#[derive(Default)]
struct Places([[[Series; 2]; OPERATIONS.len()]; STEPS.len()]);

pub struct Durations {
    steps: Places,
    /// One for each plugin that runs; none for what upstream has no plugin for.
    plugins: Vec<Option<(&'static str, Places)>>,
}

impl Durations {
    pub fn of(rows: &[&'static Plugin]) -> Durations {
        let counted = |row: &&'static Plugin| {
            (row.when != When::Always).then(|| (row.name, Places::default()))
        };
        Durations { steps: Places::default(), plugins: rows.iter().map(counted).collect() }
    }

    /// A plugin, by its place among those that run, had its say.
    pub fn of_plugin(&self, index: usize, asked: Asked, took: Duration) {
        if let Some(Some((_, places))) = self.plugins.get(index) {
            places.add(asked, took);
        }
    }

    /// All plugins had theirs, or those up to the one that refused.
    pub fn of_step(&self, asked: Asked, took: Duration) {
        self.steps.add(asked, took);
    }

    /// As Prometheus reads them.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        let metric = "apiserver_admission_controller_admission_duration_seconds";
        writeln!(text, "# TYPE {metric} histogram")?;
        for (name, places) in self.plugins.iter().flatten() {
            places.write(text, metric, &format!("name=\"{name}\","))?;
        }
        let metric = "apiserver_admission_step_admission_duration_seconds";
        writeln!(text, "# TYPE {metric} histogram")?;
        self.steps.write(text, metric, "")
    }
}

impl Places {
    fn add(&self, asked: Asked, took: Duration) {
        let series = &self.0[asked.step as usize][asked.operation as usize];
        series[usize::from(asked.rejected)].add(took);
    }

    fn write(&self, text: &mut String, metric: &str, whose: &str) -> fmt::Result {
        for (step, shown) in STEPS {
            for operation in OPERATIONS {
                let outcomes = &self.0[step as usize][operation as usize];
                for (series, rejected) in outcomes.iter().zip([false, true]) {
                    let operation = operation.as_str();
                    let labels = format!(
                        "{whose}operation=\"{operation}\",rejected=\"{rejected}\",type=\"{shown}\""
                    );
                    series.write(text, metric, &labels)?;
                }
            }
        }
        Ok(())
    }
}

impl Series {
    fn add(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(place) = SECONDS.iter().position(|bound| seconds <= *bound) {
            self.buckets[place].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Nothing, if nothing was counted.
    fn write(&self, text: &mut String, metric: &str, labels: &str) -> fmt::Result {
        let count = self.count.load(Ordering::Relaxed);
        if count == 0 {
            return Ok(());
        }
        let mut below = 0;
        for (bound, bucket) in SECONDS.iter().zip(&self.buckets) {
            below += bucket.load(Ordering::Relaxed);
            writeln!(text, "{metric}_bucket{{{labels},le=\"{bound}\"}} {below}")?;
        }
        writeln!(text, "{metric}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
        let sum = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
        writeln!(text, "{metric}_sum{{{labels}}} {sum}")?;
        writeln!(text, "{metric}_count{{{labels}}} {count}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Server;
    use serde_json::json;

    #[test]
    fn places_are_in_the_order_of_what_they_are_for() {
        for (index, (step, _)) in STEPS.iter().enumerate() {
            assert_eq!(*step as usize, index);
        }
        for (index, operation) in OPERATIONS.iter().enumerate() {
            assert_eq!(*operation as usize, index);
        }
    }

    #[test]
    fn a_bucket_has_all_that_took_no_longer() {
        let durations = Durations::of(&[]);
        let asked = Asked { step: Step::Admit, operation: Operation::Delete, rejected: true };
        for milliseconds in [5, 250, 3_000] {
            durations.of_step(asked, Duration::from_millis(milliseconds));
        }
        let metric = "apiserver_admission_step_admission_duration_seconds";
        let labels = r#"operation="DELETE",rejected="true",type="admit""#;
        let bucket =
            |le: &str, count: u64| format!("{metric}_bucket{{{labels},le=\"{le}\"}} {count}\n");
        let expected = [
            "# TYPE apiserver_admission_controller_admission_duration_seconds histogram\n".into(),
            format!("# TYPE {metric} histogram\n"),
            bucket("0.005", 1),
            bucket("0.025", 1),
            bucket("0.1", 1),
            bucket("0.5", 2),
            bucket("1", 2),
            bucket("2.5", 2),
            bucket("+Inf", 3),
            format!("{metric}_sum{{{labels}}} 3.255\n{metric}_count{{{labels}}} 3\n"),
        ];
        assert_eq!(durations.text(), expected.concat());
    }

    #[tokio::test]
    async fn a_write_counts_for_the_plugins_that_it_passes() {
        let server = Server::start().await;
        let pod = |name: &str| {
            json!({ "metadata": { "name": name }, "spec": {
            "containers": [{ "name": "a", "image": "b" }] } })
        };
        let pods = "/api/v1/namespaces/nowhere/pods";
        assert_eq!(server.create(pods, pod("a")).await.code, 404);
        let text = server.api.admission().durations.text();
        let count = |metric: &str, labels: &str| {
            let line = format!(
                "apiserver_admission_{metric}_admission_duration_seconds_count{{{labels}}} "
            );
            let found = text.lines().find_map(|told| told.strip_prefix(&line));
            found.map(|count| count.parse::<u64>().expect("a number"))
        };
        let refused = r#"operation="CREATE",rejected="true",type="admit""#;
        let plugin = format!("name=\"NamespaceLifecycle\",{refused}");
        assert_eq!(count("controller", &plugin), Some(1), "{text}");
        assert_eq!(count("step", refused), Some(1), "{text}");
        // Whoever comes after the one that refuses has no say.
        assert!(
            !text.contains(r#"name="MutatingAdmissionWebhook",operation="CREATE",rejected="true""#)
        );
        assert!(!text.contains("RBACEscalation"), "{text}");
    }
}
