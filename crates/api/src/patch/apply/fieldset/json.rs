//! The written form of a set, `FieldsV1`: nested objects whose keys are path elements, with `.`
//! for a field that is in the set itself as well as fields below it.
use super::{Node, PathElement, Set};
use crate::patch::golang;
use serde_json::{Map, Value};
use std::fmt::Write;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("key must be 2 characters long:")]
    Short,
    #[error("missing colon: {0}")]
    NoColon(String),
    #[error("{0:?} is no path element")]
    BadElement(String),
    #[error("fieldsV1 is not an object")]
    NotAnObject,
    #[error("fieldsV1 is nested too deeply")]
    TooDeep,
}

/// Deeper than any object's schema; what is decoded is walked recursively.
const MAX_DEPTH: usize = 192;

impl Set {
    /// In upstream's form and order, byte for byte.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(false, &mut out);
        out
    }

    fn write(&self, member: bool, out: &mut String) {
        out.push('{');
        let mut comma = "";
        if member && !self.is_empty() {
            out.push_str("\".\":{}");
            comma = ",";
        }
        for node in self.nodes() {
            // Writing to a String cannot fail.
            let _ = write!(out, "{comma}{}:", Value::String(text(&node.element)));
            node.children.write(node.member, out);
            comma = ",";
        }
        out.push('}');
    }

    /// As a tree, to be put into `metadata.managedFields`.
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        for node in self.nodes() {
            let mut children = node.children.to_value();
            if node.member && !node.children.is_empty() {
                children["."] = Value::Object(Map::new());
            }
            map.insert(text(&node.element), children);
        }
        Value::Object(map)
    }

    /// Whether some field of this set is in the written one, or above fields that are.
    pub(in crate::patch::apply) fn overlaps(&self, written: &Value) -> bool {
        let Value::Object(map) = written else { return false };
        self.nodes().iter().any(|node| {
            map.get(&text(&node.element))
                .is_some_and(|below| node.member || node.children.overlaps(below))
        })
    }

    pub fn from_json(json: &str) -> Result<Set, Error> {
        let value = serde_json::from_str(json).map_err(|_| Error::NotAnObject)?;
        Set::from_value(&value)
    }

    pub fn from_value(value: &Value) -> Result<Set, Error> {
        read(value, MAX_DEPTH).map(|(set, _)| set)
    }
}

/// The fields below, and whether this field is itself in the set.
fn read(value: &Value, depth: usize) -> Result<(Set, bool), Error> {
    let map = match value {
        Value::Object(map) if depth > 0 => map,
        Value::Object(_) => return Err(Error::TooDeep),
        Value::Null => return Ok((Set::new(), true)),
        _ => return Err(Error::NotAnObject),
    };
    let mut member = false;
    let mut nodes = Vec::with_capacity(map.len());
    for (key, value) in map {
        if key == "." {
            member = true;
            continue;
        }
        // A later version may know more kinds of elements; what cannot be kept is dropped.
        let Some(element) = parse(key)? else { continue };
        let (children, member) = read(value, depth - 1)?;
        nodes.push(Node { element, member, children });
    }
    let set = Set::from_nodes(nodes);
    let member = member || set.is_empty();
    Ok((set, member))
}

fn parse(text: &str) -> Result<Option<PathElement>, Error> {
    let bytes = text.as_bytes();
    if bytes.len() < 2 {
        return Err(Error::Short);
    }
    if bytes[1] != b':' {
        return Err(Error::NoColon(text.to_owned()));
    }
    let bad = || Error::BadElement(text.to_owned());
    let rest = &text[2..];
    Ok(Some(match bytes[0] {
        b'f' => PathElement::field(rest),
        b'v' => PathElement::Value(serde_json::from_str(rest).map_err(|_| bad())?),
        b'k' => {
            let fields: Map<String, Value> = serde_json::from_str(rest).map_err(|_| bad())?;
            PathElement::key(fields.iter().map(|(name, value)| (name.as_str(), value.clone())))
        }
        b'i' => PathElement::Index(rest.parse().map_err(|_| bad())?),
        _ => return Ok(None),
    }))
}

fn text(element: &PathElement) -> String {
    match element {
        PathElement::Field(name) => format!("f:{name}"),
        PathElement::Index(index) => format!("i:{index}"),
        PathElement::Value(value) => format!("v:{}", scalar(value)),
        PathElement::Key(fields) => {
            let mut out = "k:{".to_owned();
            for (i, (name, value)) in fields.iter().enumerate() {
                let comma = if i > 0 { "," } else { "" };
                let _ = write!(out, "{comma}{}:{}", Value::String(name.to_string()), scalar(value));
            }
            out.push('}');
            out
        }
    }
}

/// JSON as Go writes it: whole floats without a fraction, and `<`, `>`, `&` escaped.
fn scalar(value: &Value) -> String {
    match value {
        Value::Number(n) if n.is_f64() => n
            .as_f64()
            .filter(|x| x.fract() == 0.0 && x.abs() < 1e21)
            .map_or_else(|| n.to_string(), |x| format!("{x}")),
        other => golang::json(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let written = Set::from_json(json).map_or_else(|e| format!("error: {e}"), |s| s.to_json());
        assert_eq!(written, expected);
    }

    #[test]
    fn elements_are_written_in_upstreams_order() {
        check(
            r#"{"v:2":{},"v:10":{},"i:3":{},"k:{\"port\":443}":{},"k:{\"port\":80}":{},"f:b":{},"f:a":{"f:x":{},".":{}}}"#,
            r#"{"f:a":{".":{},"f:x":{}},"f:b":{},"k:{\"port\":80}":{},"k:{\"port\":443}":{},"v:2":{},"v:10":{},"i:3":{}}"#,
        );
    }

    #[test]
    fn a_key_is_sorted_by_name() {
        check(
            r#"{"k:{\"protocol\":\"TCP\",\"port\":80}":{}}"#,
            r#"{"k:{\"port\":80,\"protocol\":\"TCP\"}":{}}"#,
        );
    }

    #[test]
    fn elements_of_an_unknown_kind_are_dropped() {
        check(r#"{"f:a":{"x:new":{}},"q:":{}}"#, r#"{"f:a":{}}"#);
        check(r#"{"f":{}}"#, "error: key must be 2 characters long:");
        check(r#"{"fa":{}}"#, "error: missing colon: fa");
    }
}
