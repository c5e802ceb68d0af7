//! Rules and objects as data. The facts are those of upstream's tables
//! (`apiextensions-apiserver/pkg/apiserver/schema/cel/validation_test.go`).
use super::rules::Compiler;
use super::{Rules, Update, definition_faults};
use crate::shape::{Shape, Step};
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// What the rules of a schema say of a write.
fn said(schema: Json, new: Json, old: Option<Json>) -> Vec<String> {
    let schema = Arc::new(schema);
    let rules = Rules::of(&schema).expect("rules");
    let update = Update { new: &new, old: old.as_ref(), ratchets: true };
    let said = rules.said(&schema, update);
    let errors = said.errors.iter().map(ToString::to_string);
    errors.chain(said.warnings.iter().map(|warning| format!("warning: {warning}"))).collect()
}

/// The schema of an object with these properties and one rule.
fn with_rule(properties: Json, rule: &str) -> Json {
    json!({ "type": "object", "properties": properties,
        "x-kubernetes-validations": [{ "rule": rule }] })
}

#[test]
fn expressions_see_objects_as_their_schema_says() {
    let text = |format: &str| json!({ "type": "string", "format": format });
    let properties = json!({
        "n": { "type": "integer" }, "f": { "type": "number" }, "s": { "type": "string" },
        "nul": { "type": "string", "nullable": true }, "ios": { "x-kubernetes-int-or-string": true },
        "date": text("date"), "time": text("date-time"), "span": text("duration"), "bytes": text("byte"),
        "a-b.c/d": { "type": "boolean" }, "namespace": { "type": "string" },
        "map": { "type": "object", "additionalProperties": { "type": "string" } },
        "set": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
        "set2": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
        "keyed": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": { "type": "object", "properties": { "k": { "type": "string" }, "v": { "type": "integer" } } } },
        "two": { "type": "array", "items": { "type": "array",
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": { "type": "object", "properties": { "k": { "type": "string" } } } } },
        "inner": { "type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true },
    });
    let object = json!({
        "apiVersion": "a.io/v1", "kind": "Foo", "metadata": { "name": "foo", "labels": {} },
        "n": 1, "f": 2, "s": "héllo", "nul": null, "ios": "50%",
        "date": "2021-02-03", "time": "2011-08-18T19:03:37.010000000+01:00", "span": "1 day", "bytes": "YWJj",
        "a-b.c/d": true, "namespace": "ns", "map": { "a-b": "x" },
        "set": ["a", "b"], "set2": ["b", "a"],
        "keyed": [{ "k": "x", "v": 1 }, { "k": "y", "v": 2 }],
        "two": [[{ "k": "x" }, { "k": "y" }], [{ "k": "y" }, { "k": "x" }]],
        "inner": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "other": 1 },
    });
    for rule in [
        "self.metadata.name == 'foo' && self.kind == 'Foo' && !has(self.metadata.generateName)",
        "self.n == 1 && self.f == 2.0 && self.f / 4.0 == 0.5",
        "self.s.size() == 5",
        "!has(self.nul)",
        "type(self.ios) == string && self.ios.endsWith('%')",
        "self.date == timestamp('2021-02-03T00:00:00.000Z')",
        "self.time.getSeconds() == 37 && self.time < timestamp('2012-01-01T00:00:00Z')",
        "self.span == duration('24h')",
        "self.bytes == b'abc' && self.bytes.size() == 3",
        "self.a__dash__b__dot__c__slash__d && self.__namespace__ == 'ns'",
        "has(self.namespace) && self.namespace == 'ns'",
        "self.map.all(k, self.map[k] == 'x') && 'a-b' in self.map && self.map.size() == 1",
        "self.set == self.set2 && self.set != ['a', 'c'] && self.set + self.set2 == self.set",
        "self.two[0] == self.two[1] && (self.two[0] + self.two[1]).size() == 2",
        "self.inner.metadata.name == 'p' && self.inner.kind == 'Pod'",
        "self.keyed.exists(e, e.k == 'y' && e.v == 2)",
        "self.inner == self.inner && self == self",
    ] {
        let found = said(with_rule(properties.clone(), rule), object.clone(), None);
        assert!(found.is_empty(), "{rule}: {found:?}");
    }
}

#[test]
fn a_broken_rule_is_told_as_its_author_wants() {
    let schema = json!({ "type": "object", "properties": {
        "n": { "type": "integer", "x-kubernetes-validations": [
            { "rule": "self > 1" },
            { "rule": "self > 1", "message": " too small ", "reason": "FieldValueForbidden" },
            { "rule": "self > 1", "reason": "FieldValueRequired" },
            { "rule": "self > 1", "reason": "FieldValueDuplicate" },
            { "rule": "self > 1", "messageExpression": "string(self) + ' is too small'" },
            { "rule": "self > 1", "message": "x", "messageExpression": "'a\\nb'" },
            { "rule": "1 / (self - 1) > 1" },
        ] },
        "map": { "type": "object", "additionalProperties": { "type": "string",
            "x-kubernetes-validations": [{ "rule": "self == 'a'" }] } },
        "list": { "type": "array", "items": { "type": "object", "properties": { "x": { "type": "integer" } },
            "x-kubernetes-validations": [{ "rule": "self.x == 1", "fieldPath": ".x" }] } },
        "ios": { "x-kubernetes-int-or-string": true, "x-kubernetes-validations": [{ "rule": "self > 5" }] },
    } });
    let object =
        json!({ "n": 1, "map": { "k": "b" }, "list": [{ "x": 1 }, { "x": 2 }], "ios": "a" });
    let expected = [
        "ios: Invalid value: \"\": 'no such overload': call arguments did not match a supported operator, function or macro signature for rule: self > 5",
        "list[1].x: Invalid value: failed rule: self.x == 1",
        "map[k]: Invalid value: \"b\": failed rule: self == 'a'",
        "n: Invalid value: 1: failed rule: self > 1",
        "n: Forbidden: too small",
        "n: Required value: failed rule: self > 1",
        "n: Duplicate value: 1",
        "n: Invalid value: 1: 1 is too small",
        "n: Invalid value: 1: x",
        "n: Invalid value: \"integer\": division by zero evaluating rule: 1 / (self - 1) > 1",
    ];
    assert_eq!(said(schema, object, None), expected);
}

#[test]
fn transitions_need_an_old_value() {
    let schema = json!({ "type": "object", "properties": {
        "n": { "type": "integer", "x-kubernetes-validations": [
            { "rule": "self >= oldSelf", "message": "may only grow" },
            { "rule": "oldSelf.hasValue() || self < 10", "optionalOldSelf": true, "message": "begins small" },
        ] },
        "keyed": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": { "type": "object", "properties": { "k": { "type": "string" }, "v": { "type": "integer" } },
                "x-kubernetes-validations": [{ "rule": "self.v == oldSelf.v", "message": "is immutable" }] } },
    } });
    let object =
        |n: i64, v: i64| json!({ "n": n, "keyed": [{ "k": "b", "v": 9 }, { "k": "a", "v": v }] });
    let check = |new: Json, old: Option<Json>, expected: &[&str]| {
        assert_eq!(said(schema.clone(), new, old), expected);
    };
    check(object(5, 1), None, &[]);
    check(object(50, 1), None, &["n: Invalid value: 50: begins small"]);
    check(object(50, 1), Some(object(40, 1)), &[]);
    check(object(4, 1), Some(object(5, 1)), &["n: Invalid value: 4: may only grow"]);
    let old = json!({ "n": 1, "keyed": [{ "k": "a", "v": 1 }] });
    check(object(5, 2), Some(old), &["keyed[1]: Invalid value: is immutable"]);
}

