//! Making JSON merge patches (RFC 7386), for kinds whose lists have no merge keys: custom resources.
use super::strategic::{Error, Object, borrow};
use serde_json::Value;

/// The merge patch that turns `original` into `modified`.
pub fn two_way(original: &Value, modified: &Value) -> Result<Value, Error> {
    Ok(Value::Object(diff(borrow(original)?, borrow(modified)?)))
}

/// The merge patch that brings `current` to `modified`, where only what was in `original` (the
/// last applied configuration) may be deleted.
pub fn three_way(original: &Value, modified: &Value, current: &Value) -> Result<Value, Error> {
    let (original, modified, current) = (borrow(original)?, borrow(modified)?, borrow(current)?);
    let changes = only(diff(current, modified), Keep::Values);
    let deletions = only(diff(original, modified), Keep::Nulls);
    if conflicts_in(&changes, &deletions) {
        return Err(Error::conflict(&changes, &deletions));
    }
    Ok(Value::Object(combine(deletions, changes)))
}

fn diff(old: &Object, new: &Object) -> Object {
    let mut patch = Object::new();
    for (key, new) in new {
        match (old.get(key), new) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let inner = diff(old, new);
                if !inner.is_empty() {
                    patch.insert(key.clone(), Value::Object(inner));
                }
            }
            (Some(old), new) if same(old, new) => {}
            (_, new) => _ = patch.insert(key.clone(), new.clone()),
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    patch
}

/// Equality with numbers compared as such: `1` is `1.0`.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Keep {
    Nulls,
    Values,
}

fn only(patch: Object, keep: Keep) -> Object {
    let entries = patch.into_iter().filter_map(|(key, value)| match value {
        Value::Null => (keep == Keep::Nulls).then_some((key, Value::Null)),
        // An empty object is a value to set, not a patch that changes nothing.
        Value::Object(map) if !map.is_empty() => {
            let inner = only(map, keep);
            (!inner.is_empty()).then_some((key, Value::Object(inner)))
        }
        value => (keep == Keep::Values).then_some((key, value)),
    });
    entries.collect()
}

fn conflicts_in(left: &Object, right: &Object) -> bool {
    left.iter().any(|(key, left)| match (left, right.get(key)) {
        (_, None) => false,
        (Value::Object(left), Some(Value::Object(right))) => conflicts_in(left, right),
        (left, Some(right)) => left != right,
    })
}

fn combine(mut deletions: Object, changes: Object) -> Object {
    for (key, mut change) in changes {
        match (deletions.get_mut(&key), change) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                *old = combine(std::mem::take(old), new);
            }
            (_, new) => {
                change = new;
                prune_nulls(&mut change);
                deletions.insert(key, change);
            }
        }
    }
    deletions
}

fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(original: &str, modified: &str, current: &str, expected: Expect) {
        let [original, modified, current] =
            [original, modified, current].map(|text| serde_json::from_str(text).unwrap());
        let patch = three_way(&original, &modified, &current);
        expected.assert_eq(&patch.map_or_else(|e| format!("error: {e}"), |p| p.to_string()));
    }

    #[test]
    fn what_was_applied_and_is_no_longer_wanted_is_deleted() {
        check(
            r#"{"a":1,"b":1}"#,
            r#"{"a":2}"#,
            r#"{"a":1,"b":1,"c":1}"#,
            expect![[r#"{"a":2,"b":null}"#]],
        );
    }

    #[test]
    fn what_others_added_stays() {
        check("{}", r#"{"a":{"x":1}}"#, r#"{"a":{"x":1,"y":2},"z":[]}"#, expect!["{}"]);
    }

    #[test]
    fn lists_are_replaced_and_numbers_are_numbers() {
        check("{}", r#"{"l":[1,2],"n":1.0}"#, r#"{"l":[1],"n":1}"#, expect![[r#"{"l":[1,2]}"#]]);
    }

    #[test]
    fn an_empty_object_is_a_value() {
        check(
            r#"{"a":{"x":1}}"#,
            r#"{"a":{},"b":{}}"#,
            r#"{"a":{"x":1}}"#,
            expect![[r#"{"a":{"x":null},"b":{}}"#]],
        );
    }
}
