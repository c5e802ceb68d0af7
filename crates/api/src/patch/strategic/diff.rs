//! Making a patch: the difference of two objects.
use super::lookup;
use super::order::{self, Elements, key_of};
use super::{DELETE_FROM_PRIMITIVE_LIST, Error, Object, PATCH, RETAIN_KEYS};
use crate::patch::golang::Go;
use crate::schema::TypeRef;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::mem::discriminant;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    pub set_element_order: bool,
    pub ignore_changes: bool,
    pub ignore_deletions: bool,
}

/// The patch from `original` to `modified`. With `retain`, it says which keys are to stay.
pub(super) fn diff_objects(
    original: &Object,
    modified: &Object,
    ty: TypeRef<'_>,
    options: Options,
    retain: bool,
) -> Result<Object, Error> {
    let mut patch = Object::new();
    for (key, new) in modified {
        match original.get(key) {
            None if options.ignore_changes => {}
            None => _ = patch.insert(key.clone(), new.clone()),
            Some(old) => diff_entry(&mut patch, key, old, new, ty, options)?,
        }
    }
    if !options.ignore_deletions {
        for key in original.keys().filter(|key| !modified.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    if retain {
        let mut kept: Vec<&String> =
            modified.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key).collect();
        let drops = || original.iter().any(|(k, v)| !v.is_null() && !modified.contains_key(k));
        if !kept.is_empty() && (!patch.is_empty() || drops()) {
            kept.sort();
            patch.insert(RETAIN_KEYS.to_owned(), json!(kept));
        }
    }
    Ok(patch)
}

fn diff_entry(
    patch: &mut Object,
    key: &str,
    old: &Value,
    new: &Value,
    ty: TypeRef<'_>,
    options: Options,
) -> Result<(), Error> {
    if key == PATCH {
        if !old.is_string() || !new.is_string() {
            return Err(Error::BadSpecialKey);
        }
        if old != new {
            patch.insert(key.to_owned(), new.clone());
        }
        return Ok(());
    }
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            diff_inner_objects(patch, key, old, new, ty, options)
        }
        (Value::Array(old), Value::Array(new)) => {
            diff_inner_lists(patch, key, old, new, ty, options)
        }
        _ => {
            if !options.ignore_changes && (discriminant(old) != discriminant(new) || old != new) {
                patch.insert(key.to_owned(), new.clone());
            }
            Ok(())
        }
    }
}

fn diff_inner_objects(
    patch: &mut Object,
    key: &str,
    old: &Object,
    new: &Object,
    ty: TypeRef<'_>,
    options: Options,
) -> Result<(), Error> {
    let (inner, strategy) = match lookup::field(ty, key) {
        Ok(found) => found,
        // What the schema does not know is no obstacle as long as it does not change.
        Err(_) if old == new => return Ok(()),
        Err(error) => return Err(error),
    };
    if strategy.replace {
        if !options.ignore_changes {
            patch.insert(key.to_owned(), Value::Object(new.clone()));
        }
        return Ok(());
    }
    let difference = diff_objects(old, new, inner, options, strategy.retain_keys)?;
    if !difference.is_empty() {
        patch.insert(key.to_owned(), Value::Object(difference));
    }
    Ok(())
}

fn diff_inner_lists(
    patch: &mut Object,
    key: &str,
    old: &[Value],
    new: &[Value],
    ty: TypeRef<'_>,
    options: Options,
) -> Result<(), Error> {
    let (element, strategy) = match lookup::list(ty, key) {
        Ok(found) => found,
        Err(_) if old == new => return Ok(()),
        Err(error) => return Err(error),
    };
    if !strategy.merge {
        if !options.ignore_changes && old != new {
            patch.insert(key.to_owned(), Value::Array(new.to_vec()));
        }
        return Ok(());
    }
    let merge_key = strategy.key.as_deref();
    let found = diff_lists(old, new, element, merge_key, options, strategy.retain_keys)?;
    let directives = [
        (key.to_owned(), found.changed),
        (format!("{DELETE_FROM_PRIMITIVE_LIST}/{key}"), found.deleted_scalars),
        (order::directive(key), found.order),
    ];
    for (key, list) in directives {
        if !list.is_empty() {
            patch.insert(key, Value::Array(list));
        }
    }
    Ok(())
}

#[derive(Default)]
struct ListDiff {
    changed: Vec<Value>,
    deleted_scalars: Vec<Value>,
    order: Vec<Value>,
}

