//! Applying a patch to an object, or one patch on top of another.
use super::lists::merge_lists;
use super::lookup;
use super::order::{self, Elements};
use super::{DELETE_FROM_PRIMITIVE_LIST, Error, Object, PATCH, RETAIN_KEYS, SET_ELEMENT_ORDER};
use crate::patch::golang::{Go, GoMap};
use crate::schema::TypeRef;
use serde_json::Value;
use std::collections::HashSet;
use std::mem::discriminant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The left side is an object; the patch's directives are obeyed.
    Apply,
    /// The left side is itself a patch; directives and nulls are carried over into it.
    Combine,
}

pub(super) fn merge_objects(
    mut original: Object,
    mut patch: Object,
    ty: TypeRef<'_>,
    mode: Mode,
) -> Result<Object, Error> {
    if patch.contains_key(PATCH) {
        return replace_or_delete(patch);
    }
    retain_keys(&mut original, &mut patch, mode)?;
    merge_ordered_lists(&mut original, &mut patch, ty, mode)?;
    for (key, value) in patch {
        merge_entry(&mut original, key, value, ty, mode)?;
    }
    Ok(original)
}

/// `$patch` on a whole object.
fn replace_or_delete(mut patch: Object) -> Result<Object, Error> {
    match patch.get(PATCH).and_then(Value::as_str) {
        Some("replace") => {
            patch.remove(PATCH);
            Ok(patch)
        }
        Some("delete") => Ok(Object::new()),
        _ => Err(bad_directive(&patch)),
    }
}

pub(super) fn bad_directive(map: &Object) -> Error {
    let directive = map.get(PATCH).map(|value| Go(value).to_string()).unwrap_or_default();
    Error::BadDirective { directive, map: GoMap(map).to_string() }
}

fn merge_entry(
    original: &mut Object,
    mut key: String,
    value: Value,
    ty: TypeRef<'_>,
    mode: Mode,
) -> Result<(), Error> {
    let deletes = key.starts_with(DELETE_FROM_PRIMITIVE_LIST);
    if deletes {
        if mode == Mode::Combine {
            original.insert(key, value);
            return Ok(());
        }
        key = listed_field(&key, DELETE_FROM_PRIMITIVE_LIST, Error::BadPrimitiveList)?.to_owned();
    }
    if value.is_null() {
        original.remove(&key);
        if mode == Mode::Combine && !deletes {
            original.insert(key, Value::Null);
        }
        return Ok(());
    }
    let Some(old) = original.get_mut(&key) else {
        if !deletes {
            adopt(original, key, value, mode);
        }
        return Ok(());
    };
    match (old, value) {
        (Value::Object(old), Value::Object(new)) => {
            let (inner, strategy) = lookup::field(ty, &key)?;
            *old = match strategy.replace {
                true => new,
                false => merge_objects(std::mem::take(old), new, inner, mode)?,
            };
        }
        (Value::Array(old), Value::Array(new)) => {
            let (element, strategy) = lookup::list(ty, &key)?;
            *old = match strategy.merge || deletes {
                true => {
                    let merge_key = strategy.key.as_deref();
                    merge_lists(std::mem::take(old), new, element, merge_key, mode, deletes)?
                }
                false => new,
            };
        }
        (old, new) if discriminant(old) == discriminant(&new) => *old = new,
        (_, new) if !deletes => adopt(original, key, new, mode),
        _ => {}
    }
    Ok(())
}

/// Takes a value over as it is, for there is nothing to merge it with.
fn adopt(original: &mut Object, key: String, mut value: Value, mode: Mode) {
    if mode == Mode::Apply {
        discard_nulls(&mut value);
    }
    match without_directives(value) {
        Some(value) => original.insert(key, value),
        None => original.remove(&key),
    };
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// The value less every object inside that carries a `$patch`; none if it is one itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => {
            let entries = map.into_iter();
            Some(entries.filter_map(|(k, v)| Some((k, without_directives(v)?))).collect())
        }
        Value::Array(items) => {
            Some(Value::Array(items.into_iter().filter_map(without_directives).collect()))
        }
        scalar => Some(scalar),
    }
}

