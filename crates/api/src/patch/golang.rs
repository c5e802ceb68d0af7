//! Values as Go prints them: upstream's error messages quote trees with `%v`, and clients see them.
use crate::codec::DecodeError;
use crate::quote::Quoted;
use serde_json::{Map, Value};
use std::fmt::{self, Display, Formatter};

/// `fmt.Sprint(value)`: `map[a:1 b:[x y]]`.
pub(crate) struct Go<'v>(pub &'v Value);

/// The same for a bare object.
pub(crate) struct GoMap<'v>(pub &'v Map<String, Value>);

/// The same for a bare list.
pub(crate) struct GoList<'v>(pub &'v [Value]);

impl Display for Go<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::String(s) => f.write_str(s),
            Value::Array(items) => GoList(items).fmt(f),
            Value::Object(map) => GoMap(map).fmt(f),
            Value::Bool(_) => write!(f, "{}", self.0),
            Value::Number(n) if n.is_f64() => {
                write!(f, "{}", float(n.as_f64().unwrap_or_default()))
            }
            Value::Number(n) => write!(f, "{n}"),
        }
    }
}

impl Display for GoMap<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Go prints maps in order of their keys.
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by_key(|(key, _)| *key);
        f.write_str("map[")?;
        for (i, (key, value)) in entries.into_iter().enumerate() {
            write!(f, "{}{key}:{}", if i > 0 { " " } else { "" }, Go(value))?;
        }
        f.write_str("]")
    }
}

impl Display for GoList<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, item) in self.0.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { " " } else { "" }, Go(item))?;
        }
        f.write_str("]")
    }
}

/// `%+v` of a decoded JSON value.
pub fn printed(value: &Value) -> String {
    Go(value).to_string()
}

/// Why a tree does not become a typed object, in the words of upstream's converter, which are not
/// those of its decoder.
pub fn conversion_error(error: &DecodeError) -> String {
    let text = error.to_string();
    let parts = text.strip_prefix("json: cannot unmarshal ").and_then(|rest| {
        let (found, rest) = rest.split_once(" into Go ")?;
        Some((found.split(' ').next()?, rest.rsplit_once(" of type ")?.1))
    });
    let (found, wanted) = match parts {
        Some(parts) => parts,
        None if text.starts_with("illegal base64") => {
            return format!("error decoding from json: {text}");
        }
        None => return text,
    };
    let found = match found {
        "object" => "map",
        "array" => "slice",
        "number" => "int64",
        other => other,
    };
    match wanted {
        "string" if found == "int64" => "cannot convert int64 to string".to_owned(),
        "int32" | "int64" | "string" | "bool" | "float64" => format!("unrecognized type: {wanted}"),
        _ if wanted.starts_with("[]") || wanted.ends_with(".ExtraValue") => {
            format!("cannot restore slice from {found}")
        }
        _ if wanted.starts_with("map[") => format!("cannot restore map from {found}"),
        _ => format!("cannot restore struct from: {found}"),
    }
}

/// `%q`.
pub(crate) fn quote(text: &str) -> String {
    Quoted(text).to_string()
}

/// JSON as Go's encoder writes it: safe to put into HTML.
pub(crate) fn json(value: &Value) -> String {
    let text = value.to_string();
    // Outside of strings none of these occurs.
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// `%T`: the Go type that a decoded JSON value has.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// `%v` of a float64: the shortest form, with an exponent outside of 1e-4..1e21.
pub(crate) fn float(x: f64) -> String {
    let magnitude = x.abs();
    if x == 0.0 || (1e-4..1e21).contains(&magnitude) {
        return format!("{x}");
    }
    let text = format!("{x:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn trees_print_as_in_go() {
        let value = json!({"b": [1, "x", null], "a": {"c": true}, "d": 1.5, "e": 1e22});
        assert_eq!(Go(&value).to_string(), "map[a:map[c:true] b:[1 x <nil>] d:1.5 e:1e+22]");
        assert_eq!(super::json(&json!({"a": "<&>"})), r#"{"a":"\u003c\u0026\u003e"}"#);
        assert_eq!(quote("a\"b\u{1}"), "\"a\\\"b\\x01\"");
    }
}
