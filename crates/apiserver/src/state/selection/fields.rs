//! The fields that objects of each kind can be selected by, beside their name and namespace.
use api::kinds::Resource;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::KeyValue;
use store::cache::{Indexer, Term};

/// A label of a field selector and where it is in the stored object.
#[derive(Debug, Clone, Copy)]
pub struct Selectable {
    pub label: &'static str,
    path: &'static str,
    /// What an absent field is selected as.
    absent: &'static str,
    /// So many select by it that the cache has the objects at hand by its values.
    indexed: bool,
}

const fn field(label: &'static str) -> Selectable {
    Selectable { label, path: label, absent: "", indexed: false }
}

const fn renamed(label: &'static str, path: &'static str) -> Selectable {
    Selectable { label, path, absent: "", indexed: false }
}

impl Selectable {
    const fn or(self, absent: &'static str) -> Selectable {
        Selectable { absent, ..self }
    }

    const fn indexed(self) -> Selectable {
        Selectable { indexed: true, ..self }
    }

    /// What the cache knows an object by that has this value.
    pub fn term(&self, value: &str) -> Option<Term> {
        self.indexed.then(|| Term::new(self.path, value))
    }

    /// The same of an object; nothing if it cannot be read.
    fn term_of(&self, stored: &KeyValue) -> Option<Term> {
        let mut part: &[u8] = &stored.value;
        for name in self.path.split('.') {
            let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(part).ok()?;
            match fields.get(name) {
                Some(found) => part = found.get().as_bytes(),
                None => return Some(Term::new(self.path, self.absent)),
            }
        }
        Some(Term::new(self.path, serde_json::from_slice::<String>(part).ok()?))
    }

    pub fn text(&self, object: &Value) -> String {
        match self.path.split('.').try_fold(object, |value, name| value.get(name)) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None if self.path == "source.component" => {
                let reporter = object["reportingComponent"].as_str();
                reporter.unwrap_or_default().to_owned()
            }
            Some(Value::Null) | None => self.absent.to_owned(),
            Some(other) => other.to_string(),
        }
    }
}

/// Group, kind, fields.
const ROWS: &[(&str, &str, &[Selectable])] = &[
    (
        "",
        "Pod",
        &[
            // Each kubelet watches the pods of its node: 5,000 of them must not look at every pod.
            field("spec.nodeName").indexed(),
            renamed("spec.host", "spec.nodeName"),
            field("spec.restartPolicy"),
            field("spec.schedulerName"),
            field("spec.serviceAccountName"),
            field("spec.hostNetwork").or("false"),
            field("status.phase"),
            field("status.podIP"),
            renamed("status.podIPs", "status.podIP"),
            field("status.nominatedNodeName"),
        ],
    ),
    (
        "",
        "Event",
        &[
            field("involvedObject.kind"),
            field("involvedObject.namespace"),
            field("involvedObject.name"),
            field("involvedObject.uid"),
            field("involvedObject.apiVersion"),
            field("involvedObject.resourceVersion"),
            field("involvedObject.fieldPath"),
            field("reason"),
            field("reportingComponent"),
            renamed("source", "source.component"),
            field("type"),
        ],
    ),
    // Stored in the older form, selected by the newer one's words.
    (
        "events.k8s.io",
        "Event",
        &[
            renamed("regarding.kind", "involvedObject.kind"),
            renamed("regarding.namespace", "involvedObject.namespace"),
            renamed("regarding.name", "involvedObject.name"),
            renamed("regarding.uid", "involvedObject.uid"),
            renamed("regarding.apiVersion", "involvedObject.apiVersion"),
            renamed("regarding.resourceVersion", "involvedObject.resourceVersion"),
            renamed("regarding.fieldPath", "involvedObject.fieldPath"),
            field("reason"),
            renamed("reportingController", "reportingComponent"),
            field("type"),
        ],
    ),
    ("", "Node", &[field("spec.unschedulable").or("false")]),
    ("", "Namespace", &[field("status.phase")]),
    ("", "Secret", &[field("type")]),
    ("", "Service", &[field("spec.clusterIP"), field("spec.type")]),
    ("", "ReplicationController", &[field("status.replicas").or("0")]),
    ("batch", "Job", &[renamed("status.successful", "status.succeeded").or("0")]),
    ("certificates.k8s.io", "CertificateSigningRequest", &[field("spec.signerName")]),
    ("certificates.k8s.io", "ClusterTrustBundle", &[field("spec.signerName")]),
    (
        "certificates.k8s.io",
        "PodCertificateRequest",
        &[field("spec.signerName"), field("spec.podName"), field("spec.nodeName")],
    ),
    (
        "resource.k8s.io",
        "ResourceSlice",
        &[field("spec.nodeName"), field("spec.driver"), field("spec.pool.name")],
    ),
];

