//! What is counted about hooks, by upstream's names (`apiserver/pkg/admission/metrics`).
use super::call::Failed;
use super::configuration::Hook;
use super::review::Verdict;
use crate::admission::policy::Met;
use crate::admission::policy::counts::conditions;
use client::{Metrics, Registry};
use std::time::Duration;

/// What kind of hook it is, in the words of the counts.
pub const fn kind(is_mutating: bool) -> &'static str {
    if is_mutating { "admit" } else { "validating" }
}

/// How a question to a hook ended, with the code that is counted of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Allowed,
    Rejected(i32),
    Calling(u16),
    Internal,
}

impl Ended {
    pub fn failed(failed: &Failed) -> Ended {
        match failed {
            Failed::Calling { code, .. } => Ended::Calling(*code),
            Failed::Rejected(status) => Ended::Rejected(status.code),
            Failed::Refused(_) => Ended::Internal,
        }
    }

    pub fn judged(outcome: &Result<Verdict, Failed>) -> Ended {
        match outcome {
            Ok(Verdict { refused: None, .. }) => Ended::Allowed,
            Ok(Verdict { refused: Some(status), .. }) => Ended::Rejected(status.code),
            Err(failed) => Ended::failed(failed),
        }
    }

    /// The code, and what was wrong, in the words of the counts.
    fn told(self) -> (i32, &'static str) {
        match self {
            Ended::Allowed => (200, "no_error"),
            Ended::Rejected(code) => (code, "no_error"),
            Ended::Calling(code) => (code.into(), "calling_webhook_error"),
            // Whatever its status says.
            Ended::Internal => (0, "apiserver_internal_error"),
        }
    }
}

/// A hook's conditions were judged: it is left out if they do not hold, or if it is no matter that they fail.
pub fn judged(registry: &Registry, hook: &Hook, (operation, is_mutating): (&str, bool), met: &Met) {
    let step = if is_mutating { "admit" } else { "validate" };
    let labels =
        [("kind", "webhook"), ("name", &*hook.name), ("operation", operation), ("type", step)];
    conditions(registry, &labels, met);
    let is_left_out = match met.outcome {
        Ok(holds) => !holds,
        Err(_) => hook.ignores_failures,
    };
    if is_left_out {
        registry.count("apiserver_admission_match_condition_exclusions_total", &labels);
    }
}

/// One question was answered, or was not.
pub fn asked(
    registry: &Registry,
    hook: &Hook,
    (operation, is_mutating): (&str, bool),
    ended: Ended,
    took: Duration,
) {
    let (code, error) = ended.told();
    // One whose failures are ignored refuses nothing by failing.
    let rejected = match ended {
        Ended::Allowed => false,
        Ended::Calling(_) => !hook.ignores_failures,
        Ended::Rejected(_) | Ended::Internal => true,
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
    } else if matches!(ended, Ended::Calling(_)) {
        registry.count("apiserver_admission_webhook_fail_open_count", &[name, kind]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::status::Status;

    #[test]
    fn codes_are_of_what_a_hook_says_or_why_it_could_not() {
        let check = |failed: Failed, expected: (i32, &str)| {
            assert_eq!(Ended::failed(&failed).told(), expected);
        };
        let calling = |code| Failed::Calling { reason: String::new(), code };
        check(calling(503), (503, "calling_webhook_error"));
        check(calling(400), (400, "calling_webhook_error"));
        let refused = Status { code: 403, ..Status::default() };
        check(Failed::Rejected(Box::new(refused.clone())), (403, "no_error"));
        check(Failed::Refused(refused), (0, "apiserver_internal_error"));
        assert_eq!(Ended::Allowed.told(), (200, "no_error"));
    }
}