fn retain_keys(original: &mut Object, patch: &mut Object, mode: Mode) -> Result<(), Error> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    if mode == Mode::Combine {
        return match original.get(RETAIN_KEYS) {
            Some(old) if *old != directive => {
                Err(Error::RetainKeysDiffer(Go(old).to_string(), Go(&directive).to_string()))
            }
            Some(_) => Ok(()),
            None => {
                original.insert(RETAIN_KEYS.to_owned(), directive);
                Ok(())
            }
        };
    }
    let Value::Array(keys) = directive else { return Err(Error::BadRetainKeys) };
    let retained: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let is_directive = |key: &str| {
        key.starts_with(DELETE_FROM_PRIMITIVE_LIST) || key.starts_with(SET_ELEMENT_ORDER)
    };
    let stray = patch.iter().any(|(key, value)| {
        !value.is_null() && !is_directive(key) && !retained.contains(key.as_str())
    });
    if stray {
        return Err(Error::BadRetainKeys);
    }
    original.retain(|key, _| retained.contains(key.as_str()));
    Ok(())
}

/// Lists for which the patch states an order are merged with their directive at hand, and taken
/// out of the patch.
fn merge_ordered_lists(
    original: &mut Object,
    patch: &mut Object,
    ty: TypeRef<'_>,
    mode: Mode,
) -> Result<(), Error> {
    let directives: Vec<String> =
        patch.keys().filter(|key| key.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        if mode == Mode::Combine {
            match original.get(&directive) {
                Some(old) if *old != order => return Err(Error::BadSetElementOrder),
                Some(_) => {}
                None => _ = original.insert(directive.clone(), order.clone()),
            }
        }
        let order = array(order)?;
        let key = listed_field(&directive, SET_ELEMENT_ORDER, Error::BadSetElementOrder)?;
        let old = original.get(key).map(borrowed_array).transpose()?;
        let new = patch.get(key).map(borrowed_array).transpose()?;
        let (element, strategy) = lookup::list(ty, key)?;
        let merge_key = strategy.key.as_deref();
        order::check(new.map_or(&[], |new| new), &order, merge_key)?;
        let (old, new) = match (old.is_some(), new.is_some()) {
            (false, false) => continue,
            (had, has) => (
                had.then(|| take_array(original, key)),
                has.then(|| patch.remove(key).map_or_else(Vec::new, into_array)),
            ),
        };
        let elements =
            Elements::of(&[old.as_deref().unwrap_or(&[]), new.as_deref().unwrap_or(&[])])?;
        let server_order = order::keys(old.as_deref().unwrap_or(&[]), merge_key, elements)?;
        let merged = match (old, new) {
            (Some(old), None) => old,
            (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
            (Some(old), Some(new)) if strategy.merge => {
                merge_lists(old, new, element, merge_key, mode, false)?
            }
            (_, new) => new.unwrap_or_default(),
        };
        let sorted = order::arrange(merged, &order, server_order, merge_key, elements)?;
        original.insert(key.to_owned(), Value::Array(sorted));
    }
    Ok(())
}

/// The field that `$directive/field` speaks of.
fn listed_field<'k>(key: &'k str, prefix: &str, error: Error) -> Result<&'k str, Error> {
    match key.split_once('/') {
        Some((directive, field)) if directive == prefix => Ok(field),
        _ => Err(error),
    }
}

fn array(value: Value) -> Result<Vec<Value>, Error> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(Error::bad_type("[]interface {}", &other)),
    }
}

fn borrowed_array(value: &Value) -> Result<&[Value], Error> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(Error::bad_type("[]interface {}", other)),
    }
}

fn into_array(value: Value) -> Vec<Value> {
    if let Value::Array(items) = value { items } else { Vec::new() }
}

fn take_array(map: &mut Object, key: &str) -> Vec<Value> {
    map.get_mut(key).map(Value::take).map_or_else(Vec::new, into_array)
}
