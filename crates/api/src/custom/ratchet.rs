//! Faults of a changed object that were there before: what a write leaves alone is not held against
//! it, so that a schema may become stricter than objects that exist
//! (`CRDValidationRatcheting`, `apiextensions-apiserver/pkg/apiserver/validation/ratcheting.go`).
use crate::conform;
use crate::field::{Error, ErrorList, ErrorType, Path};
use serde_json::Value;

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
    errors.retain(|error| !was_there(error, &root, new, old));
    errors
}

/// Whether the value that a fault is about is what it was.
fn was_there(error: &Error, root: &str, new: &Value, old: &Value) -> bool {
    let field = error.field.strip_prefix(root).unwrap_or(&error.field);
    // What is missing is a fault of what it is missing from.
    let field = match error.error_type {
        ErrorType::Required => field.rsplit_once('.').map_or("", |(parent, _)| parent),
        _ => field,
    };
    if field.is_empty() || field == "<nil>" {
        return new == old;
    }
    matches!((at(new, field), at(old, field)), (Some(new), Some(old)) if new == old)
}

/// What a path as errors spell it leads to.
fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    let path = path.strip_prefix('.').unwrap_or(path);
    if path.is_empty() {
        return Some(value);
    }
    if let Some(inside) = path.strip_prefix('[') {
        let (key, rest) = inside.split_once(']')?;
        let next = match value {
            Value::Array(items) => items.get(key.parse::<usize>().ok()?)?,
            other => other.get(key)?,
        };
        return at(next, rest);
    }
    let fields = value.as_object()?;
    // A name may have dots in it: the longest that is there is meant.
    let ends = path.char_indices().filter(|(_, c)| matches!(c, '.' | '[')).map(|(at, _)| at);
    let mut ends: Vec<usize> = ends.chain([path.len()]).collect();
    ends.reverse();
    ends.into_iter().find_map(|end| at(fields.get(&path[..end])?, &path[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_changes_is_held_against_the_schema() {
        let schema = json!({ "type": "object", "properties": { "spec": { "type": "object",
            "required": ["must"], "properties": {
                "a": { "type": "string", "maxLength": 2 }, "b": { "type": "integer", "minimum": 5 } } } } });
        let check = |old: Value, new: Value| {
            let errors = faults(&json!({ "spec": new }), &json!({ "spec": old }), &schema);
            errors.iter().map(|error| error.field.clone()).collect::<Vec<_>>().join(" ")
        };
        let bad = json!({ "a": "long", "b": 1 });
        assert_eq!(check(bad.clone(), bad.clone()), "");
        assert_eq!(check(bad.clone(), json!({ "a": "longer", "b": 1, "must": 1 })), "spec.a");
        assert_eq!(check(bad, json!({ "a": "long", "b": 2 })), "spec.b spec.must");
    }
}
