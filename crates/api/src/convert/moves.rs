//! Fields that change their place between versions, as data: pairs of dotted paths.
use serde_json::{Map, Value};

pub(super) type Object = Map<String, Value>;

/// Moves each left path to its right one; what is absent stays absent.
pub(super) fn forward(object: &mut Object, moves: &[(&str, &str)]) {
    apply(object, moves.iter().copied());
}

/// Moves each right path to its left one.
pub(super) fn backward(object: &mut Object, moves: &[(&str, &str)]) {
    apply(object, moves.iter().map(|(left, right)| (*right, *left)));
}

fn apply<'a>(object: &mut Object, moves: impl Iterator<Item = (&'a str, &'a str)>) {
    // All are taken before any is put: paths of both versions may share a name.
    let taken: Vec<_> = moves.filter_map(|(from, to)| Some((to, take(object, from)?))).collect();
    for (to, value) in taken {
        put(object, to, value);
    }
}

pub(super) fn take(object: &mut Object, path: &str) -> Option<Value> {
    match path.split_once('.') {
        None => object.remove(path),
        Some((first, rest)) => {
            let inner = object.get_mut(first)?.as_object_mut()?;
            let value = take(inner, rest);
            if inner.is_empty() {
                object.remove(first);
            }
            value
        }
    }
}

pub(super) fn put(object: &mut Object, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            object.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = object.entry(first).or_insert_with(|| Value::Object(Map::new()));
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}
