//! Objects inside of objects (`x-kubernetes-embedded-resource`): they have a type and metadata as every
//! object has (`apiextensions-apiserver/pkg/apiserver/schema/objectmeta`).
use super::metadata;
use crate::codec::Problem;
use crate::codec::json::{self, canonicalize};
use crate::field::{Error, ErrorList, Path};
use crate::names;
use crate::schema::{TypeRef, builtin};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value};

/// What is wrong with the types and the metadata of the objects inside of a value.
pub fn faults(value: &Value, schema: &Value) -> ErrorList {
    let mut faults = ErrorList::new();
    find(&Path::NIL, value, schema, false, &mut |path, fields| faults.extend(typed(path, fields)));
    faults
}

/// Makes the metadata of the objects inside of a value what metadata is, and answers which of its fields
/// nobody knows. What cannot be metadata or a type is an error, or dropped if it is `lenient`: it was
/// stored before anybody looked at it.
pub fn coerce(value: &mut Value, schema: &Value, lenient: bool) -> Result<Vec<String>, Box<Error>> {
    let mut unknown = Vec::new();
    if let Some(ty) = builtin().named("meta/v1.ObjectMeta") {
        let mut coercion = Coercion { ty, lenient, unknown: &mut unknown };
        coercion.walk(value, schema, &Path::NIL)?;
    }
    unknown.sort();
    Ok(unknown)
}

struct Coercion<'c> {
    ty: TypeRef<'c>,
    lenient: bool,
    unknown: &'c mut Vec<String>,
}