fn diff_lists(
    old: &[Value],
    new: &[Value],
    element: TypeRef<'_>,
    merge_key: Option<&str>,
    options: Options,
    retain: bool,
) -> Result<ListDiff, Error> {
    if old.is_empty() {
        let changed = if options.ignore_changes { Vec::new() } else { new.to_vec() };
        return Ok(ListDiff { changed, ..ListDiff::default() });
    }
    match Elements::of(&[old, new])? {
        Elements::Scalars => Ok(diff_scalars(old, new, options)),
        Elements::Objects => {
            diff_elements(old, new, element, merge_key.unwrap_or_default(), options, retain)
        }
    }
}

fn diff_scalars(old: &[Value], new: &[Value], options: Options) -> ListDiff {
    let old_sorted = sorted_by(old, Some);
    let new_sorted = sorted_by(new, Some);
    let (mut added, mut deleted) = (Vec::new(), Vec::new());
    walk_sorted(&old_sorted, &new_sorted, |pair| match pair {
        (Some(_), Some(_)) => {}
        (Some(old), None) if !options.ignore_deletions => deleted.push(old.1.clone()),
        (None, Some(new)) if !options.ignore_changes => added.push(new.1.clone()),
        _ => {}
    });
    added.sort_by_key(|item| new.iter().position(|other| other == item));
    let deleted = order::deduplicate(deleted);
    // Upstream compares with the old list as it has just sorted it, not as it was.
    let differs = !old_sorted.iter().map(|(_, item)| *item).eq(new);
    let ordered = options.set_element_order
        && ((!options.ignore_deletions && !deleted.is_empty())
            || (!options.ignore_changes && differs));
    let order = if ordered { new.to_vec() } else { Vec::new() };
    ListDiff { changed: added, deleted_scalars: deleted, order }
}

fn diff_elements(
    old: &[Value],
    new: &[Value],
    element: TypeRef<'_>,
    merge_key: &str,
    options: Options,
    retain: bool,
) -> Result<ListDiff, Error> {
    for item in old.iter().chain(new) {
        key_of(item, merge_key)?;
    }
    let old_sorted = sorted_by(old, |item| item.get(merge_key));
    let new_sorted = sorted_by(new, |item| item.get(merge_key));
    let (mut changed, mut deleted) = (Vec::new(), Vec::new());
    let mut failure = None;
    walk_sorted(&old_sorted, &new_sorted, |pair| match pair {
        (Some((_, Value::Object(old))), Some((_, Value::Object(new)))) => {
            match diff_objects(old, new, element, options, retain) {
                Ok(difference) if difference.is_empty() => {}
                Ok(mut difference) => {
                    difference.insert(merge_key.to_owned(), new[merge_key].clone());
                    changed.push(Value::Object(difference));
                }
                Err(error) => _ = failure.get_or_insert(error),
            }
        }
        (Some((_, old)), None) if !options.ignore_deletions => {
            deleted.push(json!({ merge_key: old[merge_key], PATCH: "delete" }));
        }
        (None, Some((_, new))) if !options.ignore_changes => changed.push((*new).clone()),
        _ => {}
    });
    if let Some(error) = failure {
        return Err(error);
    }
    let place = |item: &Value| new.iter().position(|other| other[merge_key] == item[merge_key]);
    changed.sort_by_cached_key(place);
    let same_order = old.len() == new.len()
        && old.iter().zip(new).all(|(old, new)| old[merge_key] == new[merge_key]);
    changed.extend(deleted);
    let ordered = options.set_element_order
        && ((!options.ignore_changes && (!changed.is_empty() || !same_order))
            || (!options.ignore_deletions && !changed.is_empty()));
    let order = if ordered { order::key_objects(new, merge_key)? } else { Vec::new() };
    Ok(ListDiff { changed, deleted_scalars: Vec::new(), order })
}

/// The list in order of how Go prints each key: upstream's order for walking two lists at once.
/// Equal keys come last first, as its sort leaves them.
fn sorted_by<'v>(
    list: &'v [Value],
    key: impl Fn(&'v Value) -> Option<&'v Value>,
) -> Vec<(String, &'v Value)> {
    let text = |item| key(item).map(|key| Go(key).to_string()).unwrap_or_default();
    let mut sorted: Vec<_> = list.iter().rev().map(|item| (text(item), item)).collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    sorted
}

fn walk_sorted<'a, 'v>(
    mut old: &'a [(String, &'v Value)],
    mut new: &'a [(String, &'v Value)],
    mut visit: impl FnMut((Option<&'a (String, &'v Value)>, Option<&'a (String, &'v Value)>)),
) {
    loop {
        let order = match (old.first(), new.first()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.0.cmp(&new.0),
        };
        let left = if order.is_le() { old.split_off_first() } else { None };
        let right = if order.is_ge() { new.split_off_first() } else { None };
        visit((left, right));
    }
}
