//! Probes and lifecycle hooks.
use super::super::Field;
use crate::names;

pub fn validate(probe: &Field<'_, '_>, readiness: bool, grace_period: Option<i64>) {
    handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], grace_period);
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        probe.at(field).nonnegative();
    }
    let grace = probe.at("terminationGracePeriodSeconds");
    if grace.exists() && grace.int() <= 0 {
        grace.invalid("must be greater than 0");
    }
    if readiness && grace.exists() {
        grace.invalid("must not be set for readinessProbes");
    }
    let threshold = probe.at("successThreshold");
    if !readiness && threshold.int() != 1 {
        threshold.invalid_as(threshold.int(), "must be 1");
    }
}

/// Exactly one way to act.
pub fn handler(handler: &Field<'_, '_>, kinds: &[&'static str], grace_period: Option<i64>) {
    let mut given = kinds.iter().filter(|kind| handler.at(kind).exists());
    let Some(first) = given.next() else {
        return handler.required("must specify a handler type");
    };
    let action = handler.at(first);
    match *first {
        "exec" => {
            action.at("command").require();
        }
        "httpGet" => http_get(&action),
        "tcpSocket" => action.at("port").port_or_name(),
        "grpc" => {
            action.at("port").port();
        }
        _ => {
            let seconds = action.at("seconds").int();
            if let Some(grace) = grace_period
                && !(0..=grace).contains(&seconds)
            {
                action.invalid_as(
                    seconds,
                    format!(
                        "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                    ),
                );
            }
        }
    }
    for other in given {
        handler.at(other).forbidden("may not specify more than 1 handler type");
    }
}

fn http_get(action: &Field<'_, '_>) {
    action.at("path").require();
    action.at("port").port_or_name();
    action.at("scheme").one_of(&["HTTP", "HTTPS"]);
    let headers = action.at("httpHeaders");
    for header in headers.items() {
        let name = header.at("name").text();
        for fault in names::http_header_name(name) {
            headers.invalid_as(name, fault);
        }
    }
}
