//! `-o kyaml`: YAML in JSON's braces, so that no indentation and no bare word means anything. The form
//! is that of upstream's `sigs.k8s.io/yaml/kyaml`.

use api::quote::Quoted;
use serde_json::{Number, Value};

/// A document, with the line that sets it off from others and from JSON.
pub fn encode(value: &Value) -> String {
    let mut out = String::from("---\n");
    node(value, 0, &mut out);
    out.push('\n');
    out
}

fn node(value: &Value, level: usize, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(value) => out.push_str(&number(value)),
        Value::String(text) => string(text, level + 1, out),
        Value::Array(items) => list(items, level, out),
        Value::Object(fields) if fields.is_empty() => out.push_str("{}"),
        Value::Object(fields) => {
            out.push_str("{\n");
            for (name, value) in fields {
                indent(level + 1, out);
                key(name, out);
                out.push_str(": ");
                node(value, level + 1, out);
                out.push_str(",\n");
            }
            indent(level, out);
            out.push('}');
        }
    }
}

/// Objects and lists in a list share their brackets' lines; anything else has a line of its own.
fn list(items: &[Value], level: usize, out: &mut String) {
    let cuddled = items.iter().all(|item| item.is_array() || item.is_object());
    out.push('[');
    if cuddled {
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push_str(", ");
            }
            node(item, level, out);
        }
    } else {
        out.push('\n');
        for item in items {
            indent(level + 1, out);
            node(item, level + 1, out);
            out.push_str(",\n");
        }
        indent(level, out);
    }
    out.push(']');
}

fn indent(level: usize, out: &mut String) {
    out.extend(std::iter::repeat_n("  ", level));
}

/// A number as Go's JSON writes it.
fn number(number: &Number) -> String {
    let float = match number.as_f64() {
        Some(float) if number.is_f64() => float,
        _ => return number.to_string(),
    };
    let magnitude = float.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{float:e}");
        return match text.split_once('e') {
            Some((digits, power)) if !power.starts_with('-') => format!("{digits}e+{power}"),
            _ => text,
        };
    }
    float.to_string()
}

/// Keys are bare unless something else could be read in them.
fn key(name: &str, out: &mut String) {
    if needs_quotes(name) {
        quoted(name, 0, Lines::Escaped, out);
    } else {
        out.push_str(name);
    }
}

fn string(text: &str, level: usize, out: &mut String) {
    let lines = if text.contains('\n') { Lines::Folded } else { Lines::Single };
    quoted(text, level, lines, out);
}

/// How the ends of lines in a text are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines {
    /// There are none.
    Single,
    /// Each line of the text on a line of its own.
    Folded,
    /// All on one line.
    Escaped,
}

fn quoted(text: &str, level: usize, lines: Lines, out: &mut String) {
    out.push('"');
    let mut fresh = lines == Lines::Folded;
    if fresh {
        out.push_str("\\\n");
    }
    for c in text.chars() {
        if fresh {
            indent(level, out);
            // Leading space of a line is dropped unless it is escaped; what needs no escape gets a space
            // instead, so that the lines of the text stay below each other.
            out.push(if c.is_whitespace() && c != '\n' { '\\' } else { ' ' });
        }
        fresh = c == '\n' && lines == Lines::Folded;
        escaped(c, lines, out);
    }
    if lines == Lines::Folded {
        if !fresh {
            out.push_str("\\\n");
        }
        indent(level, out);
    }
    out.push('"');
}

fn escaped(c: char, lines: Lines, out: &mut String) {
    match c {
        '\n' if lines == Lines::Folded => out.push_str("\\n\\\n"),
        '\n' => out.push_str("\\n"),
        '\t' if lines == Lines::Escaped => out.push_str("\\t"),
        '\t' => out.push('\t'),
        '"' | '\\' => out.extend(['\\', c]),
        c if is_printable(c) => out.push(c),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\r' => out.push_str("\\r"),
        '\x0b' => out.push_str("\\v"),
        '\0' => out.push_str("\\0"),
        '\x1b' => out.push_str("\\e"),
        '\u{85}' => out.push_str("\\N"),
        '\u{a0}' => out.push_str("\\_"),
        '\u{2028}' => out.push_str("\\L"),
        '\u{2029}' => out.push_str("\\P"),
        c => {
            let code = u32::from(c);
            out.push_str(&match code {
                0..0x20 | 0x7f => format!("\\x{code:02x}"),
                0..0x10000 => format!("\\u{code:04x}"),
                _ => format!("\\U{code:08x}"),
            });
        }
    }
}

