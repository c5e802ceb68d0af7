//! Text quoted as Go quotes it.
//!
//! Clients, and tests of clients, read the text of Kubernetes' error messages; there a string
//! value is printed with Go's `%q` and any other value as Go's `encoding/json` prints it. Rust's
//! `{:?}` and `serde_json` differ in the escapes, so that the difference shows exactly for the
//! odd input that people then paste into a bug report.

use serde_json::Value;
use std::fmt::{self, Write};

/// Prints a string as Go's `%q` does: `format!("{}", Quoted("a\"b"))` is `"a\"b"`.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\x07' => f.write_str("\\a")?,
                '\x08' => f.write_str("\\b")?,
                '\x0c' => f.write_str("\\f")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\x0b' => f.write_str("\\v")?,
                ' '..='~' => f.write_char(c)?,
                '\0'..='\x7f' => write!(f, "\\x{:02x}", c as u32)?,
                _ if is_printable(c) => f.write_char(c)?,
                '\0'..='\u{ffff}' => write!(f, "\\u{:04x}", c as u32)?,
                _ => write!(f, "\\U{:08x}", c as u32)?,
            }
        }
        f.write_char('"')
    }
}

/// Several strings, each quoted, joined by `", "`.
pub fn quoted_list<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> String {
    let mut out = String::new();
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        // Writing to a String cannot fail.
        let _ = write!(out, "{}", Quoted(item.as_ref()));
    }
    out
}

/// Prints text as the errors of Go's package `time` do, which is not as the rest of Go does. The
/// text may begin in the middle of a character.
#[derive(Clone, Copy, Debug)]
pub struct TimeQuoted<'a>(pub &'a [u8]);

impl fmt::Display for TimeQuoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for byte in self.0 {
            match byte {
                b'"' | b'\\' => write!(f, "\\{}", *byte as char)?,
                b' '..=0x7f => f.write_char(*byte as char)?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_char('"')
    }
}

/// A value as Go's `json.Marshal` prints it: like `serde_json`, but safe inside HTML.
pub fn go_json<T: serde::Serialize + ?Sized>(value: &T) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string(value)?;
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return Ok(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            // These only ever occur inside a JSON string, where an escape is allowed.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            _ => out.push(c),
        }
    }
    Ok(out)
}

/// Go prints letters, marks, numbers, punctuation and symbols. The standard library knows the
/// same classes and shows them only through `escape_debug`, where a leading combining mark is
/// escaped too: hence the letter in front.
pub(crate) fn is_printable(c: char) -> bool {
    let text = String::from_iter(['a', c]);
    text.escape_debug().nth(1) != Some('\\')
}

/// Go's names for the kinds of JSON values.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// JSON with the fields of structs in a given order: Go's encoder writes them as they are declared.
pub fn in_order(value: &Value, order: &[&str]) -> String {
    match value {
        Value::Object(fields) => {
            let rank = |name: &str| order.iter().position(|known| *known == name);
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| rank(name).unwrap_or(order.len()));
            let field = |(name, value): (&String, &Value)| {
                format!("{}:{}", Value::from(name.as_str()), in_order(value, order))
            };
            format!("{{{}}}", fields.into_iter().map(field).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| in_order(item, order));
            format!("[{}]", items.collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_as_go_escapes_them() {
        for (text, want) in [
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("\n\t\r\u{7}\u{8}\u{b}\u{c}", r#""\n\t\r\a\b\v\f""#),
            ("\0\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
            ("é漢字😀", "\"é漢字😀\""),
            ("e\u{301}", "\"e\u{301}\""),
            ("\u{a0}\u{200b}\u{feff}", r#""\u00a0\u200b\ufeff""#),
            ("\u{e0001}", r#""\U000e0001""#),
            ("it's", "\"it's\""),
        ] {
            assert_eq!(Quoted(text).to_string(), want);
        }
    }

    #[test]
    fn json_is_safe_inside_html() {
        assert_eq!(go_json("<a&b>").unwrap(), r#""\u003ca\u0026b\u003e""#);
        assert_eq!(go_json(&vec![1, 2]).unwrap(), "[1,2]");
    }
}
