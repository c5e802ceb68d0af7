//! YAML written as upstream writes it: sorted keys, lists not indented below their key, text in
//! the plainest style that reads back as the same text.
use serde_json::Value;

/// One document, ending in a line break.
pub fn encode(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(o) if !o.is_empty() => block(value, 0, &mut out),
        Value::Array(a) if !a.is_empty() => block(value, 0, &mut out),
        _ => {
            scalar(value, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// A mapping or sequence that is not empty, each entry on a line of its own.
fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(object) => {
            for (i, (key, value)) in object.iter().enumerate() {
                if i > 0 {
                    pad(indent, out);
                }
                text(key, indent, false, out);
                out.push(':');
                match value {
                    Value::Object(o) if !o.is_empty() => {
                        out.push('\n');
                        pad(indent + 2, out);
                        block(value, indent + 2, out);
                    }
                    Value::Array(a) if !a.is_empty() => {
                        out.push('\n');
                        pad(indent, out);
                        block(value, indent, out);
                    }
                    _ => {
                        out.push(' ');
                        scalar(value, indent + 2, out);
                        out.push('\n');
                    }
                }
            }
        }
        Value::Array(array) => {
            for (i, value) in array.iter().enumerate() {
                if i > 0 {
                    pad(indent, out);
                }
                out.push_str("- ");
                match value {
                    Value::Object(o) if !o.is_empty() => block(value, indent + 2, out),
                    Value::Array(a) if !a.is_empty() => block(value, indent + 2, out),
                    _ => {
                        scalar(value, indent + 2, out);
                        out.push('\n');
                    }
                }
            }
        }
        _ => scalar(value, indent, out),
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn scalar(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::String(s) => text(s, indent, true, out),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        Value::Number(n) => match n.as_f64() {
            Some(f) if n.is_f64() && f.fract() == 0.0 && f.abs() < 1e15 => {
                out.push_str(&format!("{f}"))
            }
            _ => out.push_str(&n.to_string()),
        },
        other => out.push_str(&other.to_string()),
    }
}

/// Text, in the style that upstream's library would choose.
fn text(s: &str, indent: usize, may_span_lines: bool, out: &mut String) {
    let printable =
        s.chars().all(|c| c == '\n' || c == '\t' || (!c.is_control() && c != '\u{feff}'));
    let several_lines = s.contains('\n');
    if !printable || (several_lines && !may_span_lines) {
        double_quoted(s, out);
    } else if several_lines {
        literal(s, indent, out);
    } else if s.is_empty() || reads_as_other_than_text(s) {
        double_quoted(s, out);
    } else if is_plain(s) {
        out.push_str(s);
    } else if s.contains('\t') {
        double_quoted(s, out);
    } else {
        out.push('\'');
        out.push_str(&s.replace('\'', "''"));
        out.push('\'');
    }
}

/// `|`, with what it takes to keep the line breaks at the end.
fn literal(s: &str, indent: usize, out: &mut String) {
    let body = s.trim_end_matches('\n');
    if body.is_empty()
        || body.contains('\t') && body.lines().any(|l| l.ends_with(char::is_whitespace))
    {
        return double_quoted(s, out);
    }
    out.push('|');
    if s.starts_with([' ', '\n']) {
        out.push('2');
    }
    match s.len() - body.len() {
        0 => out.push('-'),
        1 => {}
        _ => out.push('+'),
    }
    let content = if s.len() - body.len() > 1 { &s[..s.len() - 1] } else { body };
    for line in content.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(indent, out);
            out.push_str(line);
        }
    }
}

fn double_quoted(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0' => out.push_str("\\0"),
            c if c.is_control() || c == '\u{feff}' => match c as u32 {
                code @ 0..=0xff => out.push_str(&format!("\\x{code:02X}")),
                code => out.push_str(&format!("\\u{code:04X}")),
            },
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Whether plain text would be read back as a boolean, a number, null, a date or a merge key.
fn reads_as_other_than_text(s: &str) -> bool {
    const WORDS: &[&str] = &[
        "~", "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE", "yes",
        "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF", "y", "Y", "n", "N",
        "<<", "=", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF",
        ".nan", ".NaN", ".NAN",
    ];
    WORDS.contains(&s) || is_number(s) || is_date(s)
}

fn is_number(s: &str) -> bool {
    let unsigned = s.strip_prefix(['+', '-']).unwrap_or(s);
    let digits = unsigned.replace('_', "");
    if digits.is_empty() || !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return false;
    }
    let based = |prefix: &str, radix: u32| {
        digits.strip_prefix(prefix).is_some_and(|d| u128::from_str_radix(d, radix).is_ok())
    };
    based("0x", 16)
        || based("0o", 8)
        || based("0b", 2)
        || is_sexagesimal(unsigned)
        || is_decimal(&digits)
}

