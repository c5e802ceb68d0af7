//! What keeps pods running: deployments, sets, replication controllers.
mod controller_revision;
mod daemon_set;
mod deployment;
mod replica_set;
mod stateful_set;

use super::table::{Column, containers, selector, with};
use super::{Field, pod};
use crate::field::BadValue;
use crate::names;
use crate::selector::label::Selector;
use serde_json::Value;

/// The wide columns of everything with a template.
const CONTAINERS: Column =
    with("Containers", |object, _| containers(&object.at("spec.template.spec"), "name")).wide();
const IMAGES: Column =
    with("Images", |object, _| containers(&object.at("spec.template.spec"), "image")).wide();
const SELECTOR: Column = with("Selector", |object, _| selector(&object.at("spec.selector"))).wide();

/// A selector that must be given, select something, and select the template's pods.
fn selector_and_template(spec: &Field<'_, '_>, kind: &str) -> Option<Selector> {
    let field = spec.at("selector");
    if !field.exists() && kind != "daemonset" {
        field.required("");
    }
    field.label_selector();
    let empty = field.at("matchLabels").is_empty() && field.at("matchExpressions").is_empty();
    if field.exists() && empty {
        field.invalid_as(selector_shown(&field), format!("empty selector is invalid for {kind}"));
    }
    let selector = Selector::from_label_selector(field.read().as_ref());
    if selector.is_err() && kind != "daemonset" {
        let detail = if kind == "statefulset" { "" } else { "invalid label selector" };
        field.invalid_as(selector_shown(&field), detail);
    }
    selector.ok()
}

/// A selector as its messages show it: labels first.
pub fn selector_shown(selector: &Field<'_, '_>) -> BadValue {
    let part = |name: &'static str| {
        let field = selector.at(name);
        (!field.is_empty()).then(|| format!("\"{name}\":{}", field.value()))
    };
    let parts: Vec<String> =
        [part("matchLabels"), part("matchExpressions")].into_iter().flatten().collect();
    BadValue::verbatim(format!("{{{}}}", parts.join(",")))
}

/// The template of a workload whose selector can be read: else it is not looked at.
fn template_of(spec: &Field<'_, '_>, selector: Option<&Selector>, kind: &str) {
    if selector.is_some() {
        template(spec, selector, kind);
    }
}

/// The template of a workload: its pods restart forever.
fn template(spec: &Field<'_, '_>, selector: Option<&Selector>, kind: &str) {
    let template = spec.at("template");
    let labels = template.at("metadata.labels");
    if let Some(selector) = selector
        && !selector.matches(&labels.labels())
    {
        let shown = BadValue::json(labels.value());
        labels.invalid_as(shown, "`selector` does not match template `labels`");
    }
    pod::template(&template);
    restarts(&template, kind);
}

fn restarts(template: &Field<'_, '_>, kind: &str) {
    let policy = template.at("spec.restartPolicy");
    if policy.text() != "Always" {
        policy.not_supported(&["Always"]);
    }
    let deadline = template.at("spec.activeDeadlineSeconds");
    if deadline.exists() {
        deadline.forbidden(format!("activeDeadlineSeconds in {kind} is not Supported"));
    }
}

/// A count or a percentage.
pub fn count_or_percent(field: &Field<'_, '_>) {
    match field.value() {
        Value::String(text) => {
            field.faults(names::percent(text));
        }
        _ => {
            field.nonnegative();
        }
    }
}

fn percent_of(field: &Field<'_, '_>) -> Option<i64> {
    let text = field.value().as_str()?;
    names::percent(text).is_empty().then(|| text.trim_end_matches('%').parse().unwrap_or(0))
}

fn count_of(field: &Field<'_, '_>) -> i64 {
    percent_of(field).unwrap_or_else(|| match field.value() {
        Value::String(text) => text.parse().unwrap_or(0),
        value => value.as_i64().unwrap_or(0),
    })
}

pub fn at_most_everything(field: &Field<'_, '_>) {
    if percent_of(field).is_some_and(|percent| percent > 100) {
        field.invalid("must not be greater than 100%");
    }
}

/// Counters in a status.
fn counters(status: &Field<'_, '_>, fields: &[&'static str]) {
    for field in fields {
        status.at(field).nonnegative();
    }
}

/// Counters that can not exceed others.
fn at_most(status: &Field<'_, '_>, pairs: &[(&'static str, &'static str)]) {
    for (field, limit) in pairs {
        let most = limit.strip_prefix("status.").unwrap_or(limit);
        if status.at(field).int() > status.at(most).int() {
            let count = status.at(field);
            count.invalid_as(count.int(), format!("cannot be greater than {limit}"));
        }
    }
}

fn collisions(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let (now, then) = (new.at("status.collisionCount"), old.at("status.collisionCount"));
    if then.exists() && now.int() < then.int() {
        now.invalid_as(now.int(), "cannot be decremented");
    }
}