/// Go's `unicode.IsPrint`, which `%q` goes by.
fn is_printable(c: char) -> bool {
    let mut buffer = [0; 4];
    let text: &str = c.encode_utf8(&mut buffer);
    !Quoted(text).to_string().contains('\\')
}

fn needs_quotes(text: &str) -> bool {
    if text.is_empty() || is_ambiguous(text) {
        return true;
    }
    let last = text.chars().count() - 1;
    text.chars().enumerate().any(|(i, c)| {
        let inside = i > 0 && i < last && matches!(c, '-' | '.' | '/');
        !(c.is_alphabetic() || c.is_numeric() || c == '_' || inside)
    })
}

/// Whether some reader of YAML would take the bare text for anything but text.
fn is_ambiguous(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "null", "~", "true", "t", "y", "yes", "on", "1", "false", "f", "n", "no", "off", "0",
        ".inf", ".nan",
    ];
    let lower = text.to_ascii_lowercase();
    WORDS.contains(&lower.as_str()) || is_number(&lower.replace('_', "")) || is_date(text)
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let based = |prefix: &str, radix: u32| {
        let digits = digits.strip_prefix(prefix);
        digits.is_some_and(|digits| u64::from_str_radix(digits, radix).is_ok())
    };
    // Rust reads what Go reads: decimals, exponents, inf, infinity and nan.
    based("0x", 16) || based("0o", 8) || based("0b", 2) || text.parse::<f64>().is_ok()
}

/// `2006-1-2`; longer moments have a colon, which is quoted anyway.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if year.len() != 4
        || !digits(year)
        || !digits(month)
        || !digits(day)
        || month.len() > 2
        || day.len() > 2
    {
        return false;
    }
    let (Ok(year), Ok(month), Ok(day)) = (year.parse(), month.parse::<i8>(), day.parse::<i8>())
    else {
        return false;
    };
    jiff::civil::Date::new(year, month, day).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use serde_json::json;

    fn check(value: Value, expected: Expect) {
        expected.assert_eq(&encode(&value));
    }

    #[test]
    fn objects_have_braces_and_lists_of_them_share_lines() {
        check(
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a"}, {"name": "b"}],
                "args": ["x", 1, true, null], "empty": [], "none": {}, "nested": [[1], [2]]}}),
            expect![[r#"
                ---
                {
                  apiVersion: "v1",
                  kind: "Pod",
                  spec: {
                    args: [
                      "x",
                      1,
                      true,
                      null,
                    ],
                    containers: [{
                      name: "a",
                    }, {
                      name: "b",
                    }],
                    empty: [],
                    nested: [[
                      1,
                    ], [
                      2,
                    ]],
                    none: {},
                  },
                }
            "#]],
        );
    }

    #[test]
    fn lines_of_text_stay_lines() {
        check(
            json!({"a": "one\n  two\n\nthree", "b": "end\n", "c": "tab\there \"quoted\" \u{1b}[0m"}),
            expect![[r#"
                ---
                {
                  a: "\
                     one\n\
                    \  two\n\
                     \n\
                     three\
                    ",
                  b: "\
                     end\n\
                    ",
                  c: "tab	here \"quoted\" \e[0m",
                }
            "#]],
        );
    }

    #[test]
    fn keys_are_quoted_where_they_could_be_something_else() {
        for (name, bare) in [
            ("app", true),
            ("app.kubernetes.io/name", true),
            ("no", false),
            ("True", false),
            ("y", false),
            ("12", false),
            ("0x1f", false),
            ("1e3", false),
            ("1_000", false),
            ("2024-01-02", false),
            ("2024-13-02", true),
            ("-x", false),
            ("a b", false),
            ("null", false),
            ("nan", false),
            ("key.pem", true),
        ] {
            assert_eq!(!needs_quotes(name), bare, "{name}");
        }
    }

    #[test]
    fn numbers_are_go_s() {
        for (json, want) in
            [("3.0", "3"), ("1.5", "1.5"), ("1e21", "1e+21"), ("1e-7", "1e-7"), ("7", "7")]
        {
            assert_eq!(number(&serde_json::from_str(json).unwrap()), want);
        }
    }
}