/// YAML 1.1's base 60, as in `12:30`: other readers take it for a number, so it is quoted.
fn is_sexagesimal(s: &str) -> bool {
    let mut parts = s.split(':');
    let head = parts.next().unwrap_or("");
    let all_digits = |p: &str| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit());
    let mut any = false;
    for part in parts {
        any = true;
        let part = part.split('.').next().unwrap_or("");
        if !all_digits(part) || part.len() > 2 || part.len() == 2 && part.as_bytes()[0] > b'5' {
            return false;
        }
    }
    any && all_digits(head)
}

/// Digits, perhaps a point, perhaps an exponent.
fn is_decimal(s: &str) -> bool {
    let (mantissa, exponent) = match s.find(['e', 'E']) {
        Some(at) => (&s[..at], Some(&s[at + 1..])),
        None => (s, None),
    };
    let exponent_ok = exponent.is_none_or(|e| {
        let digits = e.strip_prefix(['+', '-']).unwrap_or(e);
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    });
    let points = mantissa.bytes().filter(|b| *b == b'.').count();
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    exponent_ok && points <= 1 && digits > 0 && points + digits == mantissa.len()
}

/// A date or timestamp at the start: YAML 1.1 has them as a type.
fn is_date(s: &str) -> bool {
    let b = s.as_bytes();
    let digits = |range: std::ops::Range<usize>| {
        b.get(range).is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    digits(0..4) && b.get(4) == Some(&b'-') && {
        let rest = &s[5..];
        let month = rest.find('-').filter(|at| (1..=2).contains(at));
        month.is_some_and(|at| {
            let day = &rest[at + 1..];
            let length = day.bytes().take_while(u8::is_ascii_digit).count();
            (1..=2).contains(&length)
                && rest[..at].bytes().all(|b| b.is_ascii_digit())
                && matches!(day.as_bytes().get(length), None | Some(b'T' | b't' | b' '))
        })
    }
}

fn is_plain(s: &str) -> bool {
    let first_ok = !s.starts_with(|c: char| {
        matches!(
            c,
            '#' | ','
                | '['
                | ']'
                | '{'
                | '}'
                | '&'
                | '*'
                | '!'
                | '|'
                | '>'
                | '\''
                | '"'
                | '%'
                | '@'
                | '`'
                | ' '
                | '\t'
        )
    });
    let indicator = s.starts_with("- ") || s.starts_with("? ") || s.starts_with(": ");
    let alone = matches!(s, "-" | "?" | ":");
    let document = s.starts_with("---") || s.starts_with("...");
    first_ok
        && !indicator
        && !alone
        && !document
        && !s.contains(": ")
        && !s.contains(" #")
        && !s.contains('\t')
        && !s.ends_with(':')
        && !s.ends_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use serde_json::json;

    fn check(value: Value, expected: Expect) {
        let yaml = encode(&value);
        expected.assert_eq(&yaml);
        let back = super::super::decode_untyped(yaml.as_bytes()).unwrap().value;
        assert_eq!(back, value, "reads back as something else");
    }

    #[test]
    fn lists_stand_below_their_key() {
        check(
            json!({"spec": {"containers": [{"name": "a", "args": ["x", []]}], "empty": {}, "none": []}}),
            expect![[r#"
                spec:
                  containers:
                  - args:
                    - x
                    - []
                    name: a
                  empty: {}
                  none: []
            "#]],
        );
    }

    #[test]
    fn text_that_looks_like_something_else_is_quoted() {
        check(
            json!([
                "true",
                "1",
                "1.5",
                "0x10",
                "12:30:45",
                "2020-01-01",
                "",
                "a: b",
                "a #b",
                "- a",
                "it's",
                "null",
                "yes",
                "1e3",
                "plain text",
                ":",
                "*",
                "@x",
                "1.2.3",
                "10.0.0.0/8"
            ]),
            expect![[r#"
                - "true"
                - "1"
                - "1.5"
                - "0x10"
                - "12:30:45"
                - "2020-01-01"
                - ""
                - 'a: b'
                - 'a #b'
                - '- a'
                - it's
                - "null"
                - "yes"
                - "1e3"
                - plain text
                - ':'
                - '*'
                - '@x'
                - 1.2.3
                - 10.0.0.0/8
            "#]],
        );
    }

    #[test]
    fn several_lines_are_a_literal() {
        check(
            json!({"a": "one\ntwo\n", "b": "one\ntwo", "c": "one\n\n", "d": "  indented\nx", "e": "tab\there"}),
            expect![[r#"
                a: |
                  one
                  two
                b: |-
                  one
                  two
                c: |+
                  one

                d: |2-
                    indented
                  x
                e: "tab\there"
            "#]],
        );
    }
}
