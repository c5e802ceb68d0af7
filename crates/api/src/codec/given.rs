//! Lists and maps that a client gave empty.
//!
//! Optional ones are not written when they are empty, so the canonical form has none. Yet a request
//! that gives one differs from a request that gives nothing until it is stored: upstream's rules tell
//! an empty list from none here and there, and so does who comes to own a field. So a write is
//! decoded *as given* ([`json::decode_given`](super::json::decode_given)) and goes through its rules
//! like that; before it is stored and answered, [`forget_empty`] makes it canonical. Comparisons that
//! are to see no difference are made with the old object [`aligned`] to the new one.
use crate::schema::{Omit, Type, TypeRef};
use serde_json::Value;
use std::borrow::Cow;

/// Whether this is a list or map with nothing in it. A struct with nothing in it is another matter.
pub(super) fn is_empty_collection(value: &Value, ty: TypeRef<'_>) -> bool {
    match value {
        Value::Array(items) => items.is_empty() && ty.as_list().is_some(),
        Value::Object(entries) => entries.is_empty() && ty.as_map().is_some(),
        _ => false,
    }
}

/// Whether this is one of two things, and neither: there, and yet not written.
pub(super) fn is_neither(value: &Value, ty: TypeRef<'_>) -> bool {
    let empty = value.as_array().is_some_and(Vec::is_empty);
    empty && matches!(ty.get(), Type::Either(..))
}

/// Drops the empty lists and maps that are not written; those that always are become null, as they
/// do on the way through upstream's store.
pub fn forget_empty(value: &mut Value, ty: TypeRef<'_>) {
    forget(value, ty, true);
}

/// The same for what upstream stores as JSON: there an empty list that is always written stays one.
pub fn forget_optional(value: &mut Value, ty: TypeRef<'_>) {
    forget(value, ty, false);
}

fn forget(value: &mut Value, ty: TypeRef<'_>, nulls: bool) {
    match (ty.get(), value) {
        (Type::Struct(structure), Value::Object(fields)) => {
            fields.retain(|name, value| {
                let Some(field) = structure.field(name) else { return true };
                let ty = ty.at(field.ty);
                if is_neither(value, ty) {
                    return false;
                }
                if !is_empty_collection(value, ty) {
                    forget(value, ty, nulls);
                } else if field.omit == Omit::Never {
                    if nulls {
                        *value = Value::Null;
                    }
                } else {
                    return false;
                }
                true
            });
        }
        (Type::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| forget(item, ty.at(list.element), nulls));
        }
        (Type::Map(map), Value::Object(entries)) => {
            entries.values_mut().for_each(|entry| forget(entry, ty.at(map.value), nulls));
        }
        _ => {}
    }
}

/// `old` with empty lists and maps where `new` has them and `old` has none: to upstream's usual
/// comparison those are equal.
pub fn aligned<'o>(old: &'o Value, new: &Value, ty: TypeRef<'_>) -> Cow<'o, Value> {
    // Almost never: then nothing is copied, and no type asked for.
    if !may_differ(old, new) {
        return Cow::Borrowed(old);
    }
    let mut old = old.clone();
    align(&mut old, new, ty);
    Cow::Owned(old)
}

fn may_differ(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => new.iter().any(|(name, new)| {
            old.get(name).map_or_else(|| is_empty(new), |old| may_differ(old, new))
        }),
        (Value::Array(old), Value::Array(new)) => {
            old.iter().zip(new).any(|(old, new)| may_differ(old, new))
        }
        (Value::Null, new) => is_empty(new),
        _ => false,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn align(old: &mut Value, new: &Value, ty: TypeRef<'_>) {
    match (ty.get(), old, new) {
        (Type::Struct(structure), Value::Object(old), Value::Object(new)) => {
            for (name, new) in new {
                let Some(field) = structure.field(name) else { continue };
                let ty = ty.at(field.ty);
                match old.get_mut(name).filter(|old| !old.is_null()) {
                    Some(old) => align(old, new, ty),
                    None if is_empty_collection(new, ty) => {
                        old.insert(name.clone(), new.clone());
                    }
                    None => {}
                }
            }
        }
        (Type::List(list), Value::Array(old), Value::Array(new)) => {
            let pairs = old.iter_mut().zip(new);
            pairs.for_each(|(old, new)| align(old, new, ty.at(list.element)));
        }
        (Type::Map(map), Value::Object(old), Value::Object(new)) => {
            for (key, new) in new {
                if let Some(old) = old.get_mut(key) {
                    align(old, new, ty.at(map.value));
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;
    use crate::schema::builtin;
    use serde_json::json;

    fn pod() -> TypeRef<'static> {
        builtin().kind("", "v1", "Pod").expect("a kind")
    }

    #[test]
    fn what_is_given_empty_is_kept_until_it_is_forgotten() {
        let spec = json!({ "containers": [], "nodeSelector": {}, "tolerations": [],
            "volumes": [{ "name": "v", "emptyDir": {} }] });
        let given = json!({ "metadata": { "labels": {} }, "spec": spec });
        let mut kept = json::canonicalize_given(given, pod()).expect("fits").value;
        assert_eq!(kept["metadata"]["labels"], json!({}));
        assert_eq!(kept["spec"]["tolerations"], json!([]));
        forget_empty(&mut kept, pod());
        assert_eq!(kept["metadata"], json!({}));
        let left = json!({ "containers": null, "volumes": [{ "name": "v", "emptyDir": {} }] });
        assert_eq!(kept["spec"], left);
    }

    #[test]
    fn an_old_object_is_aligned_in_lists_and_maps_only() {
        let old = json!({ "spec": { "containers": [{ "name": "c" }] } });
        let new = json!({ "spec": { "securityContext": {}, "nodeSelector": {},
            "containers": [{ "name": "c", "args": [] }] } });
        let aligned = aligned(&old, &new, pod());
        let spec = json!({ "nodeSelector": {}, "containers": [{ "name": "c", "args": [] }] });
        assert_eq!(aligned["spec"], spec);
    }
}
