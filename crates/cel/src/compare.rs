//! When two values are the same, and which is less.
use crate::provider::escape;
use crate::shape::{Identity, Shape};
use crate::value::{List, Map, Value, View};
use crate::work::Work;
use serde_json::Value as Json;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// CEL's equality: numbers by value whatever their types, lists and maps by their parts, values of
/// different types never. Without steps left nothing is equal; who evaluates asks for that.
pub fn equal(work: &mut Work, a: &Value<'_>, b: &Value<'_>) -> bool {
    use Value::{Bool, Bytes, Duration, Null, Timestamp};
    if !work.take(1) {
        return false;
    }
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        return a == b;
    }
    if let Some(order) = numbers(a, b) {
        return order == Some(Ordering::Equal);
    }
    match (a, b) {
        (Null, Null) => true,
        (Bool(a), Bool(b)) => a == b,
        (Bytes(a), Bytes(b)) => a == b,
        (Duration(a), Duration(b)) => a == b,
        (Timestamp(a), Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::List(a), Value::List(b)) => a.len() == b.len() && equal_lists(work, a, b),
        (Value::Map(a), Value::Map(b)) => equal_maps(work, a, b),
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equal(work, a, b),
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Url(a), Value::Url(b)) => a == b,
        (Value::Quantity(a), Value::Quantity(b)) => a.cmp(b).is_eq(),
        (Value::Ip(a), Value::Ip(b)) => a == b,
        (Value::Cidr(a), Value::Cidr(b)) => a == b,
        (Value::Semver(a), Value::Semver(b)) => a.compare(b).is_eq(),
        (Value::Format(a), Value::Format(b)) => a.name == b.name,
        (Value::Authorization(a), Value::Authorization(b)) => a.equals(b),
        _ => false,
    }
}

/// The first of them says whether the order counts.
fn equal_lists(work: &mut Work, a: &List<'_>, b: &List<'_>) -> bool {
    if matches!(a.identity(), Identity::Place) {
        return a.iter().zip(b.iter()).all(|(a, b)| equal(work, &a, &b));
    }
    let keys = a.identity();
    let mut found: HashMap<String, Value<'_>> = HashMap::with_capacity(a.len());
    for item in a.iter() {
        work.take(1);
        found.insert(key_of(&item, keys), item);
    }
    let all = found.len();
    let mut seen = HashSet::with_capacity(all);
    let same = b.iter().all(|item| {
        let key = key_of(&item, keys);
        let same = found.get(&key).is_some_and(|other| equal(work, other, &item));
        seen.insert(key);
        same
    });
    same && seen.len() == all
}

/// What an element of a set or of a list with keys is found by.
pub fn key_of(item: &Value<'_>, identity: Identity<'_>) -> String {
    let text = |value: &Value<'_>| value.to_json().unwrap_or_default().to_string();
    match (identity, item) {
        (Identity::Keys(keys), Value::Map(map)) => {
            let names = keys.iter().filter_map(Json::as_str);
            let parts = names.map(|name| {
                let value = map.field(&escape(name).unwrap_or_else(|| name.to_owned()));
                value.as_ref().map(text).unwrap_or_default()
            });
            parts.collect::<Vec<_>>().join("\0")
        }
        (_, item) => text(item),
    }
}

/// Two objects of one schema. What the schema does not name is compared as it is.
fn equal_shaped(work: &mut Work, shape: Shape<'_>, a: &Object, b: &Object) -> bool {
    let present = |value: Option<&Json>| value.is_some_and(|value| !value.is_null());
    a.iter().all(|(name, value)| match shape.property(name) {
        None => b.get(name).is_none_or(|other| same(work, value, other)),
        Some(inner) => match (present(Some(value)), present(b.get(name)), b.get(name)) {
            (true, true, Some(other)) => {
                let view = View::Shaped(inner);
                equal(work, &Value::viewed(value, view), &Value::viewed(other, view))
            }
            (here, there, _) => here == there,
        },
    })
}

/// As JSON, a step for each part.
fn same(work: &mut Work, a: &Json, b: &Json) -> bool {
    if !work.take(1) {
        return false;
    }
    match (a, b) {
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(work, a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(work, a, b)))
        }
        (a, b) => a == b,
    }
}

type Object = serde_json::Map<String, Json>;

fn equal_maps(work: &mut Work, a: &Map<'_>, b: &Map<'_>) -> bool {
    if let (Map::Json(a, View::Shaped(shape)), Map::Json(b, View::Shaped(_))) = (a, b)
        && shape.has_properties()
    {
        return a.len() == b.len() && equal_shaped(work, *shape, a, b);
    }
    let names = |map: &Map<'_>| match map {
        Map::Object(object) => Some(object.name.clone()),
        _ => None,
    };
    names(a) == names(b)
        && a.len() == b.len()
        && a.iter().all(|(key, value)| b.get(&key).is_some_and(|other| equal(work, &value, &other)))
}

/// Numbers by value; the inner none is that of a NaN, the outer that one is no number.
fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Option<Ordering>> {
    use Value::{Double, Int, Uint};
    Some(match (a, b) {
        (Int(a), Int(b)) => Some(a.cmp(b)),
        (Uint(a), Uint(b)) => Some(a.cmp(b)),
        (Double(a), Double(b)) => a.partial_cmp(b),
        (Int(a), Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Uint(a), Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Int(a), Double(b)) => with_double(i128::from(*a), *b),
        (Uint(a), Double(b)) => with_double(i128::from(*a), *b),
        (Double(a), Int(b)) => with_double(i128::from(*b), *a).map(Ordering::reverse),
        (Double(a), Uint(b)) => with_double(i128::from(*b), *a).map(Ordering::reverse),
        _ => return None,
    })
}

fn with_double(a: i128, b: f64) -> Option<Ordering> {
    if b.is_nan() {
        return None;
    }
    if b.abs() >= 1e20 {
        return Some(if b > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let whole = b.trunc();
    let order = a.cmp(&(whole as i128));
    Some(order.then_with(|| 0.0f64.partial_cmp(&(b - whole)).unwrap_or(Ordering::Equal)))
}

/// The order of two values of one type; what has none is told apart from a NaN.
pub fn order(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, Unordered> {
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        return Ok(a.cmp(b));
    }
    if let Some(order) = numbers(a, b) {
        return order.ok_or(Unordered::NotANumber);
    }
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(a.cmp(b)),
        (Value::Duration(a), Value::Duration(b)) => Ok(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Ok(a.cmp(b)),
        _ => Err(Unordered::Types),
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unordered {
    Types,
    NotANumber,
}
