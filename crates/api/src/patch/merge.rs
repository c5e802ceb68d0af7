//! JSON merge patch (RFC 7386): fields given replace or merge, null removes.
//!
//! This follows the library upstream uses (`evanphx/json-patch`), which removes nulls also inside
//! what a patch adds, even in objects within lists, but not inside a list that replaces an object.

use serde_json::{Map, Value};

/// The words are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("Invalid JSON Patch")]
    Patch,
    #[error("Invalid JSON Document")]
    Document,
}

/// Changes the document. A patch that is a list replaces it; one that is neither object nor list
/// is refused.
pub fn apply(document: &mut Value, patch: &Value) -> Result<(), Error> {
    if document.is_null() {
        return Err(Error::Document);
    }
    match patch {
        Value::Object(fields) => match document {
            Value::Object(document) => merge(document, fields),
            other => *other = pruned(patch),
        },
        Value::Array(_) => *document = pruned(patch),
        _ => return Err(Error::Patch),
    }
    Ok(())
}

fn merge(document: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, change) in patch {
        if change.is_null() {
            document.remove(key);
            continue;
        }
        match (document.get_mut(key), change) {
            (Some(Value::Object(current)), Value::Object(change)) => merge(current, change),
            (Some(current @ Value::Object(_)), change) => *current = change.clone(),
            (Some(current), change) => *current = pruned(change),
            (None, change) => {
                document.insert(key.clone(), pruned(change));
            }
        }
    }
}

/// A copy without the nulls in objects; those in lists are values and stay.
fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), pruned(value))).collect()
        }
        Value::Array(items) => items.iter().map(pruned).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::patch::merge_diff::two_way;

    fn check(mut document: Value, patch: Value, want: Value) {
        apply(&mut document, &patch).unwrap();
        assert_eq!(document, want);
    }

    #[test]
    fn fields_replace_merge_and_remove() {
        check(json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"}));
        check(json!({"a": "b", "b": 1}), json!({"a": null}), json!({"b": 1}));
        check(json!({"a": [1]}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": {"b": 1}}), json!({"a": {"c": 2}}), json!({"a": {"b": 1, "c": 2}}));
        check(json!({"a": {"b": 1}}), json!({"a": {"b": null}}), json!({"a": {}}));
        check(json!({"a": [{"b": 1}]}), json!({"a": [1]}), json!({"a": [1]}));
    }

    #[test]
    fn nulls_vanish_from_what_is_added() {
        check(json!({}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}}));
        check(json!({}), json!({"a": [null, {"b": null}]}), json!({"a": [null, {}]}));
        check(json!({"a": 1}), json!({"a": {"b": null}}), json!({"a": {}}));
        check(json!({"a": {}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]}));
    }

    #[test]
    fn a_patch_is_an_object_or_a_list() {
        check(json!({"a": 1}), json!([{"b": null}]), json!([{}]));
        for patch in [json!(null), json!(1), json!("a")] {
            assert_eq!(apply(&mut json!({}), &patch), Err(Error::Patch));
        }
        assert_eq!(apply(&mut json!(null), &json!({})), Err(Error::Document));
    }

    fn any_object() -> impl Strategy<Value = Map<String, Value>> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..3).prop_map(Value::from)];
        let value = leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[abc]", value, 0..4).prop_map(|m| m.into_iter().collect())
    }

    proptest! {
        #[test]
        fn the_difference_leads_from_one_to_the_other(a in any_object(), b in any_object()) {
            let (mut document, target) = (Value::Object(a), Value::Object(b));
            let patch = two_way(&document, &target).unwrap();
            apply(&mut document, &patch).unwrap();
            prop_assert_eq!(document, target);
        }
    }
}
