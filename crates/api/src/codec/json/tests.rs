//! What strict decoding makes of JSON, each line as upstream has it.
use super::*;
use crate::schema::builtin;
use expect_test::{Expect, expect};

/// Decodes `json` as a kind of core/v1 or apps/v1 and shows all that came of it.
fn check(kind: &str, json: &str, expected: Expect) {
    let ty = builtin().kind("", "v1", kind).or_else(|| builtin().kind("apps", "v1", kind)).unwrap();
    let shown = match decode(json.as_bytes(), ty) {
        Ok(decoded) => {
            let problems: String = decoded.problems.iter().map(|p| format!("\n{p}")).collect();
            format!("{}{problems}", decoded.value)
        }
        Err(error) => format!("error: {error}"),
    };
    expected.assert_eq(&shown);
}

#[test]
fn unknown_and_duplicate_fields_are_found_with_their_paths() {
    check(
        "Pod",
        r#"{"spec":{"containers":[{"name":"a","imagee":"b","name":"c"}],"x":{"deep":1}},
            "metadata":{"labels":{"l":"1","l":"2"}},"extra":0,"extra":1}"#,
        expect![[r#"
            {"metadata":{"labels":{"l":"2"}},"spec":{"containers":[{"name":"c","resources":{}}]},"status":{}}
            unknown field "spec.containers[0].imagee"
            duplicate field "spec.containers[0].name"
            unknown field "spec.x"
            duplicate field "metadata.labels.l"
            unknown field "extra""#]],
    );
}

#[test]
fn empty_optional_values_go_and_required_ones_appear() {
    check(
        "Deployment",
        r#"{"metadata":{"name":"","labels":{},"creationTimestamp":null},
            "spec":{"replicas":0,"paused":false,"template":{"spec":{"hostNetwork":false,"nodeSelector":null}}}}"#,
        expect![[
            r#"{"metadata":{},"spec":{"replicas":0,"selector":null,"strategy":{},"template":{"metadata":{},"spec":{"containers":null}}},"status":{}}"#
        ]],
    );
}

#[test]
fn scalars_take_their_one_spelling() {
    check(
        "Pod",
        r#"{"metadata":{"creationTimestamp":"2020-01-01T02:00:00.5+02:00"},
            "spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":0.1,"memory":"1024Mi"}},
            "livenessProbe":{"httpGet":{"port":"http"}}}]}}"#,
        expect![[
            r#"{"metadata":{"creationTimestamp":"2020-01-01T00:00:00Z"},"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":"http"}},"name":"a","resources":{"limits":{"cpu":"100m","memory":"1Gi"}}}]},"status":{}}"#
        ]],
    );
}

#[test]
fn a_wrong_type_is_named_as_go_names_it() {
    check(
        "Pod",
        r#"{"spec":{"containers":{"name":"a"}}}"#,
        expect![
            "error: json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container"
        ],
    );
    check(
        "Pod",
        r#"{"spec":{"containers":[{"imagePullPolicy":1}]}}"#,
        expect![
            "error: json: cannot unmarshal number into Go struct field Container.spec.containers.imagePullPolicy of type v1.PullPolicy"
        ],
    );
    check(
        "Pod",
        r#"{"spec":{"volumes":[{"emptyDir":"x"}]}}"#,
        expect![
            "error: json: cannot unmarshal string into Go struct field Volume.spec.volumes.VolumeSource.emptyDir of type v1.EmptyDirVolumeSource"
        ],
    );
    check(
        "Deployment",
        r#"{"spec":{"replicas":3000000000}}"#,
        expect![
            "error: json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32"
        ],
    );
    check("Pod", "[]", expect!["error: json: cannot unmarshal array into Go value of type v1.Pod"]);
}

#[test]
fn a_syntax_error_anywhere_comes_first() {
    check(
        "Pod",
        r#"{"spec":{"containers":{}}, oops}"#,
        expect!["error: invalid character 'o' looking for beginning of object key string"],
    );
}

