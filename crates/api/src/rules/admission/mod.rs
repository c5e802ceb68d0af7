//! Who has a say before a request is stored: webhooks and policies.
//!
//! Expressions are checked to be there; whether they compile is the server's to say.
mod policy;
mod reserved;
mod webhook;

pub use reserved::SUFFIX as RESERVED_NAMES;
pub use webhook::{REVIEWS, client_config_service, client_config_url};

use super::Field;
use super::Strategy;
use crate::names;
use std::collections::HashSet;

const PLAIN: Strategy = Strategy::USUAL.without_status().conditional();
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];
const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];

/// Everything, or a list without it.
fn alone(list: &Field<'_, '_>, what: &str) {
    if list.len() > 1 && list.texts().any(|item| item == "*") {
        list.invalid(format!("if '*' is present, must not specify other {what}"));
    }
}

fn rule(rule: &Field<'_, '_>) {
    let (operations, groups, versions) =
        (rule.at("operations"), rule.at("apiGroups"), rule.at("apiVersions"));
    operations.require();
    alone(&operations, "operations");
    for operation in operations.items() {
        operation.one_of(OPERATIONS);
    }
    groups.require();
    alone(&groups, "API groups");
    versions.require();
    alone(&versions, "API versions");
    for version in versions.items() {
        version.require();
    }
    resources(&rule.at("resources"));
    rule.at("scope").one_of_if_given(&["*", "Cluster", "Namespaced"]);
}

/// `pods`, `pods/status`, `*/scale`, `*`, `*/*`: none may be part of another.
fn resources(resources: &Field<'_, '_>) {
    resources.require();
    let (mut whole, mut parts) = (HashSet::new(), HashSet::new());
    let mut plain = false;
    for resource in resources.items() {
        let text = resource.text();
        if !resource.require() {
            continue;
        }
        let Some((name, part)) = text.split_once('/') else {
            plain = text != "*";
            continue;
        };
        if whole.contains(name) {
            resource.invalid(format!("if '{name}/*' is present, must not specify {text}"));
        }
        if parts.contains(part) {
            resource.invalid(format!("if '*/{part}' is present, must not specify {text}"));
        }
        if part == "*" {
            whole.insert(name);
        }
        if name == "*" {
            parts.insert(part);
        }
    }
    if resources.len() > 1 && resources.texts().any(|text| text == "*/*") {
        resources.invalid("if '*/*' is present, must not specify other resources");
    }
    if plain && resources.texts().any(|text| text == "*") {
        resources
            .invalid("if '*' is present, must not specify other resources without subresources");
    }
}

fn match_conditions(conditions: &Field<'_, '_>) {
    conditions.at_most(64);
    for condition in conditions.items() {
        let (name, expression) = (condition.at("name"), condition.at("expression"));
        if expression.text().trim().is_empty() {
            expression.required("");
        }
        if name.require() {
            name.faults(names::qualified_name(name.text()));
        }
    }
    conditions.unique_by("name");
}
