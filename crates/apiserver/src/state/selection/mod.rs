//! Which objects a list or watch is about: namespace, labels, fields.
mod fields;

pub use fields::indexer;

use crate::call::Selectors;
use crate::state::keys::range;
use crate::state::stored;
use api::custom;
use api::kinds::{Resource, ResourceRef};
use api::names::path_segment_name;
use api::selector::{field, label};
use api::status::Status;
use fields::Selectable;
use serde_json::Value;
use store::{KeyRange, KeyValue};

/// The compiled selectors of a request.
#[derive(Debug)]
pub struct Selection {
    labels: label::Selector,
    fields: field::Selector,
    /// What the field selector looks at beside the metadata.
    wanted: Vec<Wanted>,
    /// What decodes an object whose version or defaults a selector may see.
    custom: Option<ResourceRef>,
}

impl Selection {
    pub fn new(selectors: &Selectors, resource: &ResourceRef) -> Result<Selection, Status> {
        let Selectors { labels, fields } = selectors.clone();
        let mut wanted = Vec::new();
        for term in fields.terms() {
            if !is_metadata(&term.field) {
                wanted.push(Wanted::find(resource, &term.field)?);
            }
        }
        let custom = resource.definition.is_some().then(|| resource.clone());
        Ok(Selection { labels, fields, wanted, custom })
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

    /// What the cache has at hand of it: one key, or the objects with one value of a field. What is
    /// found so is still to be matched.
    pub fn in_cache(&self, resource: &Resource, namespace: &str) -> store::cache::Selection {
        let term = self.wanted.iter().find_map(|wanted| match wanted {
            Wanted::BuiltIn(field) => field.term(self.fields.requires_exact_match(field.label)?),
            Wanted::Defined(_) => None,
        });
        let name = self.fields.requires_exact_match("metadata.name");
        let is_one = !resource.is_namespaced() || !namespace.is_empty();
        let range = match name.filter(|name| is_one && path_segment_name(name).is_empty()) {
            Some(name) => KeyRange::key(resource.key(namespace, name)),
            None => range(resource, namespace),
        };
        store::cache::Selection { range, term }
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
            false => match &self.custom {
                Some(resource) => stored::decode(stored, resource).unwrap_or_default(),
                None => api::depth::read(&stored.value).unwrap_or_default(),
            },
        };
        let field = |name: &str| match name {
            "metadata.name" => Some(meta.name.clone()),
            "metadata.namespace" => Some(meta.namespace.clone()),
            label => {
                self.wanted.iter().find(|field| field.label() == label).map(|f| f.text(&object))
            }
        };
        by_label() && self.fields.matches(field)
    }
}

/// A field that is looked at: one that the kind names, or one that its definition does.
#[derive(Debug)]
enum Wanted {
    BuiltIn(&'static Selectable),
    Defined(custom::Selectable),
}

impl Wanted {
    fn find(resource: &Resource, label: &str) -> Result<Wanted, Status> {
        let Some(definition) = &resource.definition else {
            let found = fields::find(resource, label).map_err(Status::bad_request)?;
            return Ok(Wanted::BuiltIn(found));
        };
        let mut fields = definition.version.selectable.iter();
        let found = fields.find(|field| field.label == label).cloned();
        let text = || Status::bad_request(format!("field label not supported: {label}"));
        found.map(Wanted::Defined).ok_or_else(text)
    }

    fn label(&self) -> &str {
        match self {
            Wanted::BuiltIn(field) => field.label,
            Wanted::Defined(field) => &field.label,
        }
    }

    fn text(&self, object: &Value) -> String {
        match self {
            Wanted::BuiltIn(field) => field.text(object),
            Wanted::Defined(field) => match field.path.first(object).as_deref() {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            },
        }
    }
}

fn is_metadata(label: &str) -> bool {
    matches!(label, "metadata.name" | "metadata.namespace")
}
