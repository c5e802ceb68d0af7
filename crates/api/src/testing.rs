//! What the tests of several modules need.
use proptest::prelude::*;
use serde_json::Value;

/// Any tree at all, from a vocabulary that reaches the special cases.
pub(crate) fn tree() -> impl Strategy<Value = Value> {
    const WORDS: &[&str] = &[
        "name",
        "value",
        "merged",
        "ints",
        "child",
        "labels",
        "retain",
        "$patch",
        "delete",
        "replace",
        "merge",
        "$retainKeys",
        "$setElementOrder/merged",
        "$deleteFromPrimitiveList/ints",
        "metadata",
        "apiVersion",
        "kind",
        "managedFields",
        "labels",
        "spec",
        "set",
        "keyed",
        "f:a",
        "k:{}",
        ".",
        "properties",
        "type",
        "object",
        "array",
        "items",
        "default",
        "",
    ];
    let word = prop::sample::select(WORDS);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..4i64).prop_map(Value::from),
        Just(Value::from(1.5)),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(word.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
