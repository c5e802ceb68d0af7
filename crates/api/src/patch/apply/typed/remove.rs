//! What remains of a value without some fields, or of only those.
use super::super::fieldset::{PathElement, Set};
use super::Emptied;
use super::atom::{Atom, ListAtom, MapAtom, Ty};
use serde_json::{Map, Value};

/// The value less the fields of `set`; `None` if nothing is left of a list or map.
pub(super) fn remove(value: &Value, set: &Set, ty: Ty<'_>, emptied: Emptied) -> Option<Value> {
    match (ty.atom(Some(value)), value) {
        (Atom::Scalar(_), value) => Some(value.clone()),
        (Atom::List(list), Value::Array(items)) => {
            let identity = list.identity?;
            let mut kept = Vec::with_capacity(items.len());
            for item in items {
                let Ok(element) = list.element(identity, item) else {
                    kept.push(item.clone());
                    continue;
                };
                match set.get(&element) {
                    None => kept.push(item.clone()),
                    Some(node) if node.member => {}
                    Some(node) => {
                        let left = remove(item, &node.children, list.element, emptied);
                        keep(left, item, emptied, |left| kept.push(left));
                    }
                }
            }
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        (Atom::Map(map), Value::Object(entries)) => {
            if map.atomic {
                return None;
            }
            let mut kept = Map::new();
            for (key, value) in entries {
                match set.named(key) {
                    None => _ = kept.insert(key.clone(), value.clone()),
                    Some(node) if node.member => {}
                    Some(node) => {
                        let left = remove(value, &node.children, map.child(key), emptied);
                        keep(left, value, emptied, |left| _ = kept.insert(key.clone(), left));
                    }
                }
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        _ => None,
    }
}

/// Puts in what is left of `value`.
fn keep(left: Option<Value>, value: &Value, emptied: Emptied, put: impl FnOnce(Value)) {
    put(match (left, emptied, value) {
        (Some(left), _, _) => left,
        (None, Emptied::Empty, Value::Object(_)) => Value::Object(Map::new()),
        (None, ..) => Value::Null,
    });
}

/// Only the fields of `set`.
pub(super) fn extract(value: &Value, set: &Set, ty: Ty<'_>) -> Option<Value> {
    match (ty.atom(Some(value)), value) {
        (Atom::Scalar(_), value) => Some(value.clone()),
        (Atom::List(list), Value::Array(items)) => extract_list(items, set, &list),
        (Atom::Map(map), Value::Object(entries)) => extract_map(entries, set, &map),
        _ => None,
    }
}

fn extract_list(items: &[Value], set: &Set, list: &ListAtom<'_>) -> Option<Value> {
    let Some(identity) = list.identity.filter(|_| !items.is_empty()) else {
        return Some(Value::Array(items.to_vec()));
    };
    let kept: Vec<Value> = items
        .iter()
        .filter_map(|item| {
            let node = set.get(&list.element(identity, item).ok()?)?;
            match node.children.is_empty() {
                true => Some(item.clone()),
                false => Some(extract(item, &node.children, list.element).unwrap_or(Value::Null)),
            }
        })
        .collect();
    (!kept.is_empty()).then_some(Value::Array(kept))
}

fn extract_map(entries: &Map<String, Value>, set: &Set, map: &MapAtom<'_>) -> Option<Value> {
    if map.atomic || entries.is_empty() {
        return Some(Value::Object(entries.clone()));
    }
    let mut kept = Map::new();
    for (key, value) in entries {
        let Some(node) = set.named(key) else { continue };
        // Upstream looks below a member with the parent's set; so does a value here that the set
        // says nothing more about.
        let below = if node.member { set } else { &node.children };
        let value = extract(value, below, map.child(key)).unwrap_or(Value::Null);
        kept.insert(key.clone(), value);
    }
    (!kept.is_empty()).then_some(Value::Object(kept))
}

/// `set` and, for each keyed element in it that `present` has too, the element's key fields.
pub(super) fn with_key_fields(set: &Set, present: &Set) -> Set {
    let mut keys = Set::new();
    set.for_each(&mut |path| {
        if !present.has(path) {
            return;
        }
        for (i, element) in path.iter().enumerate() {
            let PathElement::Key(fields) = element else { continue };
            for (name, _) in fields.iter() {
                let mut field = path[..=i].to_vec();
                field.push(PathElement::Field(name.clone()));
                keys.insert(&field);
            }
        }
    });
    set.clone().union(keys)
}
