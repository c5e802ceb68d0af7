//! Names that change on the way, and whatever refers to them.
use super::Item;
use api::quote::go_json;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Puts something before and behind names; references within the same objects follow.
pub fn rename(items: &mut [Item], prefix: &str, suffix: &str) {
    if prefix.is_empty() && suffix.is_empty() {
        return;
    }
    let mut renamed = Vec::new();
    for item in items.iter_mut() {
        let kind = item.object["kind"].as_str().unwrap_or_default().to_owned();
        // These are known by their names to everybody.
        if matches!(kind.as_str(), "CustomResourceDefinition" | "APIService" | "Namespace") {
            continue;
        }
        let old = item.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let new = format!("{prefix}{old}{suffix}");
        item.object["metadata"]["name"] = new.as_str().into();
        renamed.push((kind, old, new));
    }
    follow(items, &renamed);
}

/// Names of generated objects get a hash of what is in them, so that pods roll when it changes.
pub fn hashed(mut items: Vec<Item>) -> Vec<Item> {
    let mut renamed = Vec::new();
    for item in items.iter_mut().filter(|item| item.hashed) {
        let old = item.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let new = format!("{old}-{}", hash(&item.object));
        item.object["metadata"]["name"] = new.as_str().into();
        renamed.push((item.object["kind"].as_str().unwrap_or_default().to_owned(), old, new));
    }
    follow(&mut items, &renamed);
    items
}

/// kustomize's hash: of the content alone, in ten letters that spell nothing
/// (`kustomize/api/internal/hasher`).
fn hash(object: &Value) -> String {
    let field = |name: &str| match &object[name] {
        Value::Object(fields) => json!(fields),
        // An empty text, as upstream has it.
        _ => json!(""),
    };
    let name = json!("");
    let text = match object["kind"].as_str() {
        Some("Secret") => {
            let kind = object["type"].as_str().unwrap_or_default();
            go_json(&json!({ "data": field("data"), "kind": "Secret", "name": name, "type": kind }))
        }
        _ => {
            let mut map = json!({ "data": field("data"), "kind": "ConfigMap", "name": name });
            if object["binaryData"].is_object() {
                map["binaryData"] = field("binaryData");
            }
            go_json(&map)
        }
    };
    let digest = Sha256::digest(text.unwrap_or_default());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let letters = hex.chars().take(10).map(|c| match c {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        c => c,
    });
    letters.collect()
}

/// Where names of other objects stand: a field's name, and the kind that it leads to.
const REFERENCES: [(&str, &str); 14] = [
    ("configMapRef", "ConfigMap"),
    ("configMapKeyRef", "ConfigMap"),
    ("configMap", "ConfigMap"),
    ("secretRef", "Secret"),
    ("secretKeyRef", "Secret"),
    ("secret", "Secret"),
    ("imagePullSecrets", "Secret"),
    ("persistentVolumeClaim", "PersistentVolumeClaim"),
    ("serviceAccountName", "ServiceAccount"),
    ("serviceAccount", "ServiceAccount"),
    ("serviceName", "Service"),
    ("service", "Service"),
    ("priorityClassName", "PriorityClass"),
    ("storageClassName", "StorageClass"),
];

type Renamed = (String, String, String);

fn follow(items: &mut [Item], renamed: &[Renamed]) {
    for item in items {
        walk(&mut item.object, "", renamed);
    }
}

fn new_name<'r>(kind: &str, old: &str, renamed: &'r [Renamed]) -> Option<&'r str> {
    let found = renamed.iter().find(|(other, name, _)| other == kind && name == old);
    found.map(|(.., new)| new.as_str())
}

fn walk(value: &mut Value, field: &str, renamed: &[Renamed]) {
    let kind = REFERENCES.iter().find(|(name, _)| *name == field).map(|(_, kind)| *kind);
    match value {
        Value::String(name) => {
            if let Some(new) = kind.and_then(|kind| new_name(kind, name, renamed)) {
                *name = new.to_owned();
            }
        }
        Value::Object(fields) => {
            if let Some(kind) = kind {
                for inner in ["name", "secretName", "claimName"] {
                    let new = fields.get(inner).and_then(Value::as_str);
                    let new = new.and_then(|name| new_name(kind, name, renamed)).map(str::to_owned);
                    if let Some(new) = new {
                        fields.insert(inner.to_owned(), new.into());
                    }
                }
            }
            // A reference that says which kind it leads to: roleRef, scaleTargetRef, subjects.
            let said = fields.get("kind").and_then(Value::as_str).map(str::to_owned);
            if let (true, Some(said)) =
                (matches!(field, "roleRef" | "scaleTargetRef" | "subjects" | "targetRef"), said)
            {
                let name = fields.get("name").and_then(Value::as_str);
                let new = name.and_then(|name| new_name(&said, name, renamed)).map(str::to_owned);
                if let Some(new) = new {
                    fields.insert("name".to_owned(), new.into());
                }
            }
            for (name, inner) in fields.iter_mut() {
                if name != "metadata" || field == "template" {
                    walk(inner, name, renamed);
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|inner| walk(inner, field, renamed)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_kustomize_s() {
        // From the tests of kustomize's hasher.
        let empty = json!({ "apiVersion": "v1", "kind": "ConfigMap" });
        assert_eq!(hash(&empty), "6ct58987ht");
        let one = json!({ "kind": "ConfigMap", "data": { "one": "" } });
        assert_eq!(hash(&one), "9g67k2htb6");
        let secret = json!({ "kind": "Secret", "type": "my-type", "data": { "one": "" } });
        assert_eq!(hash(&secret), "74bd68bm66");
    }

    #[test]
    fn references_follow_names() {
        let item = |object: Value| {
            let original = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            Item { object, original, hashed: false }
        };
        let mut items = vec![
            item(json!({ "kind": "Secret", "metadata": { "name": "s" } })),
            item(json!({ "kind": "Role", "metadata": { "name": "r" } })),
            item(
                json!({ "kind": "RoleBinding", "metadata": { "name": "b" }, "roleRef": { "kind": "Role", "name": "r" } }),
            ),
            item(json!({ "kind": "Pod", "metadata": { "name": "p" }, "spec": {
                "volumes": [{ "secret": { "secretName": "s" } }],
                "containers": [{ "name": "s", "env": [{ "valueFrom": { "secretKeyRef": { "name": "s" } } }] }] } })),
        ];
        rename(&mut items, "a-", "");
        let pod = &items[3].object;
        assert_eq!(pod["spec"]["volumes"][0]["secret"]["secretName"], "a-s");
        assert_eq!(pod["spec"]["containers"][0]["name"], "s");
        assert_eq!(
            pod["spec"]["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["name"],
            "a-s"
        );
        assert_eq!(items[2].object["roleRef"]["name"], "a-r");
    }
}
