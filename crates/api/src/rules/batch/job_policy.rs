//! When pods' endings make a job fail or succeed.
use super::super::Field;
use super::indexes;
use crate::field::BadValue;
use crate::names;
use crate::quote::Quoted;

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];

/// `valid values: ["A" "B"]`, as Go prints a list.
fn valid_values(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| Quoted(value).to_string()).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

pub fn failure(spec: &Field<'_, '_>) {
    let rules = spec.at("podFailurePolicy.rules");
    rules.at_most(20);
    let pod = spec.at("template.spec");
    let mut containers = Vec::new();
    for list in ["containers", "initContainers"] {
        containers
            .extend(pod.at(list).list().iter().filter_map(|container| container["name"].as_str()));
    }
    for rule in rules.items() {
        let action = rule.at("action");
        match action.text() {
            "" => action.required(valid_values(ACTIONS)),
            "FailIndex" if !spec.at("backoffLimitPerIndex").exists() => {
                action.invalid("requires the backoffLimitPerIndex to be set");
            }
            _ => {
                action.one_of(ACTIONS);
            }
        }
        let (codes, conditions) = (rule.at("onExitCodes"), rule.at("onPodConditions"));
        if codes.exists() {
            exit_codes(&codes, &containers);
        }
        conditions.at_most(20);
        for pattern in conditions.items() {
            let (kind, status) = (pattern.at("type"), pattern.at("status"));
            kind.faults(names::qualified_name(kind.text()));
            match status.is_empty() {
                true => status.required(valid_values(&["False", "True", "Unknown"])),
                false => {
                    status.one_of(&["False", "True", "Unknown"]);
                }
            }
        }
        let wrong = match (codes.exists(), !conditions.is_empty()) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        rule.invalid_as(BadValue::OMITTED, wrong);
    }
}

fn exit_codes(codes: &Field<'_, '_>, containers: &[&str]) {
    let (operator, name, values) =
        (codes.at("operator"), codes.at("containerName"), codes.at("values"));
    match operator.is_empty() {
        true => operator.required(valid_values(&["In", "NotIn"])),
        false => {
            operator.one_of(&["In", "NotIn"]);
        }
    }
    if name.exists() && !containers.contains(&name.text()) {
        name.invalid("must be one of the container or initContainer names in the pod template");
    }
    if values.is_empty() {
        let shown = if values.exists() { BadValue::json(values.value()) } else { BadValue::null() };
        values.invalid_as(shown, "at least one value is required");
    }
    values.at_most(255);
    for value in values.items() {
        if operator.text() == "In" && value.int() == 0 {
            value.invalid("must not be 0 for the In operator");
        }
    }
    values.unique();
    if !values.list().is_sorted_by_key(|value| value.as_i64()) {
        values.invalid("must be ordered");
    }
}

pub fn success(policy: &Field<'_, '_>, completions: i64) {
    let rules = policy.at("rules");
    rules.require_for("at least one rules must be specified when the successPolicy is specified");
    rules.at_most(20);
    for rule in rules.items() {
        let (wanted, count) = (rule.at("succeededIndexes"), rule.at("succeededCount"));
        if !wanted.exists() && !count.exists() {
            rule.required("at least one of succeededCount or succeededIndexes must be specified");
        }
        if wanted.text().len() > 64 * 1024 {
            wanted.too_long(64 * 1024);
        }
        let total = match indexes::count(wanted.text(), completions) {
            Ok(total) => total,
            Err(fault) => {
                wanted.invalid(format!("error parsing succeededIndexes: {fault}"));
                0
            }
        };
        if count.exists() {
            count.nonnegative();
            if count.int() > completions {
                count.invalid(format!("must be less than or equal to {completions} (the number of specified completions)"));
            }
            if wanted.exists() && count.int() > total {
                count.invalid(format!("must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"));
            }
        }
    }
}