#[test]
fn what_is_as_it_was_is_only_warned_about() {
    let rule = json!([{ "rule": "self.size() < 3", "message": "long" }]);
    let text = json!({ "type": "string", "x-kubernetes-validations": rule });
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
        "a": text, "b": text, "list": { "type": "array", "items": text } } } } });
    let object = |a: &str, list: &[&str]| json!({ "spec": { "a": a, "b": "abc", "list": list } });
    let found = said(schema.clone(), object("abcd", &["abc"]), Some(object("abc", &["abc"])));
    assert_eq!(
        found,
        [
            "spec.a: Invalid value: \"abcd\": long",
            "warning: spec.b: Invalid value: \"abc\": long",
            "warning: spec.list[0]: Invalid value: \"abc\": long",
        ]
    );
    // Nobody knows which item of the list it was.
    let found = said(schema, object("a", &["abc", "x"]), Some(object("a", &["abc"])));
    assert_eq!(
        found,
        [
            "spec.list[0]: Invalid value: \"abc\": long",
            "warning: spec.b: Invalid value: \"abc\": long"
        ]
    );
}

#[test]
fn evaluating_has_its_limits() {
    let list = json!({ "type": "array", "items": { "type": "integer" } });
    let schema = with_rule(
        json!({ "list": list }),
        "self.list.all(a, self.list.all(b, self.list.all(c, a + b + c >= 0)))",
    );
    let numbers: Vec<u32> = (0..200).collect();
    let text = "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: self.list.all(a, self.list.all(b, self.list.all(c, a + b + c >= 0)))";
    assert_eq!(
        said(schema, json!({ "list": numbers }), None),
        [format!("<nil>: Invalid value: \"object\": {text}")]
    );
    // Each item is cheap, and all of them are too much.
    let rule = json!([{ "rule": "self.all(a, self.all(b, a + b >= 0))" }]);
    let inner = json!({ "type": "array", "items": { "type": "integer" }, "x-kubernetes-validations": rule });
    let schema =
        json!({ "type": "object", "properties": { "list": { "type": "array", "items": inner } } });
    let lists: Vec<Vec<u32>> = (0..40).map(|_| (0..200).collect()).collect();
    let found = said(schema, json!({ "list": lists }), None);
    let text = "validation failed due to running out of cost budget, no further validation rules will be run";
    assert_eq!(found.len(), 1);
    assert!(found[0].ends_with(&format!("Invalid value: \"array\": {text}")), "{found:?}");
}

