//! When two values are the same, and which is less.
use crate::value::{Map, Value};
use crate::work::Work;
use std::cmp::Ordering;

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
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equal(work, &a, &b))
        }
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

fn equal_maps(work: &mut Work, a: &Map<'_>, b: &Map<'_>) -> bool {
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
