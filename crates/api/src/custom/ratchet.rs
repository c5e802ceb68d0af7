//! Faults of a changed object that were there before: what a write leaves alone is not held against
//! it, so that a schema may become stricter than objects that exist
//! (`CRDValidationRatcheting`, `apiextensions-apiserver/pkg/apiserver/validation/ratcheting.go`).
//!
//! A fault is an old one if the value that it is about, or one that holds it, is what it was. What an item of a
//! list was is told by its keys; without keys only the list as a whole is what it was, or is not
//! (`apiserver/pkg/cel/common/equality.go`).
use crate::conform;
use crate::field::{Error, ErrorList, ErrorType, Path};
use serde_json::{Map, Value};
use std::collections::HashMap;

pub fn faults(new: &Value, old: &Value, schema: &Value) -> ErrorList {
    faults_at(new, old, schema, &Path::NIL)
}

/// The same of a part of the object.
pub fn faults_at(new: &Value, old: &Value, schema: &Value, path: &Path<'_>) -> ErrorList {
    let mut errors = conform::faults(new, schema, path);
    if errors.is_empty() {
        return errors;
    }
    let root = path.to_string();
    let mut before = Before::default();
    errors.retain(|error| !before.had(Pair { new, old, schema }, within(error, &root)));
    errors
}

/// The way to what a fault is about, from the part that was looked at.
fn within<'e>(error: &'e Error, root: &str) -> &'e str {
    let field = error.field.strip_prefix(root).unwrap_or(&error.field);
    match error.error_type {
        // What is missing is a fault of what it is missing from.
        ErrorType::Required => field.rsplit_once('.').map_or("", |(parent, _)| parent),
        _ if field == "<nil>" => "",
        _ => field,
    }
}

/// A value, what it was before, and its schema.
#[derive(Clone, Copy)]
struct Pair<'v> {
    new: &'v Value,
    old: &'v Value,
    schema: &'v Value,
}

/// What has been found of a comparison: an object with many faults is compared once.
#[derive(Default)]
struct Before<'v> {
    /// By the addresses of both values, which stay where they are meanwhile.
    same: HashMap<(*const Value, *const Value), bool>,
    /// The items of old lists that have keys, by those.
    keyed: HashMap<*const Value, HashMap<String, &'v Value>>,
}

impl<'v> Before<'v> {
    /// Whether a value on the way is what it was.
    fn had(&mut self, mut pair: Pair<'v>, mut path: &str) -> bool {
        loop {
            if self.is_same(pair) {
                return true;
            }
            path = path.strip_prefix('.').unwrap_or(path);
            if path.is_empty() {
                return false;
            }
            let Some((next, rest)) = self.step(pair, path) else { return false };
            (pair, path) = (next, rest);
        }
    }

    /// One step along a path as errors spell it; none where nobody can tell what was there before.
    fn step<'p>(&mut self, pair: Pair<'v>, path: &'p str) -> Option<(Pair<'v>, &'p str)> {
        if let Some(inside) = path.strip_prefix('[') {
            let (key, rest) = inside.split_once(']')?;
            let next = match pair.new {
                Value::Array(items) => self.item(pair, items.get(key.parse::<usize>().ok()?)?)?,
                _ => field(pair, key)?,
            };
            return Some((next, rest));
        }
        let fields = pair.new.as_object()?;
        // A name may have dots in it: the longest that is there is meant.
        let ends = path.char_indices().filter(|(_, c)| matches!(c, '.' | '[')).map(|(at, _)| at);
        let mut ends: Vec<usize> = ends.chain([path.len()]).collect();
        ends.reverse();
        let end = ends.into_iter().find(|end| fields.contains_key(&path[..*end]))?;
        Some((field(pair, &path[..end])?, &path[end..]))
    }

    fn item(&mut self, list: Pair<'v>, new: &'v Value) -> Option<Pair<'v>> {
        let keys = keys(list.schema)?;
        let before = list.old.as_array()?;
        let keyed = self.keyed.entry(std::ptr::from_ref(list.old)).or_insert_with(|| {
            let mut keyed = HashMap::with_capacity(before.len());
            for item in before {
                if let Some(identity) = identity(item, keys) {
                    // Of two with the same keys the first counts.
                    keyed.entry(identity).or_insert(item);
                }
            }
            keyed
        });
        let old = keyed.get(&identity(new, keys)?)?;
        Some(Pair { new, old, schema: list.schema.get("items")? })
    }

    fn is_same(&mut self, pair: Pair<'v>) -> bool {
        let both = (std::ptr::from_ref(pair.new), std::ptr::from_ref(pair.old));
        if let Some(known) = self.same.get(&both) {
            return *known;
        }
        let same = match (pair.new, pair.old) {
            (Value::Array(new), Value::Array(old)) => {
                new.len() == old.len()
                    && match keys(pair.schema) {
                        None => new == old,
                        Some(_) => new.iter().all(|item| {
                            self.item(pair, item).is_some_and(|item| self.is_same(item))
                        }),
                    }
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && self.has_same_fields(pair, new)
            }
            (new, old) => new == old,
        };
        self.same.insert(both, same);
        same
    }

    fn has_same_fields(&mut self, pair: Pair<'v>, new: &'v Map<String, Value>) -> bool {
        new.keys().all(|name| field(pair, name).is_some_and(|field| self.is_same(field)))
    }
}

