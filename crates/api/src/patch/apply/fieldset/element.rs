//! One step of a path: how a child is told from its siblings.
use crate::patch::golang::{float, quote};
use serde_json::Value;
use std::cmp::Ordering;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// A step from an object or list to one of its children.
#[derive(Debug, Clone)]
pub enum PathElement {
    /// A struct's field or a map's key: `f:name`.
    Field(Arc<str>),
    /// The list element whose key fields have these values, sorted by name: `k:{"name":"x"}`.
    Key(Arc<[(Arc<str>, Value)]>),
    /// The element of a set: `v:"x"`.
    Value(Value),
    /// The element of an atomic list: `i:0`.
    Index(i64),
}

impl PathElement {
    pub fn field(name: &str) -> PathElement {
        PathElement::Field(name.into())
    }

    pub fn key<'n>(fields: impl IntoIterator<Item = (&'n str, Value)>) -> PathElement {
        let mut fields: Vec<(Arc<str>, Value)> =
            fields.into_iter().map(|(name, value)| (name.into(), value)).collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        PathElement::Key(fields.into())
    }

    fn rank(&self) -> u8 {
        match self {
            PathElement::Field(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }
}

/// Fields, then keys, then values, then indices.
impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (PathElement::Field(a), PathElement::Field(b)) => a.cmp(b),
            (PathElement::Key(a), PathElement::Key(b)) => {
                let fields = a
                    .iter()
                    .zip(b.iter())
                    .map(|(a, b)| a.0.cmp(&b.0).then_with(|| compare_values(&a.1, &b.1)));
                fields.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            (PathElement::Value(a), PathElement::Value(b)) => compare_values(a, b),
            (PathElement::Index(a), PathElement::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

/// A total order of values, in which numbers compare as numbers: `1` and `1.0` are the same.
pub fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.as_f64().unwrap_or_default().total_cmp(&b.as_f64().unwrap_or_default()),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let items = a.iter().zip(b).map(|(a, b)| compare_values(a, b));
            items.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let (mut left, mut right): (Vec<_>, Vec<_>) = (a.iter().collect(), b.iter().collect());
            left.sort_by_key(|(key, _)| *key);
            right.sort_by_key(|(key, _)| *key);
            let items = left
                .iter()
                .zip(&right)
                .map(|(a, b)| a.0.cmp(b.0).then_with(|| compare_values(a.1, b.1)));
            items.fold(Ordering::Equal, Ordering::then).then(left.len().cmp(&right.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// As messages show it: `.spec`, `[name="x"]`, `[="x"]`, `[0]`.
impl Display for PathElement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Field(name) => write!(f, ".{name}"),
            PathElement::Key(fields) => {
                f.write_str("[")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}={}", if i > 0 { "," } else { "" }, show(value))?;
                }
                f.write_str("]")
            }
            PathElement::Value(value) => write!(f, "[={}]", show(value)),
            PathElement::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(n) if n.is_f64() => float(n.as_f64().unwrap_or_default()),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(","))
        }
        Value::Object(map) => map.iter().map(|(k, v)| format!("{k}={}", show(v))).collect(),
        other => other.to_string(),
    }
}

/// A field's place in an object, from the root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<PathElement>);

impl Display for Path {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}
