//! Merging one list into another.
use super::lookup::kind;
use super::merge::{Mode, bad_directive, merge_objects};
use super::order::{self, Elements};
use super::{Error, PATCH};
use crate::schema::TypeRef;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Merges two lists as the schema says: objects by their key, scalars as a set. With `deletes`, the
/// patch's scalars are those to remove.
pub(super) fn merge_lists(
    original: Vec<Value>,
    patch: Vec<Value>,
    element: TypeRef<'_>,
    merge_key: Option<&str>,
    mode: Mode,
    deletes: bool,
) -> Result<Vec<Value>, Error> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let elements = Elements::of(&[&original, &patch])?;
    if elements == Elements::Scalars {
        if deletes && mode == Mode::Apply {
            let gone: HashSet<&Value> = patch.iter().collect();
            return Ok(original.into_iter().filter(|item| !gone.contains(item)).collect());
        }
        let server_order = original.clone();
        let mut both = original;
        both.extend(patch.iter().cloned());
        let merged = order::deduplicate(both);
        return order::arrange(merged, &patch, server_order, merge_key, elements);
    }
    let merge_key = merge_key.ok_or(Error::NoMergeKeyDeclared(kind(element)))?;
    let (original, patch) = obey_element_directives(original, patch, merge_key)?;
    let server_order = order::keys(&original, Some(merge_key), elements)?;
    let patch_order: Vec<Value> = order::key_objects(&patch, merge_key)?;
    let merged = merge_elements(original, patch, merge_key, element, mode)?;
    order::arrange(merged, &patch_order, server_order, Some(merge_key), elements)
}

/// Handles elements with a `$patch`; returns the old elements that stay and the patch's plain ones.
fn obey_element_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    let mut deleted: HashSet<Value> = HashSet::new();
    for item in patch {
        let Value::Object(map) = &item else { continue };
        match map.get(PATCH).map(Value::as_str) {
            None => plain.push(item),
            Some(Some("delete")) => match map.get(merge_key) {
                Some(key) => _ = deleted.insert(key.clone()),
                None => return Err(Error::no_merge_key(map, merge_key)),
            },
            // The rest of the list is read on, for its other directives.
            Some(Some("replace")) => replace = true,
            Some(Some("merge")) => return Err(Error::MergeDirective),
            Some(_) => return Err(bad_directive(map)),
        }
    }
    if replace {
        return Ok((plain, Vec::new()));
    }
    if !deleted.is_empty() {
        original.retain(|item| !item.get(merge_key).is_some_and(|key| deleted.contains(key)));
    }
    Ok((original, plain))
}

fn merge_elements(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
    element: TypeRef<'_>,
    mode: Mode,
) -> Result<Vec<Value>, Error> {
    let mut places: HashMap<Value, usize> = HashMap::with_capacity(original.len());
    for (place, item) in original.iter().enumerate() {
        if let Some(key) = item.get(merge_key) {
            places.entry(key.clone()).or_insert(place);
        }
    }
    for item in patch {
        let Value::Object(item) = item else { continue };
        let Some(key) = item.get(merge_key) else {
            return Err(Error::no_merge_key(&item, merge_key));
        };
        match places.get(key) {
            Some(&place) => {
                if let Value::Object(old) = &mut original[place] {
                    *old = merge_objects(std::mem::take(old), item, element, mode)?;
                }
            }
            None => {
                places.insert(key.clone(), original.len());
                original.push(Value::Object(item));
            }
        }
    }
    Ok(original)
}
