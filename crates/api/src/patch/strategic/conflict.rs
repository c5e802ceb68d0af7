//! Whether two patches set the same key to different things.
use super::lookup;
use super::order::{Elements, deduplicate};
use super::{Error, Object, PATCH, RETAIN_KEYS};
use crate::patch::golang::{Go, GoMap};
use crate::schema::{Patch, TypeRef};
use serde_json::Value;
use std::collections::HashMap;

pub(super) fn in_objects(left: &Object, right: &Object, ty: TypeRef<'_>) -> Result<bool, Error> {
    // A directive acts on the whole object: it agrees with the same directive only.
    if left.get(PATCH) != right.get(PATCH) {
        return Ok(true);
    }
    for (key, left) in left {
        if key == PATCH || key == RETAIN_KEYS {
            continue;
        }
        let Some(right) = right.get(key) else { continue };
        let found = match left {
            Value::Object(_) => Some(lookup::field(ty, key)?),
            Value::Array(_) => Some(lookup::list(ty, key)?),
            _ => None,
        };
        let (inner, strategy) = found.map_or((ty, None), |(ty, patch)| (ty, Some(patch)));
        if in_values(left, right, inner, strategy)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn in_values(
    left: &Value,
    right: &Value,
    ty: TypeRef<'_>,
    strategy: Option<&Patch>,
) -> Result<bool, Error> {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            if left.get(PATCH) == right.get(PATCH) && strategy.is_some_and(|s| s.replace) {
                return Ok(false);
            }
            in_objects(left, right, ty)
        }
        (Value::Array(left), Value::Array(right)) => in_lists(left, right, ty, strategy),
        _ => Ok(left != right),
    }
}

fn in_lists(
    left: &[Value],
    right: &[Value],
    element: TypeRef<'_>,
    strategy: Option<&Patch>,
) -> Result<bool, Error> {
    let elements = Elements::of(&[left, right])?;
    if strategy.is_some_and(|strategy| strategy.merge) {
        if elements == Elements::Scalars {
            return Ok(false);
        }
        let merge_key = strategy.and_then(|strategy| strategy.key.as_deref()).unwrap_or_default();
        let (left, right) = (by_key(left, merge_key)?, by_key(right, merge_key)?);
        for (key, left) in left {
            if let Some(right) = right.get(&key)
                && in_objects(left, right, element)?
            {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    if left.len() != right.len() {
        return Ok(true);
    }
    if elements == Elements::Scalars {
        return Ok(sorted(left) != sorted(right));
    }
    for (left, right) in left.iter().zip(right) {
        if in_values(left, right, element, None)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn by_key<'v>(list: &'v [Value], merge_key: &str) -> Result<HashMap<String, &'v Object>, Error> {
    let mut found = HashMap::with_capacity(list.len());
    for item in list {
        let Value::Object(map) = item else {
            return Err(Error::bad_type("map[string]interface {}", item));
        };
        let key = map.get(merge_key).ok_or_else(|| Error::NoMergeKeyInElement {
            map: GoMap(map).to_string(),
            key: merge_key.to_owned(),
        })?;
        found.insert(Go(key).to_string(), map);
    }
    Ok(found)
}

fn sorted(list: &[Value]) -> Vec<String> {
    let mut texts: Vec<String> =
        deduplicate(list.to_vec()).iter().map(|item| Go(item).to_string()).collect();
    texts.sort();
    texts
}
