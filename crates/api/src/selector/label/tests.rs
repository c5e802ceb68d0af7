use expect_test::{Expect, expect};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::field::Path;

/// The canonical form, or the error.
fn check(text: &str, want: Expect) {
    want.assert_eq(&match Selector::parse(text) {
        Ok(selector) => selector.to_string(),
        Err(error) => error.to_string(),
    });
}

#[test]
fn selectors_print_in_canonical_form() {
    check("", expect![""]);
    check(" x = a , y != b", expect!["x=a,y!=b"]);
    check("z,a==b,!c", expect!["a==b,!c,z"]);
    check("x in (foo,,baz),y,z notin ()", expect!["x in (,baz,foo),y,z notin ()"]);
    check("x in (b,a,b)", expect!["x in (a,b)"]);
    check("x=,y=z", expect!["x=,y=z"]);
    check(
        "x>1,y<-2",
        expect![[
            r#"unable to parse requirement: values[0][y]: Invalid value: "-2": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#
        ]],
    );
    check("x>1,y<2", expect!["x>1,y<2"]);
    check("in in (in,notin)", expect!["in in (in,notin)"]);
    check("notin=in", expect!["notin=in"]);
    check("!in", expect!["!in"]);
}

#[test]
fn faults_are_named_as_upstream_names_them() {
    check(
        "x a",
        expect!["unable to parse requirement: found 'a', expected: in, notin, =, ==, !=, gt, lt"],
    );
    check(
        "x=a||y=b",
        expect![[
            r#"unable to parse requirement: values[0][x]: Invalid value: "a||y": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#
        ]],
    );
    check("x,,y", expect!["found ',', expected: identifier after ','"]);
    check(",x", expect!["found ',', expected: !, identifier, or 'end of string'"]);
    check("x=a y", expect!["found 'y', expected: ',' or 'end of string'"]);
    check("!x=a", expect!["found '=', expected: ',' or 'end of string'"]);
    check("x in a", expect!["unable to parse requirement: found 'a' expected: '('"]);
    check("x in (a b)", expect!["unable to parse requirement: found 'b', expected: ',' or ')'"]);
    check(
        "x in (=)",
        expect!["unable to parse requirement: found '=', expected: ',', ')' or identifier"],
    );
    check(
        "x>a",
        expect![[
            r#"unable to parse requirement: values[0]: Invalid value: "a": for 'Gt', 'Lt' operators, the value must be an integer"#
        ]],
    );
    check(
        "-x",
        expect![[
            r#"unable to parse requirement: <nil>: Invalid value: "-x": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#
        ]],
    );
}

#[test]
fn all_requirements_must_hold() {
    let labels = json!({"app": "web", "tier": "front", "rank": "10"});
    for (text, want) in [
        ("", true),
        ("app=web", true),
        ("app=web,tier!=back", true),
        ("app=api", false),
        ("app in (api,web)", true),
        ("app notin (api,web)", false),
        ("absent!=x,absent notin (y),!absent", true),
        ("absent", false),
        ("rank>9,rank<11", true),
        ("rank>10", false),
        ("app>1", false),
        ("absent<1", false),
    ] {
        let selector = Selector::parse(text).unwrap();
        assert_eq!(selector.matches(&labels), want, "{text}");
        assert_eq!(selector.matches(&Lookup::new(|key| labels[key].as_str())), want, "{text}");
    }
    assert!(!Selector::nothing().matches(&labels));
    assert!(Selector::everything().matches(&None::<BTreeMap<String, String>>));
}

#[test]
fn an_index_sees_the_exact_values() {
    let selector = Selector::parse("a=1,b in (2),c in (3,4),d!=5").unwrap();
    let exact = |key| selector.requires_exact_match(key);
    assert_eq!(
        (exact("a"), exact("b"), exact("c"), exact("d")),
        (Some("1"), Some("2"), None, None)
    );
    assert_eq!(selector.requirements().map(<[_]>::len), Some(4));
}

