//! Which objects a list or watch is about: namespace, labels, fields.
mod fields;

use crate::request::Query;
use crate::stored;
use api::kinds::Resource;
use api::selector::{field, label};
use api::status::Status;
use fields::Selectable;
use serde_json::Value;
use store::KeyValue;

/// The compiled selectors of a request.
#[derive(Debug)]
pub struct Selection {
    labels: label::Selector,
    fields: field::Selector,
    /// What the field selector looks at beside the metadata.
    wanted: Vec<&'static Selectable>,
}

impl Selection {
    pub fn parse(query: &Query, resource: &Resource) -> Result<Selection, Status> {
        let labels = label::Selector::parse(query.get("labelSelector"))
            .map_err(|e| Status::bad_request(format!("unable to parse requirement: {e}")))?;
        let fields = field::Selector::parse(query.get("fieldSelector"))
            .map_err(|e| Status::bad_request(e.to_string()))?;
        let mut wanted = Vec::new();
        for term in fields.terms() {
            if !is_metadata(&term.field) {
                wanted.push(fields::find(resource, &term.field).map_err(Status::bad_request)?);
            }
        }
        Ok(Selection { labels, fields, wanted })
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
        let fields = field::Selector::parse(&fields).unwrap_or_else(|_| self.fields.clone());
        Selection { fields, ..self }
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
        // Only a selector that looks deeper makes the object be decoded.
        let object = match self.wanted.is_empty() {
            true => Value::Null,
            false => api::depth::read(&stored.value).unwrap_or_default(),
        };
        let field = |name: &str| match name {
            "metadata.name" => Some(meta.name.clone()),
            "metadata.namespace" => Some(meta.namespace.clone()),
            label => self.wanted.iter().find(|field| field.label == label).map(|f| f.text(&object)),
        };
        by_label() && self.fields.matches(field)
    }
}

fn is_metadata(label: &str) -> bool {
    matches!(label, "metadata.name" | "metadata.namespace")
}
