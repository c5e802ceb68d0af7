//! A kubelet's own node: what it may say there.
use super::{Attributes, Operation, same, text};
use api::status::Status;
use serde_json::Value;
use std::collections::BTreeSet;

/// Labels of Kubernetes' own that kubelets set.
const LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// All that begins with these is a kubelet's too.
const PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// Nobody trusts a node with these.
const RESTRICTED: &str = "node-restriction.kubernetes.io";

pub fn check(attributes: &Attributes<'_>, node: &str) -> Result<(), Status> {
    let (new, name) = (attributes.new_object(), attributes.own_name());
    if name != node {
        let text = format!("node {node:?} is not allowed to modify node {name:?}");
        return Err(attributes.forbidden(text));
    }
    let cause = match (attributes.operation, attributes.old) {
        (Operation::Create, _) => created(new),
        (Operation::Update, Some(old)) => updated(new, old),
        _ => None,
    };
    match cause {
        None => Ok(()),
        Some((true, cause)) => {
            Err(attributes.forbidden(format!("node {node:?} is not allowed to {cause}")))
        }
        Some((false, cause)) => Err(attributes.forbidden(cause)),
    }
}

/// What is wrong, and whether the refusal begins with who did it.
type Fault = Option<(bool, String)>;

fn created(node: &Value) -> Fault {
    if node["spec"].get("configSource").is_some() {
        return Some((true, "create pods with a non-nil configSource".into()));
    }
    let labels = forbidden_labels(&node["metadata"]["labels"], &Value::Null);
    (!labels.is_empty()).then(|| (true, format!("set the following labels: {}", labels.join(", "))))
}

fn updated(new: &Value, old: &Value) -> Fault {
    let source = new["spec"].get("configSource");
    if source.is_some() && source != old["spec"].get("configSource") {
        return Some((true, "update configSource to a new non-nil configSource".into()));
    }
    if !same(&new["spec"]["taints"], &old["spec"]["taints"]) {
        return Some((true, "modify taints".into()));
    }
    if !same(&new["metadata"]["ownerReferences"], &old["metadata"]["ownerReferences"]) {
        return Some((true, "modify ownerReferences".into()));
    }
    let labels = forbidden_labels(&new["metadata"]["labels"], &old["metadata"]["labels"]);
    let cause = || format!("is not allowed to modify labels: {}", labels.join(", "));
    (!labels.is_empty()).then(|| (false, cause()))
}

/// The labels that differ and are not a kubelet's to set.
fn forbidden_labels<'v>(new: &'v Value, old: &'v Value) -> Vec<&'v str> {
    let keys = |labels: &'v Value| labels.as_object().into_iter().flat_map(|labels| labels.keys());
    let all: BTreeSet<&str> = keys(new).chain(keys(old)).map(String::as_str).collect();
    let changed = all.into_iter().filter(|key| {
        text(&new[*key]) != text(&old[*key]) || new.get(*key).is_none() || old.get(*key).is_none()
    });
    changed.filter(|key| is_forbidden(key)).collect()
}

fn is_forbidden(label: &str) -> bool {
    let prefix = label.split_once('/').map_or("", |(prefix, _)| prefix);
    let within = |domain: &str| {
        let rest = prefix.strip_suffix(domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let of_kubelet = LABELS.contains(&label) || PREFIXES.into_iter().any(within);
    within(RESTRICTED) || (within("kubernetes.io") || within("k8s.io")) && !of_kubelet
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kubelets_set_their_own_labels_only() {
        for label in ["kubernetes.io/hostname", "a.node.kubernetes.io/x", "mine", "example.com/x"] {
            assert!(!is_forbidden(label), "{label}");
        }
        for label in [
            "node-restriction.kubernetes.io/x",
            "a.node-restriction.kubernetes.io/x",
            "node-role.kubernetes.io/control-plane",
            "k8s.io/x",
        ] {
            assert!(is_forbidden(label), "{label}");
        }
    }

    #[test]
    fn changes_are_judged() {
        let node = |labels: Value, taints: Value| json!({"metadata": {"labels": labels}, "spec": {"taints": taints}});
        let plain = node(json!({"k8s.io/a": "1"}), json!([]));
        assert_eq!(updated(&plain, &plain), None);
        assert_eq!(
            updated(&node(json!({}), json!([])), &plain).unwrap().1,
            "is not allowed to modify labels: k8s.io/a"
        );
        let tainted = node(json!({"k8s.io/a": "1"}), json!([{"key": "x"}]));
        assert_eq!(updated(&tainted, &plain).unwrap().1, "modify taints");
        assert_eq!(created(&plain).unwrap().1, "set the following labels: k8s.io/a");
    }
}