#[test]
fn syntax_errors_are_gos() {
    for (json, want) in [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ("{\"a", "unexpected end of JSON input"),
        ("{\"a\":[1", "unexpected end of JSON input"),
        ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
        ("{\"a\" 1}", "invalid character '1' after object key"),
        ("{\"a\":1 2}", "invalid character '2' after object key:value pair"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("[1 2]", "invalid character '2' after array element"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("{}'", "invalid character '\\'' after top-level value"),
        ("{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
        ("[nul", "invalid character ' ' in literal null (expecting 'l')"),
        ("[trux]", "invalid character 'x' in literal true (expecting 'e')"),
        ("01", "invalid character '1' after top-level value"),
        ("-", "invalid character ' ' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1e", "invalid character ' ' in exponent of numeric literal"),
        ("\"\\x\"", "invalid character 'x' in string escape code"),
        ("\"\\u12g\"", "invalid character 'g' in \\u hexadecimal character escape"),
        ("\"a\nb\"", "invalid character '\\n' in string literal"),
        ("\u{feff}{}", "invalid character 'ï' looking for beginning of value"),
    ] {
        assert_eq!(decode_untyped(json.as_bytes()).unwrap_err().to_string(), want, "{json}");
    }
}

#[test]
fn broken_text_is_repaired() {
    for (json, want) in [
        (&b"\"a\xffb\""[..], "a\u{fffd}b"),
        (b"\"\xe2\x82x\"", "\u{fffd}\u{fffd}x"),
        (br#""\ud800""#, "\u{fffd}"),
        (br#""\ud800\u0041""#, "\u{fffd}A"),
        (br#""\ud83d\ude00\n\/""#, "\u{1f600}\n/"),
    ] {
        assert_eq!(decode_untyped(json).unwrap().value, want);
    }
}

#[test]
fn an_error_of_a_self_decoding_type_beats_an_earlier_wrong_type() {
    check(
        "Pod",
        r#"{"metadata":{"name":1,"labels":[],"creationTimestamp":"noon"}}"#,
        expect![[
            r#"error: parsing time "noon" as "2006-01-02T15:04:05Z07:00": cannot parse "noon" as "2006""#
        ]],
    );
    check(
        "Pod",
        r#"{"metadata":{"name":1,"labels":[]}}"#,
        expect![
            "error: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string"
        ],
    );
    check(
        "Pod",
        r#"{"metadata":{"creationTimestamp":5}}"#,
        expect![
            "error: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string"
        ],
    );
    check(
        "Service",
        r#"{"spec":{"ports":[{"targetPort":1.5}]}}"#,
        expect![
            "error: json: cannot unmarshal number 1.5 into Go struct field ServicePort.spec.ports.targetPort of type int32"
        ],
    );
}

#[test]
fn numbers_keep_their_spelling() {
    for (json, want) in [
        ("1.0", "number 1.0"),
        ("1e3", "number 1e3"),
        ("9223372036854775808", "number 9223372036854775808"),
        ("1e400", "number 1e400"),
    ] {
        let ty = builtin().kind("", "v1", "Pod").unwrap();
        let json = format!(r#"{{"metadata":{{"generation":{json}}}}}"#);
        let error = decode(json.as_bytes(), ty).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
    check(
        "ResourceQuota",
        r#"{"metadata":{"generation":-0},"spec":{"hard":{"a":1E3,"b":1.000000000000000000001,"c":" 5"}}}"#,
        expect![[
            r#"{"metadata":{},"spec":{"hard":{"a":"1E3","b":"1000000001n","c":"5"}},"status":{}}"#
        ]],
    );
}

#[test]
fn a_repeated_field_is_decoded_on_top_of_the_first() {
    check(
        "Pod",
        r#"{"metadata":{"name":"a","labels":{"x":"1"}},
            "metadata":{"name":null,"uid":"b","labels":{"y":"2"}},"metadata":null}"#,
        expect![[r#"
            {"metadata":{"labels":{"x":"1","y":"2"},"name":"a","uid":"b"},"spec":{"containers":null},"status":{}}
            duplicate field "metadata""#]],
    );
}

#[test]
fn bytes_are_read_as_go_reads_them() {
    check(
        "Secret",
        r#"{"data":{"a":"AB==","b":"AA\nAA","c":[1,null,255],"d":[]}}"#,
        expect![[r#"{"data":{"a":"AA==","b":"AAAA","c":"AQD/","d":""},"metadata":{}}"#]],
    );
    for (text, at) in [("AAA", 0), ("A===", 1), ("AAAA!", 4), ("AA=A", 2), ("AA==A", 4), ("AA=", 3)]
    {
        let secret = builtin().kind("", "v1", "Secret").unwrap();
        let json = format!(r#"{{"data":{{"a":"{text}"}}}}"#);
        let want = format!("illegal base64 data at input byte {at}");
        assert_eq!(decode(json.as_bytes(), secret).unwrap_err().to_string(), want, "{text}");
    }
}

#[test]
fn the_zero_time_is_null_and_null_is_the_zero_object() {
    check(
        "Event",
        r#"{"firstTimestamp":"0001-01-01T00:00:00Z"}"#,
        expect![[
            r#"{"eventTime":null,"firstTimestamp":null,"involvedObject":{},"lastTimestamp":null,"metadata":{},"reportingComponent":"","reportingInstance":"","source":{}}"#
        ]],
    );
    check("ConfigMap", "null", expect![[r#"{"metadata":{}}"#]]);
}

#[test]
fn raw_content_is_kept_and_not_looked_into() {
    check(
        "ControllerRevision",
        r#"{"data":{"a":null,"b":{"a":1,"a":2}},"revision":1}"#,
        expect![[r#"{"data":{"a":null,"b":{"a":2}},"metadata":{},"revision":1}"#]],
    );
}

#[test]
fn nesting_has_a_limit() {
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(decode_untyped(deep.as_bytes()), Err(DecodeError::TooDeep));
}
