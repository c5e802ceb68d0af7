//! What operators do.
use super::{Outcome, Row, row};
use crate::compare::{Unordered, equal, key_of, order};
use crate::cost;
use crate::library::time;
use crate::shape::Identity;
use crate::value::{List, Moment, Value};
use crate::work::{Error, MOST_TEXT, Work};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

pub static ROWS: &[Row] = &[
    row("_?_:_", &["(bool, A, A) -> A"], never, cost::one),
    row("_&&_", &["(bool, bool) -> bool"], never, cost::one),
    row("_||_", &["(bool, bool) -> bool"], never, cost::one),
    row("@not_strictly_false", &["(bool) -> bool"], never, cost::one),
    row("!_", &["(bool) -> bool"], not, cost::one),
    row("_==_", &["(A, A) -> bool"], equals, cost::shorter),
    row("_!=_", &["(A, A) -> bool"], differs, cost::shorter),
    row("_<_", ORDERINGS, less, cost::ordering),
    row("_<=_", ORDERINGS, at_most, cost::ordering),
    row("_>_", ORDERINGS, greater, cost::ordering),
    row("_>=_", ORDERINGS, at_least, cost::ordering),
    row(
        "_+_",
        &[
            "(bytes, bytes) -> bytes",
            "(double, double) -> double",
            "(duration, duration) -> duration",
            "(duration, timestamp) -> timestamp",
            "(timestamp, duration) -> timestamp",
            "(int, int) -> int",
            "(list(A), list(A)) -> list(A)",
            "(string, string) -> string",
            "(uint, uint) -> uint",
        ],
        add,
        cost::sum,
    ),
    row(
        "_-_",
        &[
            "(double, double) -> double",
            "(duration, duration) -> duration",
            "(int, int) -> int",
            "(timestamp, duration) -> timestamp",
            "(timestamp, timestamp) -> duration",
            "(uint, uint) -> uint",
        ],
        subtract,
        cost::one,
    ),
    row("_*_", NUMBERS, multiply, cost::one),
    row("_/_", NUMBERS, divide, cost::one),
    row("_%_", &["(int, int) -> int", "(uint, uint) -> uint"], remainder, cost::one),
    row("-_", &["(double) -> double", "(int) -> int"], negate, cost::one),
    row(
        "_[_]",
        &[
            "(list(A), int) -> A",
            "(map(A, B), A) -> B",
            "(optional(list(V)), int) -> optional(V)",
            "(optional(map(K, V)), K) -> optional(V)",
        ],
        never,
        cost::one,
    ),
    row(
        "_[?_]",
        &[
            "(list(V), int) -> optional(V)",
            "(optional(list(V)), int) -> optional(V)",
            "(map(K, V), K) -> optional(V)",
            "(optional(map(K, V)), K) -> optional(V)",
        ],
        never,
        cost::one,
    ),
    row("@in", &["(A, list(A)) -> bool", "(A, map(A, B)) -> bool"], contains, cost::membership),
    row(
        "cel.@mapInsert",
        &["(map(K, V), map(K, V)) -> map(K, V)", "(map(K, V), K, V) -> map(K, V)"],
        never,
        cost::one,
    ),
];

const NUMBERS: &[&str] =
    &["(double, double) -> double", "(int, int) -> int", "(uint, uint) -> uint"];

const ORDERINGS: &[&str] = &[
    "(bool, bool) -> bool",
    "(int, int) -> bool",
    "(int, double) -> bool",
    "(int, uint) -> bool",
    "(uint, uint) -> bool",
    "(uint, double) -> bool",
    "(uint, int) -> bool",
    "(double, double) -> bool",
    "(double, int) -> bool",
    "(double, uint) -> bool",
    "(string, string) -> bool",
    "(bytes, bytes) -> bool",
    "(timestamp, timestamp) -> bool",
    "(duration, duration) -> bool",
];

/// The evaluator has its own way with these: not all their arguments are always evaluated.
fn never<'a>(_: &mut Work, _: &[Value<'a>]) -> Outcome<'a> {
    Err(Error::NoOverload)
}

fn not<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => Err(Error::NoOverload),
    }
}

fn equals<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [a, b] => Ok(Value::Bool(equal(work, a, b))),
        _ => Err(Error::NoOverload),
    }
}

fn differs<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [a, b] => Ok(Value::Bool(!equal(work, a, b))),
        _ => Err(Error::NoOverload),
    }
}

fn ordered<'a>(args: &[Value<'a>], holds: fn(Ordering) -> bool) -> Outcome<'a> {
    let [a, b] = args else { return Err(Error::NoOverload) };
    match order(a, b) {
        Ok(order) => Ok(Value::Bool(holds(order))),
        Err(Unordered::Types) => Err(Error::NoOverload),
        Err(Unordered::NotANumber) => Err(Error::said("NaN values cannot be ordered")),
    }
}

fn less<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    ordered(args, Ordering::is_lt)
}

fn at_most<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    ordered(args, Ordering::is_le)
}

