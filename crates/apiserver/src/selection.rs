//! Which objects a list or watch is about: namespace, labels, fields.
use crate::request::Query;
use crate::stored;
use api::kinds::Resource;
use api::selector::{field, label};
use api::status::Status;
use serde_json::Value;
use store::KeyValue;

/// The compiled selectors of a request.
#[derive(Debug)]
pub struct Selection {
    labels: label::Selector,
    fields: field::Selector,
}

/// Fields that can be selected by, beside the name and namespace that every kind has.
const FIELDS: &[(&str, &[&str])] = &[
    (
        "Pod",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
    ),
    (
        "Event",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
    ("Node", &["spec.unschedulable"]),
    ("Namespace", &["status.phase"]),
    ("Secret", &["type"]),
    ("Service", &["spec.clusterIP", "spec.type"]),
    ("ReplicaSet", &["status.replicas"]),
    ("ReplicationController", &["status.replicas"]),
    ("Job", &["status.successful"]),
    ("CertificateSigningRequest", &["spec.signerName"]),
];

impl Selection {
    pub fn parse(query: &Query, resource: &Resource) -> Result<Selection, Status> {
        let labels = label::Selector::parse(query.get("labelSelector"))
            .map_err(|e| Status::bad_request(format!("unable to parse requirement: {e}")))?;
        let fields = field::Selector::parse(query.get("fieldSelector"))
            .map_err(|e| Status::bad_request(e.to_string()))?;
        let known =
            FIELDS.iter().find(|(kind, _)| *kind == resource.kind).map_or(&[][..], |(_, f)| *f);
        for term in fields.terms() {
            let common = matches!(&*term.field, "metadata.name" | "metadata.namespace");
            if !common && !known.contains(&&*term.field) {
                let text = format!("field label not supported: {}", term.field);
                return Err(Status::bad_request(text));
            }
        }
        Ok(Selection { labels, fields })
    }

    /// The same, of one object if it has a name.
    pub fn named(self, name: &str) -> Selection {
        if name.is_empty() {
            return self;
        }
        let term = format!("metadata.name={}", field::escape_value(name));
        let fields = match (self.fields.is_everything(), self.fields.to_string()) {
            (true, _) => term,
            (false, others) => format!("{others},{term}"),
        };
        let fields = field::Selector::parse(&fields).unwrap_or(self.fields);
        Selection { labels: self.labels, fields }
    }

    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    pub fn matches(&self, stored: &KeyValue) -> bool {
        if self.is_everything() {
            return true;
        }
        let meta = stored::meta(stored);
        let by_label = || {
            self.labels
                .matches(&label::Lookup::new(|key: &str| meta.labels.get(key).map(String::as_str)))
        };
        let names_only = self.fields.terms().iter().all(|t| t.field.starts_with("metadata."));
        // Only a selector that looks deeper makes the object be decoded.
        let object = if names_only {
            Value::Null
        } else {
            serde_json::from_slice(&stored.value).unwrap_or_default()
        };
        let field = |name: &str| match name {
            "metadata.name" => Some(meta.name.clone()),
            "metadata.namespace" => Some(meta.namespace.clone()),
            path => Some(text_at(&object, path)),
        };
        by_label() && self.fields.matches(field)
    }
}

/// A field as its selector sees it: absent is empty.
fn text_at(object: &Value, path: &str) -> String {
    let value = path.split('.').try_fold(object, |value, name| value.get(name));
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => default_text(path).to_owned(),
        Some(other) => other.to_string(),
    }
}

/// What an absent field is selected as, where that is not nothing.
fn default_text(path: &str) -> &'static str {
    match path {
        "spec.unschedulable" | "spec.hostNetwork" => "false",
        "status.replicas" => "0",
        _ => "",
    }
}