/// A field or an entry; none if it was not there before, or has no schema.
fn field<'v>(pair: Pair<'v>, name: &str) -> Option<Pair<'v>> {
    let (new, old) = (pair.new.as_object()?.get(name)?, pair.old.as_object()?.get(name)?);
    let known = pair.schema["properties"].get(name);
    let schema = known.or_else(|| pair.schema.get("additionalProperties"))?;
    schema.is_object().then_some(Pair { new, old, schema })
}

/// The keys that tell the items of a list apart, if it has any.
fn keys(schema: &Value) -> Option<&[Value]> {
    (schema["x-kubernetes-list-type"] == "map")
        .then(|| schema["x-kubernetes-list-map-keys"].as_array().map(Vec::as_slice))?
}

/// What makes an item itself; none if it has not all of the keys.
fn identity(item: &Value, keys: &[Value]) -> Option<String> {
    let mut text = String::new();
    for key in keys {
        let value = item.as_object()?.get(key.as_str()?)?;
        if value.is_null() || value.is_array() || value.is_object() {
            return None;
        }
        text += &value.to_string();
        text.push('\0');
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The faults that are left of a field `spec` after a change.
    fn check(spec: &Value, old: Value, new: Value, expected: &str) {
        let schema = json!({ "type": "object", "properties": { "spec": spec } });
        let (new, old) = (json!({ "spec": new }), json!({ "spec": old }));
        let errors = faults(&new, &old, &schema);
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields.join(" "), expected, "{old} -> {new}");
    }

    #[test]
    fn only_what_changes_is_held_against_the_schema() {
        let spec = json!({ "type": "object", "required": ["must"], "properties": {
            "a": { "type": "string", "maxLength": 2 }, "b": { "type": "integer", "minimum": 5 } } });
        let bad = json!({ "a": "long", "b": 1 });
        check(&spec, bad.clone(), bad.clone(), "");
        check(&spec, bad.clone(), json!({ "a": "longer", "b": 1, "must": 1 }), "spec.a");
        check(&spec, bad, json!({ "a": "long", "b": 2 }), "spec.b spec.must");
    }

    #[test]
    fn items_are_what_they_were_by_their_keys_alone() {
        let short = json!({ "type": "string", "maxLength": 2 });
        let listed = |kind: &str, items: &Value| json!({ "type": "array", "items": items, "x-kubernetes-list-type": kind });
        for kind in ["atomic", "set"] {
            let list = listed(kind, &short);
            check(&list, json!(["long"]), json!(["long"]), "");
            check(&list, json!(["long"]), json!(["long", "b"]), "spec[0]");
            check(&list, json!(["long", "b"]), json!(["b", "long"]), "spec[1]");
        }
        let item = json!({ "type": "object", "properties": {
            "name": { "type": "string" }, "value": short } });
        let mut list = listed("map", &item);
        list["x-kubernetes-list-map-keys"] = json!(["name"]);
        let one = |name: &str, value: &str| json!({ "name": name, "value": value });
        let old = json!([one("a", "long"), one("b", "x")]);
        check(&list, old.clone(), json!([one("b", "y"), one("a", "long")]), "");
        check(&list, old.clone(), json!([one("a", "longer"), one("b", "x")]), "spec[0].value");
        check(&list, old, json!([one("c", "long"), one("b", "x")]), "spec[0].value");
    }

    #[test]
    fn what_has_no_schema_is_never_what_it_was() {
        let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "required": ["must"] });
        check(&open, json!({ "a": 1 }), json!({ "a": 1 }), "spec.must");
        let entries = json!({ "type": "object", "additionalProperties": {
            "type": "string", "maxLength": 2 } });
        check(&entries, json!({ "a.b": "long" }), json!({ "a.b": "long", "c": "d" }), "");
    }
}
