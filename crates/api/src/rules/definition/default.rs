//! Whether the defaults of a schema fit it: of the declared type, with declared fields only, and with
//! the type and metadata that every object has. Bounds, enumerations and rules in CEL are for the
//! validation of custom resources themselves, which is not here.
use super::super::Field;
use crate::field::{BadValue, Error, ErrorList, Path};
use serde_json::{Map, Value};

/// What is wrong with the defaults of a whole schema, whose root is an object of the cluster.
pub fn faults(schema: &Field<'_, '_>) -> ErrorList {
    schema.apart(|schema| walk(schema, true, None))
}

/// `meta`: the name of the type's or metadata's field that this is the schema of.
fn walk(schema: &Field<'_, '_>, is_resource: bool, meta: Option<&str>) {
    let embedded = is_resource || schema.at("x-kubernetes-embedded-resource").flag();
    let meta = meta.filter(|_| !embedded);
    let default = schema.at("default");
    if default.exists() {
        match meta {
            Some(field) => of_metadata(&default, schema.value(), field),
            None => of_value(&default, schema.value(), embedded),
        }
    }
    if schema.at("items").value().is_object() {
        walk(&schema.at("items"), false, meta);
    }
    for (name, property) in schema.at("properties").entries() {
        let own = embedded && matches!(name, "metadata" | "apiVersion" | "kind");
        walk(&property, false, if own { Some(name) } else { meta });
    }
}

fn of_metadata(default: &Field<'_, '_>, schema: &Value, field: &str) {
    let fault = match (field, default.value()) {
        ("apiVersion" | "kind", value) if !value.is_string() => Some("must be a string"),
        ("apiVersion" | "kind", value) if *value == "" => Some("must not be empty"),
        _ => None,
    };
    match fault {
        Some(fault) => {
            let path = Path::new(field);
            let fault = Error::invalid(&path, default.value(), fault);
            default.invalid(format!("must result in valid metadata: {fault}"));
        }
        None => types(default, "", default.value(), schema),
    }
}

fn of_value(default: &Field<'_, '_>, schema: &Value, embedded: bool) {
    if has_unknown(default.value(), schema, embedded) {
        default.invalid("must not have unknown fields");
    }
    let before = default.count();
    objects(default.path(), default.value(), schema, embedded, default);
    if default.count() == before {
        types(default, "", default.value(), schema);
    }
}

/// Whether pruning would take anything away.
fn has_unknown(value: &Value, schema: &Value, embedded: bool) -> bool {
    match value {
        Value::Object(fields) => {
            let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
            fields.iter().any(|(name, value)| {
                let own = embedded && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
                match property(schema, name) {
                    _ if own => false,
                    Some(inner) => has_unknown(value, inner, is_embedded(inner)),
                    None => !keeps && schema["additionalProperties"] != true,
                }
            })
        }
        Value::Array(items) => {
            let inner = &schema["items"];
            items.iter().any(|item| has_unknown(item, inner, is_embedded(inner)))
        }
        _ => false,
    }
}

/// Objects inside of objects say what they are.
fn objects(path: &Path<'_>, value: &Value, schema: &Value, embedded: bool, at: &Field<'_, '_>) {
    match value {
        Value::Object(fields) => {
            if embedded {
                typed(path, fields, at);
            }
            for (name, value) in fields {
                if let Some(inner) = property(schema, name) {
                    objects(&path.child(name), value, inner, is_embedded(inner), at);
                }
            }
        }
        Value::Array(items) => {
            let inner = &schema["items"];
            for (i, item) in items.iter().enumerate() {
                objects(&path.index(i), item, inner, is_embedded(inner), at);
            }
        }
        _ => {}
    }
}

fn typed(path: &Path<'_>, fields: &Map<String, Value>, at: &Field<'_, '_>) {
    for name in ["apiVersion", "kind"] {
        let place = path.child(name);
        match fields.get(name) {
            None => at.push(Error::required(&place, "")),
            Some(Value::String(text)) if text.is_empty() => {
                at.push(Error::invalid(&place, "", "must not be empty"));
            }
            Some(Value::String(_)) => {}
            Some(other) => at.push(Error::invalid(&place, other, "must be a string")),
        }
    }
}

/// Values are of the types that the schema declares. `name` leads to the value from the default.
fn types(default: &Field<'_, '_>, name: &str, value: &Value, schema: &Value) {
    let (wanted, found) = (schema["type"].as_str().unwrap_or_default(), type_of(value));
    let either = schema["x-kubernetes-int-or-string"] == true;
    let fits = match (wanted, found) {
        ("", _) => !either || matches!(found, "integer" | "string"),
        (_, "null") => schema["nullable"] == true,
        ("number", "integer") => true,
        (wanted, found) => wanted == found,
    };
    if !fits {
        let shown = BadValue::from(found);
        let detail = format!("{name} in body must be of type {wanted}: {found:?}");
        let inner = default.path().child(name);
        let path = if name.is_empty() { default.path() } else { &inner };
        return default.push(Error::type_invalid(path, shown, detail));
    }
    let inside = |part: &str| match name {
        "" => part.to_owned(),
        name => format!("{name}.{part}"),
    };
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(inner) = property(schema, name) {
                    types(default, &inside(name), value, inner);
                }
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                types(default, &inside(&format!("[{i}]")), item, &schema["items"]);
            }
        }
        _ => {}
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn property<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    let more = schema.get("additionalProperties").filter(|more| more.is_object());
    schema.get("properties").and_then(|properties| properties.get(name)).or(more)
}

fn is_embedded(schema: &Value) -> bool {
    schema["x-kubernetes-embedded-resource"] == true
}