fn greater<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    ordered(args, Ordering::is_gt)
}

fn at_least<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    ordered(args, Ordering::is_ge)
}

pub(super) fn overflow() -> Error {
    Error::said("integer overflow")
}

pub(super) fn unsigned_overflow() -> Error {
    Error::said("unsigned integer overflow")
}

pub(crate) fn add<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [a, b] = args else { return Err(Error::NoOverload) };
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        if a.len() + b.len() > MOST_TEXT {
            return Err(Error::Cost);
        }
        return Ok(Value::text([a, b].concat()));
    }
    Ok(match (a, b) {
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_add(*b).ok_or_else(overflow)?),
        (Value::Uint(a), Value::Uint(b)) => {
            Value::Uint(a.checked_add(*b).ok_or_else(unsigned_overflow)?)
        }
        (Value::Double(a), Value::Double(b)) => Value::Double(a + b),
        (Value::Bytes(a), Value::Bytes(b)) => {
            if a.len() + b.len() > MOST_TEXT {
                return Err(Error::Cost);
            }
            Value::Bytes([&**a, &**b].concat().into())
        }
        (Value::Duration(a), Value::Duration(b)) => {
            Value::Duration(a.checked_add(*b).ok_or_else(overflow)?)
        }
        (Value::Duration(span), Value::Timestamp(at))
        | (Value::Timestamp(at), Value::Duration(span)) => time::later(*at, (*span).into())?,
        (Value::List(a), Value::List(b)) => joined(work, a, b)?,
        _ => return Err(Error::NoOverload),
    })
}

fn joined<'a>(work: &mut Work, a: &List<'a>, b: &List<'a>) -> Outcome<'a> {
    if b.is_empty() {
        return Ok(Value::List(a.clone()));
    }
    if a.is_empty() {
        return Ok(Value::List(b.clone()));
    }
    if !work.take((a.len() + b.len()) as u64) {
        return Err(Error::Cost);
    }
    if !matches!(a.identity(), Identity::Place) {
        return Ok(Value::list(merged(a, b)));
    }
    Ok(Value::List(List::Owned(Arc::new(a.iter().chain(b.iter()).collect()))))
}

/// A set or a list with keys, with what another has: what is the same takes its place.
fn merged<'a>(a: &List<'a>, b: &List<'a>) -> Vec<Value<'a>> {
    let identity = a.identity();
    let mut values: Vec<Value<'a>> = a.iter().collect();
    let mut places: HashMap<String, usize> =
        values.iter().enumerate().map(|(at, value)| (key_of(value, identity), at)).collect();
    for value in b.iter() {
        let key = key_of(&value, identity);
        match (places.get(&key), identity) {
            (Some(at), Identity::Keys(_)) => values[*at] = value,
            (Some(_), _) => {}
            (None, _) => {
                // What one list has twice it keeps twice.
                if matches!(identity, Identity::Value) {
                    places.insert(key, values.len());
                }
                values.push(value);
            }
        }
    }
    values
}

fn subtract<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_sub(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => {
            Value::Uint(a.checked_sub(*b).ok_or_else(unsigned_overflow)?)
        }
        [Value::Double(a), Value::Double(b)] => Value::Double(a - b),
        [Value::Duration(a), Value::Duration(b)] => {
            Value::Duration(a.checked_sub(*b).ok_or_else(overflow)?)
        }
        [Value::Timestamp(at), Value::Duration(span)] => time::later(*at, -i128::from(*span))?,
        [Value::Timestamp(a), Value::Timestamp(b)] => {
            let nanos = |at: &Moment| i128::from(at.secs) * 1_000_000_000 + i128::from(at.nanos);
            let span = i64::try_from(nanos(a) - nanos(b));
            Value::Duration(span.map_err(|_| overflow())?)
        }
        _ => return Err(Error::NoOverload),
    })
}

fn multiply<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_mul(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => {
            Value::Uint(a.checked_mul(*b).ok_or_else(unsigned_overflow)?)
        }
        [Value::Double(a), Value::Double(b)] => Value::Double(a * b),
        _ => return Err(Error::NoOverload),
    })
}

fn divide<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(Error::said("division by zero"));
        }
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_div(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a / b),
        [Value::Double(a), Value::Double(b)] => Value::Double(a / b),
        _ => return Err(Error::NoOverload),
    })
}

fn remainder<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(Error::said("modulus by zero"));
        }
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_rem(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a % b),
        _ => return Err(Error::NoOverload),
    })
}

fn negate<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(match args {
        [Value::Int(a)] => Value::Int(a.checked_neg().ok_or_else(overflow)?),
        [Value::Double(a)] => Value::Double(-a),
        _ => return Err(Error::NoOverload),
    })
}

fn contains<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [item, Value::List(list)] => {
            Ok(Value::Bool(list.iter().any(|other| equal(work, item, &other))))
        }
        [key, Value::Map(map)] => Ok(Value::Bool(map.contains(key))),
        _ => Err(Error::NoOverload),
    }
}
