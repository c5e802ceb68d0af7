//! What patches do, as data. The cases follow upstream's documented semantics and were compared
//! with its implementation on many thousands of random objects.
use super::*;
use crate::schema::Schema;
use expect_test::{Expect, expect};
use proptest::prelude::*;

const TABLE: &str = "\
package t/v1 t group=t
struct Item
name 1 string
value 2 string
other 3 string
merged 4 []Item patch=merge:name
plain 5 []Item
ints 6 []int64 patch=merge
numbers 7 []int64
child 8 *Item
labels 9 {string}
raw 10 RawExtension patch=replace
retain 11 *Item patch=retainKeys
retainList 12 []Item patch=merge,retainKeys:name
nested 13 {Item}";

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn with_type<T>(run: impl FnOnce(TypeRef<'_>) -> T) -> T {
    let schema = Schema::parse(TABLE).unwrap();
    run(schema.named("t/v1.Item").unwrap())
}

fn show(result: Result<Value, Error>) -> String {
    result.map_or_else(|error| format!("{}: {error}", error.code()), |value| value.to_string())
}

/// `original` with `patch` merged in.
fn check(original: &str, patch: &str, expected: Expect) {
    expected.assert_eq(&show(with_type(|ty| merge(yaml(original), yaml(patch), ty))));
}

/// The patch from `original` to `modified`.
fn check_two_way(original: &str, modified: &str, expected: Expect) {
    expected.assert_eq(&show(with_type(|ty| two_way(&yaml(original), &yaml(modified), ty))));
}

/// The patch for `current`, given what was applied last and what is applied now, and what
/// becomes of `current`; then the conflict, if there is one.
fn check_three_way(original: &str, modified: &str, current: &str, expected: Expect) {
    let [original, modified, current] = [original, modified, current].map(yaml);
    let text = with_type(|ty| {
        let patch = three_way(&original, &modified, &current, ty, true);
        let result = patch.clone().and_then(|patch| merge(current.clone(), patch, ty));
        let strict = three_way(&original, &modified, &current, ty, false);
        let conflict = if strict == patch { "" } else { "\nconflict" };
        format!("{}\n{}{conflict}", show(patch), show(result))
    });
    expected.assert_eq(&text);
}

#[test]
fn keys_are_set_and_null_deletes() {
    check(
        "{name: a, value: x}",
        "{value: null, other: v}",
        expect![[r#"{"name":"a","other":"v"}"#]],
    );
    check("{}", "{child: {name: null, value: x}}", expect![[r#"{"child":{"value":"x"}}"#]]);
    check("{labels: {a: x}}", "{labels: {a: null, b: v}}", expect![[r#"{"labels":{"b":"v"}}"#]]);
}

#[test]
fn an_object_may_be_replaced_or_deleted_whole() {
    check("{name: a, value: x}", "{$patch: replace}", expect!["{}"]);
    check("{name: a, value: x}", "{other: v, $patch: replace}", expect![[r#"{"other":"v"}"#]]);
    check("{labels: {a: x, b: v}}", "{labels: {$patch: delete}}", expect![[r#"{"labels":{}}"#]]);
    check("{}", "{labels: {a: x, $patch: replace}}", expect!["{}"]);
    check("{raw: {a: 1}}", "{raw: {b: 2}}", expect![[r#"{"raw":{"b":2}}"#]]);
}

#[test]
fn a_list_with_a_merge_key_is_merged_by_it() {
    check(
        "{merged: [{name: a}, {name: b, value: x}, {name: c}]}",
        "{merged: [{name: b, other: v}, {name: d}]}",
        expect![[
            r#"{"merged":[{"name":"a"},{"name":"b","other":"v","value":"x"},{"name":"d"},{"name":"c"}]}"#
        ]],
    );
}

#[test]
fn the_order_of_the_patch_wins_over_the_order_of_the_server() {
    check(
        "{merged: [{name: a}, {name: b}, {name: c}]}",
        "{merged: [{name: c, value: x}, {name: a, value: v}]}",
        expect![[r#"{"merged":[{"name":"b"},{"name":"c","value":"x"},{"name":"a","value":"v"}]}"#]],
    );
    check("{ints: [1, 2, 3]}", "{ints: [3, 1]}", expect![[r#"{"ints":[2,3,1]}"#]]);
}

#[test]
fn set_element_order_sorts_and_keeps_what_only_the_server_has() {
    check(
        "{merged: [{name: a}, {name: s}, {name: b}]}",
        "{$setElementOrder/merged: [{name: b}, {name: c}, {name: a}], merged: [{name: c}]}",
        expect![[r#"{"merged":[{"name":"s"},{"name":"b"},{"name":"c"},{"name":"a"}]}"#]],
    );
    check("{ints: [1, 3]}", "{$setElementOrder/ints: [3, 2, 1]}", expect![[r#"{"ints":[3,1]}"#]]);
    check(
        "{merged: [{name: a}, {name: c}, {name: b}]}",
        "{$setElementOrder/merged: [{name: a}, {name: b}, {name: c}], merged: [{name: c, value: x}, {name: a}]}",
        expect![[r#"
            500: The order in patch list:
            [map[name:c value:x] map[name:a]]
             doesn't match $setElementOrder list:
            [map[name:a] map[name:b] map[name:c]]
        "#]],
    );
    check(
        "{}",
        "{$setElementOrder: []}",
        expect!["400: invalid patch format of setElementOrder list"],
    );
    check(
        "{}",
        "{$setElementOrder/ints: x}",
        expect!["500: expected a []interface {}, but received a string"],
    );
}

#[test]
fn elements_are_deleted_by_key() {
    check(
        "{merged: [{name: a}, {name: a}, {name: b}]}",
        "{merged: [{name: a, $patch: delete}, {name: z, $patch: delete}]}",
        expect![[r#"{"merged":[{"name":"b"}]}"#]],
    );
    check(
        "{merged: [{name: a}]}",
        "{merged: [{$patch: delete}]}",
        expect!["500: map: map[$patch:delete] does not contain declared merge key: name"],
    );
}

#[test]
fn a_list_may_be_replaced_whole() {
    check("{merged: [{name: a}]}", "{merged: [{$patch: replace}]}", expect![[r#"{"merged":[]}"#]]);
    check(
        "{merged: [{name: a, value: x}]}",
        "{merged: [{$patch: replace}, {name: a}, {name: b}]}",
        expect![[r#"{"merged":[{"name":"a"},{"name":"b"}]}"#]],
    );
    check("{plain: [{name: a}]}", "{plain: [{name: b}]}", expect![[r#"{"plain":[{"name":"b"}]}"#]]);
}

#[test]
fn merged_scalars_are_a_set() {
    check("{ints: [1, 2]}", "{ints: [2, 3]}", expect![[r#"{"ints":[1,2,3]}"#]]);
    check(
        "{ints: [1, 2, 3]}",
        "{$deleteFromPrimitiveList/ints: [2, 9]}",
        expect![[r#"{"ints":[1,3]}"#]],
    );
    check(
        "{numbers: [1, 2]}",
        "{$deleteFromPrimitiveList/numbers: [2]}",
        expect![[r#"{"numbers":[1]}"#]],
    );
    check("{}", "{$deleteFromPrimitiveList/ints: [2]}", expect!["{}"]);
    check(
        "{}",
        "{$deleteFromPrimitiveList: [2]}",
        expect!["400: invalid patch format of primitive list"],
    );
}

#[test]
fn retain_keys_drops_the_other_keys() {
    check(
        "{retain: {name: a, value: x}}",
        "{retain: {$retainKeys: [name, other], other: v}}",
        expect![[r#"{"retain":{"name":"a","other":"v"}}"#]],
    );
    check(
        "{retain: {name: a}}",
        "{retain: {$retainKeys: [name], other: v}}",
        expect!["400: invalid patch format of retainKeys"],
    );
    check(
        "{retain: {name: a}}",
        "{retain: {$retainKeys: name}}",
        expect!["400: invalid patch format of retainKeys"],
    );
    check(
        "{retain: {name: a}}",
        "{retain: {value: x}}",
        expect![[r#"{"retain":{"name":"a","value":"x"}}"#]],
    );
}

#[test]
fn senseless_patches_are_refused_in_upstreams_words() {
    check("{}", "{$patch: mix}", expect!["500: unknown patch type: mix in map: map[$patch:mix]"]);
    check(
        "{merged: [{name: a}]}",
        "{merged: [{name: a, $patch: merge}]}",
        expect!["500: merging lists cannot yet be specified in the patch"],
    );
    check(
        "{merged: [{name: a}]}",
        "{merged: [{value: x}]}",
        expect!["500: map: map[value:x] does not contain declared merge key: name"],
    );
    check(
        "{merged: [{name: a}]}",
        "{merged: [x]}",
        expect!["500: list element types are not identical: [[map[name:a]] [x]]"],
    );
    check("{ints: [[1]]}", "{ints: [[2]]}", expect!["422: lists of lists are not supported"]);
    check(
        "{foo: {a: 1}}",
        "{foo: {a: 2}}",
        expect![[r#"500: unable to find api field in struct Item for the json field "foo""#]],
    );
    check(
        "{nested: {k: {child: {}}}}",
        "{nested: {k: {child: {}}}}",
        expect!["500: merging an object in json but data type is not struct, instead is: map"],
    );
}

#[test]
fn a_two_way_patch_says_what_changed() {
    check_two_way(
        "{name: a, value: x}",
        "{name: b, other: v}",
        expect![[r#"{"name":"b","other":"v","value":null}"#]],
    );
    check_two_way(
        "{child: {name: a, value: x}}",
        "{child: {name: a}}",
        expect![[r#"{"child":{"value":null}}"#]],
    );
    check_two_way("{numbers: [1]}", "{numbers: [1, 2]}", expect![[r#"{"numbers":[1,2]}"#]]);
    check_two_way("{labels: {a: x}}", "{labels: {a: x}}", expect!["{}"]);
}

#[test]
fn a_two_way_patch_of_a_merged_list_carries_its_order() {
    check_two_way(
        "{merged: [{name: a}, {name: b}, {name: c, value: x}]}",
        "{merged: [{name: c, value: v}, {name: a}, {name: d}]}",
        expect![[
            r#"{"$setElementOrder/merged":[{"name":"c"},{"name":"a"},{"name":"d"}],"merged":[{"name":"c","value":"v"},{"name":"d"},{"$patch":"delete","name":"b"}]}"#
        ]],
    );
    check_two_way(
        "{merged: [{name: a}, {name: b}]}",
        "{merged: [{name: b}, {name: a}]}",
        expect![[r#"{"$setElementOrder/merged":[{"name":"b"},{"name":"a"}]}"#]],
    );
    check_two_way(
        "{ints: [1, 1, 2, 3]}",
        "{ints: [2, 4]}",
        expect![[
            r#"{"$deleteFromPrimitiveList/ints":[1,3],"$setElementOrder/ints":[2,4],"ints":[4]}"#
        ]],
    );
    check_two_way("{}", "{merged: [{name: a}]}", expect![[r#"{"merged":[{"name":"a"}]}"#]]);
}

#[test]
fn a_two_way_patch_names_the_keys_to_retain() {
    check_two_way(
        "{retain: {name: a, value: x}}",
        "{retain: {name: a, other: v}}",
        expect![[r#"{"retain":{"$retainKeys":["name","other"],"other":"v","value":null}}"#]],
    );
    check_two_way(
        "{retainList: [{name: a, value: x}]}",
        "{retainList: [{name: a, value: v}]}",
        expect![[
            r#"{"$setElementOrder/retainList":[{"name":"a"}],"retainList":[{"$retainKeys":["name","value"],"name":"a","value":"v"}]}"#
        ]],
    );
}

#[test]
fn a_three_way_patch_leaves_alone_what_others_added() {
    check_three_way(
        "{labels: {a: x}}",
        "{labels: {a: x, b: v}}",
        "{labels: {a: x, c: z}, value: theirs}",
        expect![[r#"
            {"labels":{"b":"v"}}
            {"labels":{"a":"x","b":"v","c":"z"},"value":"theirs"}"#]],
    );
    check_three_way(
        "{merged: [{name: a}, {name: b}]}",
        "{merged: [{name: a, value: x}]}",
        "{merged: [{name: a}, {name: b}, {name: server}]}",
        expect![[r#"
            {"$setElementOrder/merged":[{"name":"a"}],"merged":[{"name":"a","value":"x"},{"$patch":"delete","name":"b"}]}
            {"merged":[{"name":"a","value":"x"},{"name":"server"}]}"#]],
    );
}

#[test]
fn a_three_way_patch_overwrites_or_reports_what_others_changed() {
    check_three_way(
        "{value: x}",
        "{value: mine}",
        "{value: theirs}",
        expect![[r#"
            {"value":"mine"}
            {"value":"mine"}
            conflict"#]],
    );
    check_three_way(
        "{merged: [{name: a, value: x}]}",
        "{merged: [{name: a, value: mine}]}",
        "{merged: [{name: a, value: theirs, other: v}]}",
        expect![[r#"
            {"$setElementOrder/merged":[{"name":"a"}],"merged":[{"name":"a","value":"mine"}]}
            {"merged":[{"name":"a","other":"v","value":"mine"}]}
            conflict"#]],
    );
}

#[test]
fn a_three_way_patch_clears_fields_that_retain_keys_forbids() {
    check_three_way(
        "{retain: {name: a}}",
        "{retain: {name: a, value: x}}",
        "{retain: {name: a, other: defaulted}}",
        expect![[r#"
            {"retain":{"$retainKeys":["name","value"],"value":"x"}}
            {"retain":{"name":"a","value":"x"}}"#]],
    );
}

#[test]
fn a_conflict_shows_both_sides() {
    let error = with_type(|ty| {
        let [original, modified, current] =
            ["{value: x}", "{value: mine}", "{value: theirs}"].map(yaml);
        three_way(&original, &modified, &current, ty, false).unwrap_err()
    });
    expect![[r#"
        patch:
        value: mine

        conflicts with changes made from original to current:
        value: theirs

    "#]]
    .assert_eq(&error.to_string());
}

#[test]
fn preconditions_protect_identity() {
    let patch = yaml("{kind: Pod, metadata: {name: a}}");
    let all =
        [Precondition::KeyUnchanged("apiVersion"), Precondition::MetadataKeyUnchanged("name")];
    assert!(all[0].holds(&patch));
    assert!(!all[1].holds(&patch));
    let error = Precondition::check(&all, &patch).unwrap_err();
    assert_eq!(error.to_string(), "precondition failed for: map[kind:Pod metadata:map[name:a]]");
}

/// An object of type `Item`, with unique keys in merged lists and no nulls.
fn item() -> impl Strategy<Value = Value> {
    let scalar = || prop::option::of(prop::sample::select(vec!["x", "w", "z"]));
    let ints = || prop::option::of(prop::collection::btree_set(0..6i64, 0..4));
    let leaf = (scalar(), scalar(), ints(), ints()).prop_map(|(value, other, ints, numbers)| {
        let mut map = Object::new();
        map.extend(value.map(|v| ("value".to_owned(), v.into())));
        map.extend(other.map(|v| ("other".to_owned(), v.into())));
        map.extend(ints.map(|v| ("ints".to_owned(), v.into_iter().collect())));
        map.extend(numbers.map(|v| ("numbers".to_owned(), v.into_iter().collect())));
        Value::Object(map)
    });
    leaf.prop_recursive(3, 24, 4, |inner| {
        let lists = ["merged", "plain", "retainList"].map(|field| {
            let names = prop::sample::subsequence(vec!["a", "b", "c", "d"], 0..4).prop_shuffle();
            let items = prop::collection::vec(inner.clone(), 4);
            let list = (names, items).prop_map(move |(names, items)| {
                let named = names.into_iter().zip(items).map(|(name, mut item)| {
                    item["name"] = name.into();
                    item
                });
                (field.to_owned(), named.collect::<Value>())
            });
            prop::option::of(list)
        });
        let objects = ["child", "retain"].map(|field| {
            prop::option::of(inner.clone().prop_map(move |item| (field.to_owned(), item)))
        });
        (inner.clone(), lists, objects).prop_map(|(mut item, lists, objects)| {
            if let Value::Object(map) = &mut item {
                map.extend(lists.into_iter().flatten());
                map.extend(objects.into_iter().flatten());
            }
            item
        })
    })
}

/// A patch need not restore the order of merged scalars: they are a set.
fn with_sorted_sets(mut value: Value) -> Value {
    fn sort(value: &mut Value) {
        match value {
            Value::Object(map) => {
                if let Some(Value::Array(ints)) = map.get_mut("ints") {
                    ints.sort_by_key(|int| int.as_i64());
                }
                map.values_mut().for_each(sort);
            }
            Value::Array(items) => items.iter_mut().for_each(sort),
            _ => {}
        }
    }
    sort(&mut value);
    value
}

proptest! {
    #[test]
    fn a_two_way_patch_applied_gives_the_modified_object(original in item(), modified in item()) {
        let patched = with_type(|ty| {
            let patch = two_way(&original, &modified, ty).unwrap();
            merge(original, patch, ty).unwrap()
        });
        prop_assert_eq!(with_sorted_sets(patched), with_sorted_sets(modified));
    }

    #[test]
    fn nothing_panics(original in crate::testing::tree(), patch in crate::testing::tree()) {
        with_type(|ty| {
            _ = merge(original.clone(), patch.clone(), ty);
            _ = two_way(&original, &patch, ty);
            _ = three_way(&patch, &original, &patch, ty, false);
            _ = crate::patch::merge_diff::three_way(&original, &patch, &original);
        });
    }
}