fn label_selector(json: serde_json::Value) -> LabelSelector {
    serde_json::from_value(json).unwrap()
}

#[test]
fn the_label_selector_of_an_object_compiles() {
    let check = |json, want: Expect| {
        let text = match Selector::from_label_selector(Some(&label_selector(json))) {
            Ok(selector) => selector.to_string(),
            Err(error) => error.to_string(),
        };
        want.assert_eq(&text);
    };
    check(json!({}), expect![""]);
    check(
        json!({"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [
            {"key": "c", "operator": "NotIn", "values": ["y", "x"]},
            {"key": "a", "operator": "Exists"}]}),
        expect!["a=1,a,b=2,c notin (x,y)"],
    );
    check(
        json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
        expect![
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
        ],
    );
    check(
        json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}),
        expect![[r#""Near" is not a valid label selector operator"#]],
    );
    assert!(Selector::from_label_selector(None).unwrap().is_nothing());
    assert_eq!(format_label_selector(None), "<none>");
}

#[test]
fn a_selector_becomes_a_label_selector_again() {
    let selector = Selector::parse("a=1,b in (x,y),!c,d,e!=2").unwrap();
    let label_selector = selector.to_label_selector().unwrap();
    expect![[r#"{"matchExpressions":[{"key":"b","operator":"In","values":["x","y"]},{"key":"c","operator":"DoesNotExist"},{"key":"d","operator":"Exists"},{"key":"e","operator":"NotIn","values":["2"]}],"matchLabels":{"a":"1"}}"#]]
        .assert_eq(&serde_json::to_string(&label_selector).unwrap());
    let again = Selector::from_label_selector(label_selector.as_ref()).unwrap();
    assert_eq!(again.to_string(), "a=1,b in (x,y),!c,d,e notin (2)");
    let error = Selector::parse("a>1").unwrap().to_label_selector().unwrap_err();
    assert_eq!(error.to_string(), "\"gt\" isn't supported in label selectors");
}

#[test]
fn validation_names_the_place_of_each_fault() {
    let selector = label_selector(json!({"matchLabels": {"-": "_"}, "matchExpressions": [
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Exists", "values": ["b"]},
        {"key": "a", "operator": "Near"}]}));
    let errors = validate_label_selector(Some(&selector), &Path::new("spec.selector"));
    let lines: Vec<_> =
        errors.iter().map(|e| format!("{} {}", e.field, e.error_type.text())).collect();
    expect![[r#"
        spec.selector.matchLabels Invalid value
        spec.selector.matchLabels Invalid value
        spec.selector.matchExpressions[0].values Required value
        spec.selector.matchExpressions[1].values Forbidden
        spec.selector.matchExpressions[2].operator Invalid value"#]]
    .assert_eq(&lines.join("\n"));
}

fn any_selector() -> impl Strategy<Value = String> {
    let key = "[a-z]([-a-z]{0,2}[a-z])?(/in)?";
    let value = "([a-z0-9]([-._a-z0-9]{0,3}[a-z0-9])?)?";
    let requirement = prop_oneof![
        key.prop_map(|k| k),
        key.prop_map(|k| format!("!{k}")),
        (key, "=|==|!=", value).prop_map(|(k, o, v)| format!("{k}{o}{v}")),
        (key, "in|notin", prop::collection::vec(value, 0..4))
            .prop_map(|(k, o, v)| format!("{k} {o} ({})", v.join(","))),
        (key, "[<>]", 0..100u8).prop_map(|(k, o, n)| format!("{k}{o}{n}")),
    ];
    prop::collection::vec(requirement, 0..5).prop_map(|all| all.join(","))
}

proptest! {
    #[test]
    fn the_canonical_form_parses_to_the_same_selector(text in any_selector()) {
        let selector = Selector::parse(&text).unwrap();
        prop_assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC*|[a=!<>(), in\0]*") {
        let _ = Selector::parse(&text);
    }
}
