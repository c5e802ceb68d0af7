use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn check(error: Error, want: Expect) {
    want.assert_eq(&error.to_string());
}

#[test]
fn messages_name_the_path_the_fault_the_value_and_the_detail() {
    let spec = Path::new("spec");
    let p = spec.child("x");
    check(Error::required(&p, ""), expect!["spec.x: Required value"]);
    check(
        Error::required(&p, "name or generateName is required"),
        expect!["spec.x: Required value: name or generateName is required"],
    );
    check(
        Error::invalid(&p, "a\"b", "must be nice"),
        expect![[r#"spec.x: Invalid value: "a\"b": must be nice"#]],
    );
    check(
        Error::invalid(&p, -1, "must be positive"),
        expect!["spec.x: Invalid value: -1: must be positive"],
    );
    check(Error::invalid(&p, true, ""), expect!["spec.x: Invalid value: true"]);
    check(Error::invalid(&p, None::<i32>, "x"), expect!["spec.x: Invalid value: null: x"]);
    check(
        Error::invalid(&p, BadValue::json(&json!({"a": "<b>"})), "x"),
        expect![[r#"spec.x: Invalid value: {"a":"\u003cb\u003e"}: x"#]],
    );
    check(
        Error::type_invalid(&p, &json!([1]), "must be a string"),
        expect!["spec.x: Invalid value: [1]: must be a string"],
    );
    check(
        Error::not_supported(&p, "C", ["A", "B"]),
        expect![[r#"spec.x: Unsupported value: "C": supported values: "A", "B""#]],
    );
    check(Error::not_supported(&p, "C", [""; 0]), expect![[r#"spec.x: Unsupported value: "C""#]]);
    check(Error::duplicate(&p, "d"), expect![[r#"spec.x: Duplicate value: "d""#]]);
    check(
        Error::forbidden(&p, "may not be changed"),
        expect!["spec.x: Forbidden: may not be changed"],
    );
    check(Error::not_found(&p, "n"), expect![[r#"spec.x: Not found: "n""#]]);
    check(Error::too_long(&p, 63), expect!["spec.x: Too long: may not be more than 63 bytes"]);
    check(Error::too_long(&p, 1), expect!["spec.x: Too long: may not be more than 1 byte"]);
    check(Error::too_short(&p, 1), expect!["spec.x: Too short: must be at least 1 character"]);
    check(
        Error::too_many(&p, Some(9), 8),
        expect!["spec.x: Too many: 9: must have at most 8 items"],
    );
    check(Error::too_many(&p, None, 1), expect!["spec.x: Too many: must have at most 1 item"]);
    check(Error::too_few(&p, 0, 1), expect!["spec.x: Too few: 0: must have at least 1 item"]);
    check(Error::internal(&p, "boom"), expect!["spec.x: Internal error: boom"]);
}

#[test]
fn floats_print_as_go_prints_them() {
    for (value, want) in [
        (1.0, "1"),
        (0.5, "0.5"),
        (123456.5, "123456.5"),
        (1e6, "1e+06"),
        (1.5e-7, "1.5e-07"),
        (0.0001, "0.0001"),
        (f64::NEG_INFINITY, "-Inf"),
        (f64::NAN, "NaN"),
    ] {
        assert_eq!(BadValue::from(value).text(), Some(want));
    }
}

#[test]
fn one_error_stands_alone_and_repetitions_are_dropped() {
    let p = Path::new("a");
    let first = Error::required(&p, "");
    let second = Error::duplicate(&p, "x");
    assert_eq!(aggregate(&[]), None);
    assert_eq!(aggregate(&[first.clone(), first.clone()]).unwrap(), "a: Required value");
    assert_eq!(
        aggregate(&[first.clone(), second, first]).unwrap(),
        r#"[a: Required value, a: Duplicate value: "x"]"#
    );
}
