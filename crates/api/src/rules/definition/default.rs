//! Whether the defaults of a schema fit it: they conform to it, with declared fields only, and the
//! objects among them say what they are. Rules in CEL are not asked yet.
//!
//! A default inside of what every object has (`metadata.name`) is judged by the object that it would
//! be part of.
use super::super::{Field, metadata};
use crate::codec::json::canonicalize;
use crate::conform;
use crate::field::{Error, ErrorList, Path, aggregate};
use crate::names;
use crate::schema::builtin;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// What is wrong with the defaults of a whole schema, whose root is an object of the cluster.
pub fn faults(schema: &Field<'_, '_>) -> ErrorList {
    schema.apart(|schema| walk(schema, true, &[]))
}

/// A step from an object into it: a field, or the items of a list.
type Step<'s> = Option<&'s str>;

/// `inside`: the way from an object to this, if it leads through its type or metadata.
fn walk(schema: &Field<'_, '_>, is_resource: bool, inside: &[Step<'_>]) {
    let embedded = is_resource || schema.at("x-kubernetes-embedded-resource").flag();
    let inside = if embedded { &[] } else { inside };
    let default = schema.at("default");
    match default.exists() {
        true if inside.is_empty() => of_value(&default, schema.value(), embedded),
        true => of_metadata(&default, schema.value(), inside),
        false => {}
    }
    let longer = |step| match inside {
        [] => Vec::new(),
        inside => inside.iter().copied().chain([step]).collect(),
    };
    if schema.at("items").value().is_object() {
        walk(&schema.at("items"), false, &longer(None));
    }
    for (name, property) in schema.at("properties").entries() {
        let first = embedded && is_own(name);
        let way = if first { vec![Some(name)] } else { longer(Some(name)) };
        walk(&property, false, &way);
    }
}

/// What every object has.
fn is_own(name: &str) -> bool {
    matches!(name, "metadata" | "apiVersion" | "kind")
}

fn of_metadata(default: &Field<'_, '_>, schema: &Value, inside: &[Step<'_>]) {
    let wrap = |inner: Value, step: &Step<'_>| match step {
        Some(name) => json!({ *name: inner }),
        None => json!([inner]),
    };
    let mut object = inside.iter().rev().fold(default.value().clone(), wrap);
    for (field, word) in [("apiVersion", "validation/v1"), ("kind", "Validation")] {
        if object.get(field).is_none() {
            object[field] = word.into();
        }
    }
    let Some(fields) = object.as_object() else { return };
    let faults = match coerced(&Path::NIL, fields) {
        Some(fault) => vec![fault],
        None => typed(&Path::NIL, fields),
    };
    match aggregate(&faults) {
        Some(faults) => default.invalid(format!("must result in valid metadata: {faults}")),
        None => default.extend(conform::faults(default.value(), schema, default.path())),
    }
}

fn of_value(default: &Field<'_, '_>, schema: &Value, embedded: bool) {
    if has_unknown(default.value(), schema, embedded) {
        default.invalid("must not have unknown fields");
    }
    let mut objects = Vec::new();
    find(default.path(), default.value(), schema, embedded, &mut |path, fields| {
        objects.push((coerced(path, fields), typed(path, fields)));
    });
    if let Some(fault) = objects.iter_mut().find_map(|(fault, _)| fault.take()) {
        return default.push(fault);
    }
    let before = default.count();
    default.extend(objects.into_iter().flat_map(|(_, faults)| faults));
    if default.count() == before {
        default.extend(conform::faults(default.value(), schema, default.path()));
    }
}

/// Whether pruning would take anything away.
fn has_unknown(value: &Value, schema: &Value, embedded: bool) -> bool {
    match value {
        Value::Object(fields) => {
            let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true
                || schema.get("additionalProperties").is_some();
            fields.iter().any(|(name, value)| match property(schema, name) {
                _ if embedded && is_own(name) => false,
                Some(inner) => has_unknown(value, inner, is_embedded(inner)),
                None => !keeps,
            })
        }
        Value::Array(items) => {
            let inner = &schema["items"];
            items.iter().any(|item| has_unknown(item, inner, is_embedded(inner)))
        }
        _ => false,
    }
}

/// Visits the objects inside of a value.
fn find(
    path: &Path<'_>,
    value: &Value,
    schema: &Value,
    embedded: bool,
    visit: &mut dyn FnMut(&Path<'_>, &Map<String, Value>),
) {
    match value {
        Value::Object(fields) => {
            if embedded {
                visit(path, fields);
            }
            for (name, value) in fields {
                if let Some(inner) = property(schema, name) {
                    find(&path.child(name), value, inner, is_embedded(inner), visit);
                }
            }
        }
        Value::Array(items) => {
            let inner = &schema["items"];
            for (i, item) in items.iter().enumerate() {
                find(&path.index(i), item, inner, is_embedded(inner), visit);
            }
        }
        _ => {}
    }
}

/// Why an object cannot even be read as one.
fn coerced(path: &Path<'_>, fields: &Map<String, Value>) -> Option<Error> {
    let text = |name: &str| {
        let value = fields.get(name).filter(|value| !value.is_string())?;
        Some(Error::invalid(&path.child(name), value, "must be a string"))
    };
    text("apiVersion").or_else(|| text("kind")).or_else(|| {
        let metadata = fields.get("metadata")?;
        let fault = meta(metadata).err()?;
        Some(Error::invalid(&path.child("metadata"), metadata, fault))
    })
}

fn meta(metadata: &Value) -> Result<ObjectMeta, String> {
    let ty = builtin().named("meta/v1.ObjectMeta").ok_or("no such type")?;
    let decoded = canonicalize(metadata.clone(), ty).map_err(|fault| fault.to_string())?;
    ObjectMeta::deserialize(decoded.value).map_err(|fault| fault.to_string())
}

/// What is wrong with the type and metadata of an object that can be read.
fn typed(path: &Path<'_>, fields: &Map<String, Value>) -> ErrorList {
    let mut faults = ErrorList::new();
    for name in ["apiVersion", "kind"] {
        let place = path.child(name);
        let Some(text) = fields.get(name).map(|value| value.as_str().unwrap_or_default()) else {
            faults.push(Error::required(&place, ""));
            continue;
        };
        let fault = match name {
            _ if text.is_empty() => Some("must not be empty".to_owned()),
            "apiVersion" => (text.matches('/').count() > 1)
                .then(|| format!("unexpected GroupVersion string: {text}")),
            _ => Some(names::dns1035_label(&text.to_lowercase()))
                .filter(|wrong| !wrong.is_empty())
                .map(|wrong| {
                    let rule = wrong.join(",");
                    format!("may have mixed case, but should otherwise match: {rule}")
                }),
        };
        faults.extend(fault.map(|fault| Error::invalid(&place, text, fault)));
    }
    if let Some(Ok(mut meta)) = fields.get("metadata").map(meta) {
        if meta.name.as_ref().is_none_or(String::is_empty) {
            // Any will do.
            meta.name = Some("fakename".to_owned());
        }
        let namespaced = meta.namespace.as_ref().is_some_and(|name| !name.is_empty());
        let (rule, place) = (metadata::path_segment, path.child("metadata"));
        faults.extend(metadata::validate(&meta, namespaced, rule, &place));
    }
    faults
}

fn property<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    let more = schema.get("additionalProperties").filter(|more| more.is_object());
    schema.get("properties").and_then(|properties| properties.get(name)).or(more)
}

fn is_embedded(schema: &Value) -> bool {
    schema["x-kubernetes-embedded-resource"] == true
}