impl Coercion<'_> {
    fn walk(
        &mut self,
        value: &mut Value,
        schema: &Value,
        path: &Path<'_>,
    ) -> Result<(), Box<Error>> {
        match value {
            Value::Object(fields) => {
                if is_embedded(schema) {
                    self.object(fields, path)?;
                }
                for (name, value) in fields {
                    match properties(schema, name) {
                        Some((inner, true)) => self.walk(value, inner, &path.child(name))?,
                        Some((inner, false)) => self.walk(value, inner, &path.key(name))?,
                        None => {}
                    }
                }
            }
            Value::Array(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.walk(item, &schema["items"], &path.index(i))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn object(
        &mut self,
        fields: &mut Map<String, Value>,
        path: &Path<'_>,
    ) -> Result<(), Box<Error>> {
        match self.lenient {
            true => {
                let sound = |name: &str, value: &Value| value.is_string() || !is_type(name);
                fields.retain(|name, value| sound(name, value));
            }
            false => coerced(path, fields).map_or(Ok(()), |fault| Err(Box::new(fault)))?,
        }
        if let Some(metadata) = fields.get_mut("metadata") {
            let path = path.child("metadata").to_string();
            let taken = metadata.take();
            // What is no metadata at all was said above, or is left as it is.
            let kept = if self.lenient { taken.clone() } else { Value::Null };
            *metadata = readable(taken, self.ty, self.lenient, &path, self.unknown).unwrap_or(kept);
        }
        Ok(())
    }
}

/// Metadata in its canonical form. Of what cannot be read the sound fields are left, if it is `lenient`.
pub fn readable(
    metadata: Value,
    ty: TypeRef<'_>,
    lenient: bool,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<Value, crate::codec::DecodeError> {
    let kept = lenient.then(|| metadata.clone());
    let metadata = if metadata.is_null() { Map::new().into() } else { metadata };
    let error = match canonicalize(metadata, ty) {
        Ok(decoded) => {
            let fields = decoded.problems.iter().filter_map(|problem| match problem {
                Problem::UnknownField(field) => Some(format!("{path}.{field}")),
                _ => None,
            });
            unknown.extend(fields);
            return Ok(decoded.value);
        }
        Err(error) => error,
    };
    let Some(Value::Object(fields)) = kept else { return Err(error) };
    let mut sound = Map::new();
    for (name, value) in fields {
        let alone = Value::Object(Map::from_iter([(name, value)]));
        if let Ok(json::Decoded { value: Value::Object(field), .. }) = canonicalize(alone, ty) {
            sound.extend(field);
        }
    }
    Ok(sound.into())
}

/// Visits the objects inside of a value.
pub fn find(
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
                match properties(schema, name) {
                    Some((inner, true)) => {
                        find(&path.child(name), value, inner, is_embedded(inner), visit);
                    }
                    Some((inner, false)) => {
                        find(&path.key(name), value, inner, is_embedded(inner), visit);
                    }
                    None => {}
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
pub fn coerced(path: &Path<'_>, fields: &Map<String, Value>) -> Option<Error> {
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
pub fn typed(path: &Path<'_>, fields: &Map<String, Value>) -> ErrorList {
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

/// The schema of a field.
pub fn property<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    properties(schema, name).map(|(property, _)| property)
}

/// The schema of a field, and whether the field is named there.
fn properties<'s>(schema: &'s Value, name: &str) -> Option<(&'s Value, bool)> {
    let named = schema.get("properties").and_then(|properties| properties.get(name));
    let more = || schema.get("additionalProperties").filter(|more| more.is_object());
    named.map(|named| (named, true)).or_else(|| more().map(|more| (more, false)))
}

fn is_type(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind")
}

pub fn is_embedded(schema: &Value) -> bool {
    schema["x-kubernetes-embedded-resource"] == true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SCHEMA: &str = "
type: object
properties:
  one: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
  list: {type: array, items: {type: object, x-kubernetes-embedded-resource: true, properties: {a: {type: string}}}}
  map: {type: object, additionalProperties: {type: object, x-kubernetes-embedded-resource: true, properties: {a: {type: string}}}}";

    fn schema() -> Value {
        serde_saphyr::from_str(SCHEMA).expect("a schema")
    }

    #[test]
    fn objects_inside_of_objects_say_what_they_are() {
        let wrong = json!({
            "one": { "kind": "Foo_", "metadata": { "labels": { "a b": "c" } } },
            "list": [{ "apiVersion": "v1", "kind": "A" }, { "apiVersion": "a/b/c", "kind": "" }],
            "map": { "k": { "kind": "A", "metadata": { "name": "a/b", "namespace": "N" } } },
        });
        let said = faults(&wrong, &schema());
        let mut said: Vec<String> = said.iter().map(|fault| fault.to_string()).collect();
        said.sort();
        let fields: Vec<&str> =
            said.iter().map(|text| text.split(": ").next().unwrap_or_default()).collect();
        assert_eq!(
            fields,
            [
                "list[1].apiVersion",
                "list[1].kind",
                "map[k].apiVersion",
                "map[k].metadata.name",
                "map[k].metadata.namespace",
                "one.apiVersion",
                "one.kind",
                "one.metadata.labels",
            ]
        );
    }

    #[test]
    fn their_metadata_is_metadata() {
        let mut value = json!({ "one": { "apiVersion": "v1", "kind": "A", "more": { "x": null },
            "metadata": { "name": "a", "labels": {}, "creationTimestamp": null, "unknown": 1 } },
            "map": { "k": { "metadata": { "odd": 1 } } } });
        let unknown = coerce(&mut value, &schema(), false).expect("it can be read");
        assert_eq!(unknown, ["map[k].metadata.odd", "one.metadata.unknown"]);
        assert_eq!(value["one"]["metadata"], json!({ "name": "a" }));
        assert_eq!(value["one"]["more"], json!({ "x": null }));
    }

    #[test]
    fn what_is_no_metadata_is_refused_and_left_out_of_what_was_stored() {
        for (given, kept) in [
            (json!({ "kind": 5 }), json!({})),
            (
                json!({ "metadata": { "labels": 7, "name": "a" } }),
                json!({ "metadata": { "name": "a" } }),
            ),
            (json!({ "metadata": "x" }), json!({ "metadata": "x" })),
        ] {
            let mut value = json!({ "one": given });
            assert!(coerce(&mut value.clone(), &schema(), false).is_err(), "{given}");
            coerce(&mut value, &schema(), true).expect("nothing is wrong with what is stored");
            assert_eq!(value["one"], kept);
        }
    }
}
