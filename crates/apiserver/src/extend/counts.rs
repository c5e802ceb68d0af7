//! What is counted of extension, by upstream's names.
use client::{Metrics, Registry};
use std::time::Duration;

/// How long an expression may reasonably take: from a fraction of a microsecond to the most that costs allow.
const EXPRESSIONS: &[f64] = &[0.000_000_5, 0.001, 0.01, 0.1, 1.0];

/// What Prometheus' own clients have where nothing is said.
const USUAL: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The histograms whose buckets upstream chose; conversion by definition has those of every [`Registry`].
pub const BOUNDS: client::Bounds = &[
    (
        "apiserver_admission_match_condition_evaluation_seconds",
        &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25],
    ),
    (
        "apiserver_admission_webhook_admission_duration_seconds",
        &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0],
    ),
    ("apiserver_cel_compilation_duration_seconds", USUAL),
    ("apiserver_cel_evaluation_duration_seconds", USUAL),
    (
        "apiserver_conversion_webhook_duration_seconds",
        &[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0],
    ),
    ("apiserver_mutating_admission_policy_check_duration_seconds", EXPRESSIONS),
    ("apiserver_validating_admission_policy_check_duration_seconds", EXPRESSIONS),
];

/// A conversion whose webhook was asked: of which definition, from and to which version.
pub struct Conversion<'a> {
    pub definition: &'a str,
    pub from: &'a str,
    pub to: &'a str,
    /// What was wrong, in the words of the counts.
    pub failure: Option<&'static str>,
}

impl Conversion<'_> {
    pub fn count(&self, registry: &Registry, took: Duration) {
        let (result, failure) = match self.failure {
            Some(failure) => ("failure", failure),
            None => ("success", ""),
        };
        let labels = [("failure_type", failure), ("result", result)];
        registry.count("apiserver_conversion_webhook_request_total", &labels);
        let seconds = took.as_secs_f64();
        registry.observe("apiserver_conversion_webhook_duration_seconds", &labels, seconds);
        let succeeded = if self.failure.is_none() { "true" } else { "false" };
        registry.observe(
            "apiserver_crd_conversion_webhook_duration_seconds",
            &[
                ("crd_name", self.definition),
                ("from_version", self.from),
                ("succeeded", succeeded),
                ("to_version", self.to),
            ],
            seconds,
        );
    }
}

/// The rules of a definition's version were compiled.
pub fn compiled(registry: &Registry, took: Duration) {
    registry.observe("apiserver_cel_compilation_duration_seconds", &[], took.as_secs_f64());
}

/// An object was held against the rules of its definition.
pub fn evaluated(registry: &Registry, took: Duration) {
    registry.observe("apiserver_cel_evaluation_duration_seconds", &[], took.as_secs_f64());
}
