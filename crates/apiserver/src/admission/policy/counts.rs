//! What is counted of policies, by upstream's names (`plugin/policy/{validating,mutating}/metrics`).
use super::conditions::Met;
use client::{Metrics, Registry};
use std::time::Duration;

/// A policy, and the binding by which it counts.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub policy: &'a str,
    pub binding: &'a str,
}

/// What became of something that a validating policy said against a request, as the counts call it.
pub fn action(action: &str) -> Option<&'static str> {
    match action {
        "Deny" => Some("deny"),
        "Audit" => Some("audit"),
        "Warn" => Some("warn"),
        _ => None,
    }
}

/// What cannot be evaluated is passed over, if the policy says so.
pub const ALLOW: &str = "allow";

/// A validation that does not hold, or cannot be evaluated. Upstream calls the first an error too.
pub fn checked(
    registry: &Registry,
    named: Named<'_>,
    action: &'static str,
    message: &str,
    took: Duration,
) {
    let labels = [
        ("enforcement_action", action),
        ("error_type", error_type(message)),
        ("policy", named.policy),
        ("policy_binding", named.binding),
    ];
    registry.count("apiserver_validating_admission_policy_check_total", &labels);
    let seconds = took.as_secs_f64();
    registry.observe(
        "apiserver_validating_admission_policy_check_duration_seconds",
        &labels,
        seconds,
    );
}

/// One mutation, and what was wrong with it.
pub fn mutated(registry: &Registry, named: Named<'_>, error: Option<&str>, took: Duration) {
    let labels = [
        ("error_type", error.map_or("no_error", error_type)),
        ("policy", named.policy),
        ("policy_binding", named.binding),
    ];
    registry.count("apiserver_mutating_admission_policy_check_total", &labels);
    let seconds = took.as_secs_f64();
    registry.observe(
        "apiserver_mutating_admission_policy_check_duration_seconds",
        &labels,
        seconds,
    );
}

/// The conditions of a policy were judged; upstream has one word for both sorts.
pub fn judged(registry: &Registry, policy: &str, operation: &str, met: &Met) {
    let labels =
        [("kind", "policy"), ("name", policy), ("operation", operation), ("type", "validate")];
    conditions(registry, &labels, met);
}

/// The conditions of whatever the labels say were judged.
pub fn conditions(registry: &Registry, labels: &[(&'static str, &str)], met: &Met) {
    let Some(took) = met.took else { return };
    registry.observe(
        "apiserver_admission_match_condition_evaluation_seconds",
        labels,
        took.as_secs_f64(),
    );
    if met.errors > 0 {
        registry.add(
            "apiserver_admission_match_condition_evaluation_errors_total",
            labels,
            met.errors as f64,
        );
    }
}

/// Upstream tells by the text.
fn error_type(message: &str) -> &'static str {
    if message.starts_with("compilation") {
        "compile_error"
    } else if message.starts_with("validation failed due to running out of cost budget") {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart_by_their_texts() {
        assert_eq!(error_type("compilation error: x"), "compile_error");
        assert_eq!(error_type(super::super::input::OUT_OF_BUDGET), "out_of_budget");
        assert_eq!(error_type("failed expression: false"), "invalid_error");
    }
}
