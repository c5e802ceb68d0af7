use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn check(document: Value, patch: Value, want: Expect) {
    let limits = Limits { operations: 4, copied_bytes: 40, work: 1000 };
    let result = Patch::decode(patch, &limits).and_then(|patch| patch.apply(document, &limits));
    want.assert_eq(&match result {
        Ok(document) => document.to_string(),
        Err(error) => error.to_string(),
    });
}

fn one(document: Value, operation: Value, want: Expect) {
    check(document, json!([operation]), want);
}

#[test]
fn fields_and_items_are_added() {
    let list = || json!({"a": [1, 2]});
    one(
        json!({}),
        json!({"op": "add", "path": "/a", "value": {"b": 1}}),
        expect![[r#"{"a":{"b":1}}"#]],
    );
    one(
        json!({}),
        json!({"op": "add", "path": "/a~1b~0c", "value": 1}),
        expect![[r#"{"a/b~c":1}"#]],
    );
    one(json!({}), json!({"op": "add", "path": "/a"}), expect![[r#"{"a":null}"#]]);
    one(list(), json!({"op": "add", "path": "/a/1", "value": 9}), expect![[r#"{"a":[1,9,2]}"#]]);
    one(list(), json!({"op": "add", "path": "/a/-", "value": 9}), expect![[r#"{"a":[1,2,9]}"#]]);
    one(list(), json!({"op": "add", "path": "/a/-1", "value": 9}), expect![[r#"{"a":[1,2,9]}"#]]);
    one(
        list(),
        json!({"op": "add", "path": "/a/3", "value": 9}),
        expect![
            "error in add for path: '/a/3': Unable to access invalid index: 3: invalid index referenced"
        ],
    );
    one(
        list(),
        json!({"op": "add", "path": "/a/x", "value": 9}),
        expect![[
            r#"error in add for path: '/a/x': value was not a proper array index: 'x': strconv.Atoi: parsing "x": invalid syntax"#
        ]],
    );
    one(
        json!({}),
        json!({"op": "add", "path": "/a/b", "value": 1}),
        expect![[r#"add operation does not apply: doc is missing path: "/a/b": missing value"#]],
    );
    one(
        json!({}),
        json!({"op": "add", "path": "", "value": 1}),
        expect![[r#"add operation does not apply: doc is missing path: "": missing value"#]],
    );
    one(
        json!({}),
        json!({"op": "add"}),
        expect!["add operation failed to decode path: missing value"],
    );
}

#[test]
fn fields_and_items_are_removed_and_replaced() {
    let document = || json!({"a": [1, 2], "b": null});
    one(document(), json!({"op": "remove", "path": "/a/-1"}), expect![[r#"{"a":[1],"b":null}"#]]);
    one(document(), json!({"op": "remove", "path": "/b"}), expect![[r#"{"a":[1,2]}"#]]);
    one(
        document(),
        json!({"op": "remove", "path": "/c"}),
        expect![
            "error in remove for path: '/c': Unable to remove nonexistent key: c: missing value"
        ],
    );
    one(
        document(),
        json!({"op": "replace", "path": "/a/0", "value": 7}),
        expect![[r#"{"a":[7,2],"b":null}"#]],
    );
    one(
        document(),
        json!({"op": "replace", "path": "/c", "value": 7}),
        expect![[r#"{"a":[1,2],"b":null,"c":7}"#]],
    );
    one(
        document(),
        json!({"op": "replace", "path": "/a/5", "value": 7}),
        expect!["replace operation does not apply: doc is missing key: /a/5: missing value"],
    );
    one(document(), json!({"op": "replace", "path": "", "value": {}}), expect!["{}"]);
    one(
        document(),
        json!({"op": "replace", "path": "", "value": 1}),
        expect!["replace operation value must be object or array: %!w(<nil>)"],
    );
}

#[test]
fn values_are_moved_and_copied() {
    let document = || json!({"a": {"x": 1}, "b": [2]});
    one(
        document(),
        json!({"op": "move", "from": "/a/x", "path": "/b/0"}),
        expect![[r#"{"a":{},"b":[1,2]}"#]],
    );
    one(
        document(),
        json!({"op": "move", "from": "/a", "path": "/a/x"}),
        expect![
            "move operation does not apply: doc is missing destination path: /a/x: missing value"
        ],
    );
    one(
        document(),
        json!({"op": "move", "from": "/a/y", "path": "/c"}),
        expect!["error in move for path: 'y': Unable to remove nonexistent key: y: missing value"],
    );
    one(
        document(),
        json!({"op": "copy", "from": "/a", "path": "/b/-"}),
        expect![[r#"{"a":{"x":1},"b":[2,{"x":1}]}"#]],
    );
    one(
        document(),
        json!({"op": "copy", "from": "/c", "path": "/d"}),
        expect![[r#"{"a":{"x":1},"b":[2],"d":null}"#]],
    );
    let double = json!({"op": "copy", "from": "/a", "path": "/a/y"});
    check(
        json!({"a": {"x": 12345}}),
        json!([double, double, double]),
        expect![
            "Unable to complete the copy, the accumulated size increase of copy is 81, exceeding the limit 40"
        ],
    );
}

#[test]
fn a_failed_test_fails_the_patch() {
    let document = || json!({"a": {"x": [1, null]}});
    one(
        document(),
        json!({"op": "test", "path": "/a", "value": {"x": [1, null]}}),
        expect![[r#"{"a":{"x":[1,null]}}"#]],
    );
    one(
        document(),
        json!({"op": "test", "path": "/a/x/0", "value": 2}),
        expect!["testing value /a/x/0 failed: test failed"],
    );
    one(
        document(),
        json!({"op": "test", "path": "/b", "value": null}),
        expect![[r#"{"a":{"x":[1,null]}}"#]],
    );
    one(
        document(),
        json!({"op": "test", "path": "/b/c", "value": 1}),
        expect!["test operation does not apply: is missing path: /b/c: missing value"],
    );
    one(
        document(),
        json!({"op": "test", "path": "/a/x/9", "value": 1}),
        expect![
            "error in test for path: '/a/x/9': Unable to access invalid index: 9: invalid index referenced"
        ],
    );
}

#[test]
fn what_is_no_patch_is_refused() {
    check(
        json!({}),
        json!({}),
        expect!["json: cannot unmarshal object into Go value of type jsonpatch.Patch"],
    );
    check(
        json!({}),
        json!(["add"]),
        expect!["json: cannot unmarshal string into Go value of type jsonpatch.Operation"],
    );
    check(json!({}), json!([{"op": "bless", "path": "/a"}]), expect!["Unexpected kind: bless"]);
    check(json!({}), json!([null]), expect!["Unexpected kind: unknown"]);
    check(
        json!({}),
        json!([{"op": "test", "path": 1}]),
        expect![
            "test operation failed to decode path: json: cannot unmarshal number into Go value of type string"
        ],
    );
    check(
        json!({}),
        json!([{}, {}, {}, {}, {}]),
        expect!["The allowed maximum operations in a JSON patch is 4, got 5"],
    );
}

/// Each operation is small; the document they make is not.
fn check_refused(patch: Vec<Value>, document: Value, want: Expect) {
    let limits = Limits::default();
    let patch = Patch::decode(patch.into(), &limits).unwrap();
    want.assert_eq(&patch.apply(document, &limits).unwrap_err().to_string());
}

#[test]
fn no_patch_nests_deeper_than_an_object_may() {
    let mut nesting = Vec::new();
    for _ in 0..4000 {
        nesting.push(json!({"op": "add", "path": "/b", "value": {}}));
        nesting.push(json!({"op": "move", "from": "/a", "path": "/b/a"}));
        nesting.push(json!({"op": "move", "from": "/b", "path": "/a"}));
    }
    nesting.truncate(10_000);
    check_refused(nesting, json!({"a": {}}), expect!["exceeded max depth"]);
    let mut doubling = vec![json!({"op": "add", "path": "/a", "value": {}})];
    for level in 0..300 {
        let path = format!("/a{}", "/a".repeat(level));
        doubling.push(json!({"op": "add", "path": format!("{path}/a"), "value": {}}));
    }
    check_refused(doubling, json!({}), expect!["exceeded max depth"]);
    let copies = (0..300).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/a"})).collect();
    check_refused(copies, json!({"a": {}}), expect!["exceeded max depth"]);
}

#[test]
fn moving_a_flat_value_far_down_is_no_depth() {
    let deep = format!("{}{}", "{\"a\":".repeat(190), "{}".to_owned() + &"}".repeat(190));
    let document: Value = crate::depth::read(deep.as_bytes()).unwrap();
    let (limits, path) = (Limits::default(), "/a".repeat(190));
    let patch = json!([
        {"op": "add", "path": "/flat", "value": {"x": [1, 2]}},
        {"op": "move", "from": "/flat", "path": format!("{path}/flat")},
        {"op": "move", "from": format!("{path}/flat"), "path": "/flat"},
    ]);
    let patched = Patch::decode(patch, &limits).unwrap().apply(document, &limits).unwrap();
    assert_eq!(patched["flat"], json!({"x": [1, 2]}));
}

#[test]
fn shifting_a_long_list_ten_thousand_times_is_too_much() {
    let items: Vec<Value> = vec![Value::Null; 200_000];
    let moves = (0..10_000).map(|_| json!({"op": "move", "from": "/a/0", "path": "/a/-"}));
    check_refused(
        moves.collect(),
        json!({"a": items}),
        expect![
            "the operations of the patch take too much work together: send them in several patches"
        ],
    );
}
