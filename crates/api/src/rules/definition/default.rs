//! Whether the defaults of a schema fit it: they conform to it, with declared fields only, and the
//! objects among them say what they are. Rules in CEL are not asked yet.
//!
//! A default inside of what every object has (`metadata.name`) is judged by the object that it would
//! be part of.
use super::super::Field;
use super::super::embedded::{coerced, find, is_embedded, property, typed};
use crate::conform;
use crate::field::{ErrorList, Path, aggregate};
use serde_json::{Value, json};

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
        None => {
            default.extend(conform::faults(default.value(), &structural(schema), default.path()))
        }
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
        default.extend(conform::faults(default.value(), &structural(schema), default.path()));
    }
}

/// Defaults are judged by what the schema declares by itself: of a number or a text it declares no type.
fn structural(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let declared = fields.iter().filter(|(name, value)| {
                **value != Value::Bool(true) || *name != "x-kubernetes-int-or-string"
            });
            declared.map(|(name, value)| (name.clone(), structural(value))).collect()
        }
        Value::Array(items) => items.iter().map(structural).collect(),
        other => other.clone(),
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