/// What is said of the rules of a schema when its definition is written.
fn written(schema: Json) -> Vec<String> {
    let version = json!({ "name": "v1", "schema": { "openAPIV3Schema": schema } });
    let definition = json!({ "spec": { "versions": [version] } });
    assert!(definition_faults(&definition, Some(&definition), &[]).is_empty());
    let errors = definition_faults(&definition, None, &[]);
    let root = "spec.validation.openAPIV3Schema";
    errors.iter().map(|error| error.to_string().replace(root, "~")).collect()
}

#[test]
fn rules_are_compiled_when_the_definition_is_written() {
    let shown = |rule: &str| {
        format!(
            r#"{{"Rule":"{rule}","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}}"#
        )
    };
    let wrong = "self.a == true";
    assert_eq!(
        written(with_rule(json!({ "a": { "type": "integer" } }), wrong)),
        [format!(
            "~.x-kubernetes-validations[0].rule: Invalid value: {}: compilation failed: ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(int, bool)'\n | {wrong}\n | .......^",
            shown(wrong)
        )]
    );
    let number = "self.a";
    assert_eq!(
        written(with_rule(json!({ "a": { "type": "integer" } }), number)),
        [format!(
            "~.x-kubernetes-validations[0].rule: Invalid value: {}: cel expression must evaluate to a bool",
            shown(number)
        )]
    );
    let schema = json!({ "type": "object", "properties": { "l": { "type": "array", "maxItems": 2,
        "items": { "type": "integer", "x-kubernetes-validations": [
            { "rule": "self == oldSelf" }, { "rule": "self == 1", "optionalOldSelf": true } ] } } } });
    assert_eq!(
        written(schema),
        [
            "~.properties[l].items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within ~.properties[l]",
            "~.properties[l].items.x-kubernetes-validations[1].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
        ]
    );
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "default": 1,
        "x-kubernetes-validations": [{ "rule": "self > 1" }] } } });
    assert_eq!(
        written(schema),
        ["~.properties[n].default: Invalid value: 1: failed rule: self > 1"]
    );
}

/// What a rule of a schema is estimated to cost.
fn estimated(schema: &Json, rule: &str) -> u64 {
    let root = Arc::new(json!({ "type": "object", "properties": { "x": schema } }));
    let way = [Step::Property("x".to_owned())];
    let compiler = Compiler::at(&root, Shape::of(schema), &way).expect("a type").estimating();
    let compiled = compiler.rule(&json!({ "rule": rule }), Shape::of(schema));
    assert!(compiled.program.is_ok(), "{rule}: {:?}", compiled.program.err());
    compiled.costs[0]
}

