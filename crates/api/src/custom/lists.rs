//! Lists that are sets or maps hold nothing twice
//! (`apiextensions-apiserver/pkg/apiserver/schema/listtype`).
use super::Version;
use crate::field::{BadValue, Error, ErrorList, Path};
use crate::schema::{ListKind, Type, TypeRef};
use serde_json::{Map, Value};
use std::collections::HashMap;

pub fn faults(object: &Value, version: &Version) -> ErrorList {
    let mut errors = ErrorList::new();
    walk(object, version.schema.root(), &Path::NIL, &mut errors);
    errors
}

fn walk(value: &Value, ty: TypeRef<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    match (ty.get(), value) {
        (Type::Struct(structure), Value::Object(fields)) => {
            for (name, value) in fields {
                // The metadata of every object is looked at elsewhere.
                let is_metadata = structure.embedded_resource && name == "metadata";
                if let Some(field) = structure.field(name).filter(|_| !is_metadata) {
                    walk(value, ty.at(field.ty), &path.child(name), errors);
                }
            }
        }
        (Type::Map(map), Value::Object(entries)) => {
            for (key, value) in entries {
                walk(value, ty.at(map.value), &path.key(key), errors);
            }
        }
        (Type::List(list), Value::Array(items)) => {
            match &list.kind {
                ListKind::Atomic => {}
                ListKind::Set => errors.extend(twice(items.iter().cloned(), items, path)),
                ListKind::Map(keys) => errors.extend(map(items, keys, path)),
            }
            for (index, item) in items.iter().enumerate() {
                walk(item, ty.at(list.element), &path.index(index), errors);
            }
        }
        _ => {}
    }
}

fn map(items: &[Value], keys: &[crate::schema::Name], path: &Path<'_>) -> ErrorList {
    if let Some(place) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        return vec![Error::invalid(&path.index(place), &items[place], detail)];
    }
    let identity = |item: &Value| -> Value {
        let named =
            keys.iter().filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())));
        named.collect::<Map<_, _>>().into()
    };
    let identities: Vec<Value> = items.iter().map(identity).collect();
    twice(identities.iter().cloned(), &identities, path)
}

/// Tells of each value where it comes for the second time, and of no other place.
fn twice(values: impl Iterator<Item = Value>, shown: &[Value], path: &Path<'_>) -> ErrorList {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut errors = ErrorList::new();
    for (index, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(Error::duplicate(&path.index(index), BadValue::from(&shown[index])));
        }
    }
    errors
}
