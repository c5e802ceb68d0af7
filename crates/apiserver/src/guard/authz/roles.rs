//! The roles and bindings that an empty cluster begins with, read from `roles.txt`.
//!
//! ```text
//!  role NAME [in NAMESPACE] [part-of=ROLE] [gathers=ROLE]
//!    VERBS GROUPS RESOURCES [named NAMES]
//!    VERBS path PATHS
//!  bind NAME [in NAMESPACE] to KIND:ROLE for SUBJECTS
//! ```
//! Lists are separated by commas, subjects by spaces. `gathers` makes a role the sum of those that
//! are `part-of` it. Without a namespace it is a ClusterRole or ClusterRoleBinding.
use serde_json::{Value, json};

const TABLE: &str = include_str!("roles.txt");
const GROUP: &str = "rbac.authorization.k8s.io";

/// Every object of the table, in its order.
pub fn objects() -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words[0], line.starts_with(' ')) {
            ("role", false) => objects.push(role(&words[1..])),
            ("bind", false) => objects.push(binding(&words[1..])),
            _ => {
                let rules = objects.last_mut().and_then(|role| role["rules"].as_array_mut());
                rules.expect("a rule follows its role").push(rule(&words));
            }
        }
    }
    objects
}

fn object(kind: &str, words: &[&str]) -> Value {
    let (kind, namespace) = match words {
        [_, "in", namespace, ..] => (kind.to_owned(), Some(*namespace)),
        _ => (format!("Cluster{kind}"), None),
    };
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {
            "name": words[0],
            "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" },
            "annotations": { format!("{GROUP}/autoupdate"): "true" },
        },
    });
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

fn role(words: &[&str]) -> Value {
    let mut role = object("Role", words);
    role["rules"] = json!([]);
    for word in words {
        if let Some(whole) = word.strip_prefix("part-of=") {
            role["metadata"]["labels"][format!("{GROUP}/aggregate-to-{whole}")] = "true".into();
        }
        if let Some(whole) = word.strip_prefix("gathers=") {
            let labels = json!({ format!("{GROUP}/aggregate-to-{whole}"): "true" });
            role["aggregationRule"] =
                json!({ "clusterRoleSelectors": [{ "matchLabels": labels }] });
        }
    }
    role
}

fn rule(words: &[&str]) -> Value {
    match words {
        [verbs, "path", paths] => json!({ "verbs": list(verbs), "nonResourceURLs": list(paths) }),
        [verbs, groups, resources, rest @ ..] => {
            let groups: Vec<&str> =
                list(groups).into_iter().map(|g| if g == "core" { "" } else { g }).collect();
            let mut rule =
                json!({ "verbs": list(verbs), "apiGroups": groups, "resources": list(resources) });
            if let ["named", names] = rest {
                rule["resourceNames"] = json!(list(names));
            }
            rule
        }
        _ => unreachable!("every line of the table is read by a test: {words:?}"),
    }
}

fn list(text: &str) -> Vec<&str> {
    text.split(',').collect()
}

fn binding(words: &[&str]) -> Value {
    let mut binding = object("RoleBinding", words);
    let after = |word: &str| words.iter().position(|w| *w == word).map_or(words.len(), |i| i + 1);
    let (kind, name) = words[after("to")].split_once(':').expect("a role has a kind");
    binding["roleRef"] = json!({ "apiGroup": GROUP, "kind": kind, "name": name });
    let subjects: Vec<Value> = words[after("for")..].iter().map(|word| subject(word)).collect();
    if !subjects.is_empty() {
        binding["subjects"] = json!(subjects);
    }
    binding
}

fn subject(word: &str) -> Value {
    let (kind, name) = word.split_once(':').expect("a subject has a kind");
    match (kind, name.split_once('/')) {
        ("serviceaccount", Some((namespace, name))) => {
            json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name })
        }
        ("group", _) => json!({ "kind": "Group", "apiGroup": GROUP, "name": name }),
        _ => json!({ "kind": "User", "apiGroup": GROUP, "name": name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_table_can_be_read() {
        let all = objects();
        let count = |kind: &str| all.iter().filter(|object| object["kind"] == kind).count();
        assert!(count("ClusterRole") > 60 && count("ClusterRoleBinding") > 40);
        assert_eq!((count("Role"), count("RoleBinding")), (7, 7));
        let find = |name: &str| all.iter().find(|o| o["metadata"]["name"] == name).expect("a row");
        assert_eq!(find("cluster-admin")["rules"][1]["nonResourceURLs"], json!(["*"]));
        let edit = &find("edit")["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"];
        assert_eq!(edit["rbac.authorization.k8s.io/aggregate-to-edit"], "true");
        let kcm = find("system:kube-controller-manager");
        assert_eq!(kcm["rules"][2]["resourceNames"], json!(["kube-controller-manager"]));
    }
}
