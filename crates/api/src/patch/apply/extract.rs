//! What a manager applied last, read back from the object.
use super::managed_fields::{self, ManagedFields, Operation};
use super::typed;
use crate::schema::TypeRef;
use serde_json::Value;

/// The configuration that `manager` applied, with the object's type; `None` if it owns nothing.
pub fn extract(object: &Value, ty: TypeRef<'_>, manager: &str, subresource: &str) -> Option<Value> {
    let managed = ManagedFields::stored(managed_fields::of(object)).ok()?;
    let entry = managed.entries().iter().find(|entry| {
        let found = &entry.manager;
        found.name == manager
            && found.operation == Operation::Apply
            && found.subresource == subresource
    })?;
    let mut extracted = typed::extract_items(object, &entry.fields().leaves(), ty, false);
    if let Value::Object(map) = &mut extracted {
        for key in ["apiVersion", "kind"] {
            if let Some(value) = object.get(key) {
                map.entry(key).or_insert_with(|| value.clone());
            }
        }
    }
    Some(extracted)
}
