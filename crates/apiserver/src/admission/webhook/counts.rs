//! What is counted about hooks, by upstream's names (`apiserver/pkg/admission/metrics`).
use super::call::Failed;
use super::configuration::Hook;
use super::review::Verdict;
use client::{Metrics, Registry};
use std::time::Duration;

/// What kind of hook it is, in the words of the counts.
pub const fn kind(is_mutating: bool) -> &'static str {
    if is_mutating { "admit" } else { "validating" }
}

/// One question was answered, or was not.
pub fn asked(
    registry: &Registry,
    hook: &Hook,
    (operation, is_mutating): (&str, bool),
    outcome: &Result<Verdict, Failed>,
    took: Duration,
) {
    let (code, error) = match outcome {
        Ok(Verdict { refused: None, .. }) => (200, "no_error"),
        Ok(Verdict { refused: Some(status), .. }) => (status.code, "no_error"),
        Err(Failed::Calling(_)) => (0, "calling_webhook_error"),
        Err(Failed::Refused(status)) => (status.code, "apiserver_internal_error"),
    };
    // One whose failures are ignored refuses nothing by failing.
    let rejected = match outcome {
        Ok(verdict) => verdict.refused.is_some(),
        Err(Failed::Calling(_)) => !hook.ignores_failures,
        Err(Failed::Refused(_)) => true,
    };
    // Upstream counts what is beyond an error's codes as one.
    let code = code.min(600).to_string();
    let told = if rejected { "true" } else { "false" };
    let (name, kind) = (("name", hook.name.as_str()), ("type", kind(is_mutating)));
    let (operation, rejection) = (("operation", operation), ("rejected", told));
    registry.observe(
        "apiserver_admission_webhook_admission_duration_seconds",
        &[name, operation, rejection, kind],
        took.as_secs_f64(),
    );
    registry.count(
        "apiserver_admission_webhook_request_total",
        &[("code", &code), name, operation, rejection, kind],
    );
    if rejected {
        registry.count(
            "apiserver_admission_webhook_rejection_count",
            &[("error_type", error), name, operation, ("rejection_code", &code), kind],
        );
    } else if matches!(outcome, Err(Failed::Calling(_))) {
        registry.count("apiserver_admission_webhook_fail_open_count", &[name, kind]);
    }
}
