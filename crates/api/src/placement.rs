//! Where a pod may be: node selectors, required node affinity, taints and who tolerates them.
use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};
use std::collections::BTreeMap;

type Labels = BTreeMap<String, String>;

/// Whether a pod's node selector and required affinity let it be on a node.
pub fn is_selected(spec: &PodSpec, labels: &Labels, node_name: &str) -> bool {
    let mut selected = spec.node_selector.iter().flatten();
    if !selected.all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_ref().and_then(|all| all.node_affinity.as_ref());
    let required =
        affinity.and_then(|all| all.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|required| {
        required.node_selector_terms.iter().any(|one| term(one, labels, node_name))
    })
}

/// A term that says nothing matches nothing.
fn term(term: &NodeSelectorTerm, labels: &Labels, node_name: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let by_label =
        |one: &NodeSelectorRequirement| requirement(one, labels.get(&one.key).map(String::as_str));
    let by_field = |one: &NodeSelectorRequirement| {
        requirement(one, (one.key == "metadata.name").then_some(node_name))
    };
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(by_label)
        && fields.iter().all(by_field)
}

pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    let is_about =
        (key.is_empty() || key == taint.key) && (effect.is_empty() || effect == taint.effect);
    is_about
        && match toleration.operator.as_deref() {
            Some("Exists") => true,
            None | Some("" | "Equal") => text(&toleration.value) == text(&taint.value),
            Some(_) => false,
        }
}

fn requirement(one: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = one.values.as_deref().unwrap_or_default();
    let among = || value.is_some_and(|value| values.iter().any(|one| one == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match one.operator.as_str() {
        "In" => among(),
        "NotIn" => !among(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(own, bound)| own > bound),
        "Lt" => numbers().is_some_and(|(own, bound)| own < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_term_is_all_of_its_requirements() {
        let labels: Labels =
            [("zone", "a"), ("cores", "8")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (key, operator, values, expected) in [
            ("zone", "In", json!(["a", "b"]), true),
            ("zone", "In", json!(["b"]), false),
            ("zone", "NotIn", json!(["b"]), true),
            ("none", "NotIn", json!(["b"]), true),
            ("zone", "Exists", json!([]), true),
            ("none", "Exists", json!([]), false),
            ("none", "DoesNotExist", json!([]), true),
            ("cores", "Gt", json!(["4"]), true),
            ("cores", "Lt", json!(["4"]), false),
            ("zone", "Gt", json!(["4"]), false),
        ] {
            let requirement = json!({ "key": key, "operator": operator, "values": values });
            let terms = json!([{ "matchExpressions": [requirement] }]);
            let spec = json!({ "containers": [], "affinity": { "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } });
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(is_selected(&spec, &labels, "n1"), expected, "{key} {operator} {values}");
        }
        let empty = NodeSelectorTerm::default();
        assert!(!term(&empty, &labels, "n1"));
        let named = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] });
        assert!(term(&serde_json::from_value(named).unwrap(), &labels, "n1"));
    }
}
