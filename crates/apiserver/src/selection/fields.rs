//! The fields that objects of each kind can be selected by, beside their name and namespace.
use api::kinds::Resource;
use serde_json::Value;

/// A label of a field selector and where it is in the stored object.
#[derive(Debug, Clone, Copy)]
pub struct Selectable {
    pub label: &'static str,
    path: &'static str,
    /// What an absent field is selected as.
    absent: &'static str,
}

const fn field(label: &'static str) -> Selectable {
    Selectable { label, path: label, absent: "" }
}

const fn renamed(label: &'static str, path: &'static str) -> Selectable {
    Selectable { label, path, absent: "" }
}

impl Selectable {
    const fn or(self, absent: &'static str) -> Selectable {
        Selectable { absent, ..self }
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
            field("spec.nodeName"),
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

/// The field that a label means, or what to tell a client that knows better.
pub fn find(resource: &Resource, label: &str) -> Result<&'static Selectable, String> {
    let row =
        ROWS.iter().find(|(group, kind, _)| *kind == resource.kind && *group == resource.group);
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
