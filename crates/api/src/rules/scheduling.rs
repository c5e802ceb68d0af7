//! What says where pods may run: affinity, tolerations, spreading, topologies.
use super::Field;
use super::check::collect;
use crate::field::{Error, ErrorList};
use crate::names;
use crate::schema::builtin;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub fn affinity(affinity: &Field<'_, '_>) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let node = affinity.at("nodeAffinity");
    if node.at(REQUIRED).exists() {
        node_selector(&node.at(REQUIRED));
    }
    for term in node.at(PREFERRED).items() {
        weight(&term);
        node_selector_term(&term.at("preference"), false);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.at(kind);
        pods.at(REQUIRED).items().for_each(|term| pod_term(&term));
        for term in pods.at(PREFERRED).items() {
            weight(&term);
            pod_term(&term.at("podAffinityTerm"));
        }
    }
}

fn weight(term: &Field<'_, '_>) {
    if !(1..=100).contains(&term.at("weight").int()) {
        term.at("weight").invalid("must be in the range 1-100");
    }
}

pub fn node_selector(selector: &Field<'_, '_>) {
    let terms = selector.at("nodeSelectorTerms");
    if terms.require_for("must have at least one node selector term") {
        terms.items().for_each(|term| node_selector_term(&term, true));
    }
}