/// What the cache of a resource's objects knows them by.
pub fn indexer(resource: &Resource) -> Option<Indexer> {
    let rows = ROWS.iter().filter(|(group, kind, _)| resource.is(group, kind));
    let indexed: Vec<Selectable> =
        rows.flat_map(|(_, _, fields)| *fields).filter(|field| field.indexed).copied().collect();
    if indexed.is_empty() {
        return None;
    }
    Some(Arc::new(move |stored: &KeyValue| {
        indexed.iter().filter_map(|field| field.term_of(stored)).collect()
    }))
}

/// The field that a label means, or what to tell a client that knows better.
pub fn find(resource: &Resource, label: &str) -> Result<&'static Selectable, String> {
    let row = ROWS.iter().find(|(group, kind, _)| resource.is(group, kind));
    let Some((_, kind, fields)) = row else {
        return Err(format!(
            "{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ));
    };
    fields.iter().find(|field| field.label == label).ok_or_else(|| match *kind {
        "Job" => format!("field label {label:?} not supported for Job"),
        "ResourceSlice" => {
            format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}")
        }
        _ => format!("field label not supported: {label}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::kinds::{RESOURCES, find_kind};
    use serde_json::json;

    #[test]
    fn pods_are_at_hand_by_their_node() {
        let index = indexer(find_kind("v1", "Pod").unwrap()).expect("an index");
        let terms = |pod: Value| {
            let value = pod.to_string().into_bytes().into();
            index(&KeyValue {
                key: "k".into(),
                value,
                create_revision: 1,
                mod_revision: 1,
                version: 1,
                lease: 0,
                slot: Default::default(),
            })
        };
        let on = |node: &str| vec![Term::new("spec.nodeName", node)];
        assert_eq!(terms(json!({ "metadata": {}, "spec": { "nodeName": "a\"b" } })), on("a\"b"));
        assert_eq!(terms(json!({ "metadata": {}, "spec": {} })), on(""));
        assert_eq!(terms(json!({ "metadata": {} })), on(""));
        assert_eq!(terms(json!(["no pod"])), []);
        assert!(indexer(find_kind("v1", "ConfigMap").unwrap()).is_none());
    }

    #[test]
    fn every_row_is_of_a_kind_and_its_paths_are_in_the_schema() {
        for (group, kind, fields) in ROWS {
            let row = RESOURCES.iter().find(|r| r.kind == *kind && r.group == *group);
            let row = row.unwrap_or_else(|| panic!("{kind} is no kind"));
            let stored = find_kind(&row.storage_version(), kind).expect("the stored version");
            for field in *fields {
                let end = field.path.split('.').try_fold(stored.ty(), |ty, name| ty.child(name));
                assert!(end.is_some(), "{kind}: {}", field.path);
            }
        }
    }

    #[test]
    fn what_is_absent_has_a_text_too() {
        let pods = find_kind("v1", "Pod").expect("pods");
        let text = |label, object| find(pods, label).expect("a field").text(&object);
        assert_eq!(text("spec.hostNetwork", json!({})), "false");
        assert_eq!(text("spec.host", json!({"spec": {"nodeName": "n"}})), "n");
        assert!(find(pods, "spec.nothing").is_err());
    }
}