/// Each without a bound and with one, as upstream's `compilation_test.go` has them.
#[test]
fn costs_are_estimated_as_upstream_does() {
    let typed = |kind: &str| match kind {
        "int-or-string" => json!({ "x-kubernetes-int-or-string": true }),
        "duration" | "date" | "date-time" => json!({ "type": "string", "format": kind }),
        "list" => json!({ "type": "array", "items": { "type": "number" } }),
        "map" => json!({ "type": "object", "additionalProperties": { "type": "number" } }),
        kind => json!({ "type": kind }),
    };
    let list = |kind: &str| json!({ "type": "array", "items": typed(kind) });
    let map = |kind: &str| json!({ "type": "object", "additionalProperties": typed(kind) });
    let rows = [
        (list("number"), "self.all(x, true)", 4_718_591, 10, 32),
        (list("string"), "self.all(x, true)", 3_145_727, 20, 62),
        (list("boolean"), "self.all(x, true)", 1_887_437, 5, 17),
        (list("list"), "self.all(x, true)", 3_145_727, 100, 302),
        (map("number"), "self.all(x, true)", 1_348_169, 10, 32),
        (map("string"), "self.all(x, true)", 1_179_647, 3, 11),
        (map("boolean"), "self.all(x, true)", 943_718, 100, 302),
        (typed("string"), "self.contains('test')", 314_574, 10, 5),
        (typed("string"), "self.startsWith('test')", 2, 15, 2),
        (typed("string"), "self.endsWith('test')", 2, 30, 2),
        (typed("string"), "size(self + \"hello\") > size(\"hello\")", 314_578, 4, 7),
        (list("number"), "self[1] == 0.0", 2, 5000, 2),
        (list("string"), "self[1] == self[1]", 314_577, 8, 314_577),
        // Of the first of these upstream's table says only that it is too much.
        (list("number"), "self.all(x, self.all(y, true))", 7_421_701_914_624, 10, 352),
        (typed("string"), "self.matches(\"x\")", 314_574, 50, 22),
        (typed("string"), "\"\".matches(\"(((((((((())))))))))[0-9]\")", 7, 10, 7),
        (typed("string"), "self.matches(\"\")", 1, 100, 1),
        (list("number"), "self[3] == 0.0", 2, 0, 2),
        (map("number"), "self[\"x\"] == 0.0", 2, 0, 2),
        (typed("string"), "self == \"x\"", 2, 0, 1),
        (list("number"), "self.all(x, x == 0.0)", 6_291_454, 3 * 1024 * 2048, 25_165_826),
        (list("int-or-string"), "self.all(x, true)", 4_718_591, 10, 32),
        (list("int-or-string"), "self[0] == 5", 3, 10, 3),
        (list("boolean"), "self[0] == false", 2, 25, 2),
        (list("list"), "self[0][0] == -1.0", 3, 51, 3),
        (list("map"), "self.all(x, x.y == 25.2)", 6_291_452, 12, 74),
        (list("map"), "self[0].x > 2.0", 4, 3000, 4),
        (list("duration"), "self.all(x, true)", 2_359_295, 5, 17),
        (list("duration"), "self[0].getHours() == 2", 4, 525, 4),
        (list("date"), "self.all(x, true)", 725_936, 15, 47),
        (list("date"), "self[2].getDayOfMonth() == 13", 4, 42, 4),
        (list("date-time"), "self.all(x, true)", 428_963, 25, 77),
        (list("date-time"), "self[2].getMinutes() == 45", 4, 99, 4),
        (map("int-or-string"), "self.all(x, true)", 1_348_169, 15, 47),
    ];
    let mut faults = String::new();
    for (mut schema, rule, unbounded, bound, bounded) in rows {
        let found = estimated(&schema, rule);
        for field in ["maxItems", "maxProperties", "maxLength"] {
            schema[field] = bound.into();
        }
        let found = (found, estimated(&schema, rule));
        if found != (unbounded, bounded) {
            faults += &format!("{rule}: {found:?} instead of {:?}\n", (unbounded, bounded));
        }
    }
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn what_can_cost_too_much_is_refused() {
    let hint = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
    let text = json!({ "type": "array", "items": { "type": "string" } });
    let rule = "self.a.all(x, self.a.all(y, x != y))";
    assert_eq!(
        written(with_rule(json!({ "a": text }), rule)),
        [
            format!("~.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x {hint}"),
            "~.x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema".to_owned(),
            format!("~: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x {hint}"),
        ]
    );
    let text =
        json!({ "type": "array", "maxItems": 10, "items": { "type": "string", "maxLength": 10 } });
    assert_eq!(written(with_rule(json!({ "a": text }), rule)), [""; 0]);
}