/// Values of labels are checked where they bind.
fn node_selector_term(term: &Field<'_, '_>, binding: bool) {
    for requirement in term.at("matchExpressions").items() {
        let (key, values) = (requirement.at("key"), requirement.at("values"));
        match requirement.at("operator").text() {
            "In" | "NotIn" => {
                values.require_for("must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                values.forbidden(detail);
            }
            "Exists" | "DoesNotExist" => {}
            "Gt" | "Lt" if values.len() != 1 => {
                values.required("must be specified single value when `operator` is 'Lt' or 'Gt'");
            }
            "Gt" | "Lt" => {}
            _ => requirement.at("operator").invalid("not a valid selector operator"),
        }
        key.faults(names::qualified_name(key.text()));
        if binding {
            for value in values.items() {
                value.faults(names::label_value(value.text()));
            }
        }
    }
    for requirement in term.at("matchFields").items() {
        let (key, values) = (requirement.at("key"), requirement.at("values"));
        match requirement.at("operator").text() {
            "In" | "NotIn" if values.len() != 1 => values.required(
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            ),
            "In" | "NotIn" => {}
            _ => requirement.at("operator").invalid("not a valid selector operator"),
        }
        if key.text() == "metadata.name" {
            for value in values.items() {
                value.faults(names::name_is_dns_subdomain(value.text(), false));
            }
        } else {
            key.invalid("not a valid field selector key");
        }
    }
}

fn pod_term(term: &Field<'_, '_>) {
    term.at("labelSelector").label_selector();
    term.at("namespaceSelector").label_selector();
    for namespace in term.at("namespaces").texts() {
        for fault in names::name_is_dns_label(namespace, false) {
            term.spelled("namespace").invalid_as(namespace, fault);
        }
    }
    label_keys(term, true);
    let key = term.at("topologyKey");
    if key.is_empty() {
        key.required("can not be empty");
    }
    key.faults(names::qualified_name(key.text()));
}

/// Keys whose values are taken from the pod itself.
fn label_keys(term: &Field<'_, '_>, mismatching: bool) {
    let selector = term.at("labelSelector");
    let matching = term.at("matchLabelKeys");
    let others = mismatching.then(|| term.at("mismatchLabelKeys"));
    for keys in std::iter::once(&matching).chain(&others) {
        if keys.is_empty() {
            continue;
        }
        if !selector.exists() {
            keys.forbidden("must not be specified when labelSelector is not set");
            continue;
        }
        for key in keys.items() {
            key.faults(names::qualified_name(key.text()));
        }
    }
    let mut selected: BTreeSet<&str> = selector
        .at("matchLabels")
        .map()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .collect();
    for expression in selector.at("matchExpressions").items() {
        let key = expression.at("key").text();
        if selected.contains(key)
            && let Some(i) = matching.texts().position(|other| other == key)
        {
            let path = term.path().index(i);
            term.push(Error::invalid(
                &path,
                key,
                "exists in both matchLabelKeys and labelSelector",
            ));
        }
        selected.insert(key);
    }
    if let Some(others) = others {
        for key in matching.items() {
            if others.texts().any(|other| other == key.text()) {
                key.invalid("exists in both matchLabelKeys and mismatchLabelKeys");
            }
        }
    }
}

pub fn spread(constraints: &Field<'_, '_>) {
    let same = |a: &Field<'_, '_>, b: &Field<'_, '_>| {
        ["topologyKey", "whenUnsatisfiable"]
            .iter()
            .all(|field| a.at(field).text() == b.at(field).text())
    };
    for (i, constraint) in constraints.items().enumerate() {
        let (key, unsatisfiable) =
            (constraint.at("topologyKey"), constraint.at("whenUnsatisfiable"));
        constraint.at("maxSkew").positive();
        key.require_for("can not be empty");
        unsatisfiable.one_of(&["DoNotSchedule", "ScheduleAnyway"]);
        if constraints.items().skip(i + 1).any(|other| same(&constraint, &other)) {
            let place = constraint.spelled("{topologyKey, whenUnsatisfiable}");
            let pair = format!("{{{}, {}}}", key.text(), unsatisfiable.text());
            place.push(Error::duplicate(place.path(), pair));
        }
        let domains = constraint.at("minDomains");
        if domains.exists() {
            domains.positive();
            if unsatisfiable.text() != "DoNotSchedule" {
                domains.invalid(format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    unsatisfiable.text()
                ));
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            constraint.at(policy).one_of_if_given(&["Honor", "Ignore"]);
        }
        label_keys(&constraint, false);
        constraint.at("labelSelector").label_selector();
    }
}

/// What is wrong with tolerations that are in no pod; paths begin with `tolerations`.
pub fn toleration_faults(list: &Value) -> ErrorList {
    let ty = builtin().named("core/v1.PodSpec").expect("a pod's spec is in the facts");
    collect(&json!({ "tolerations": list }), ty, |spec| tolerations(&spec.at("tolerations")))
}

pub fn tolerations(tolerations: &Field<'_, '_>) {
    for toleration in tolerations.items() {
        let (key, operator, value, effect) = (
            toleration.at("key"),
            toleration.at("operator"),
            toleration.at("value"),
            toleration.at("effect"),
        );
        key.named_if_given(names::qualified_name);
        if key.is_empty() && operator.text() != "Exists" {
            operator.invalid(
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if toleration.at("tolerationSeconds").exists() && effect.text() != "NoExecute" {
            effect.invalid("effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator.text() {
            "Equal" | "" => {
                let faults = names::label_value(value.text());
                if !faults.is_empty() {
                    operator.invalid_as(value.text(), faults.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                operator
                    .invalid_as(value.text(), "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" => operator.not_supported(&["Equal", "Exists", "Lt", "Gt"]),
            _ => operator.not_supported(&["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            effect.one_of(EFFECTS);
        }
    }
}

/// Terms of a storage class: which topologies its volumes can be in.
pub fn topology_terms(terms: &Field<'_, '_>) {
    let mut seen = Vec::new();
    for term in terms.items() {
        let expressions = term.at("matchLabelExpressions");
        for (i, expression) in expressions.items().enumerate() {
            let (key, values) = (expression.at("key"), expression.at("values"));
            values.require();
            values.unique();
            key.faults(names::qualified_name(key.text()));
            if expressions.items().take(i).any(|other| other.at("key").text() == key.text()) {
                key.duplicate();
            }
        }
        if term.at("matchLabelExpressions").is_empty() || seen.contains(&term.value()) {
            let place = term.at("matchLabelExpressions");
            place.push(Error::duplicate(place.path(), ""));
        }
        seen.push(term.value());
    }
}
