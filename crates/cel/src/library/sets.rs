//! Lists as sets.
use super::{Outcome, Row, row};
use crate::compare::equal;
use crate::cost;
use crate::value::{List, Value};
use crate::work::{Error, Work};

pub static ROWS: &[Row] = &[
    row("sets.contains", &["(list(T), list(T)) -> bool"], contains, cost::sets),
    row("sets.equivalent", &["(list(T), list(T)) -> bool"], equivalent, cost::both_ways),
    row("sets.intersects", &["(list(T), list(T)) -> bool"], intersects, cost::sets),
];

fn has(work: &mut Work, list: &List<'_>, item: &Value<'_>) -> bool {
    list.iter().any(|other| equal(work, &other, item))
}

fn contains<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(a), Value::List(b)] = args else { return Err(Error::NoOverload) };
    Ok(Value::Bool(b.iter().all(|item| has(work, a, &item))))
}

fn equivalent<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(a), Value::List(b)] = args else { return Err(Error::NoOverload) };
    let both = b.iter().all(|item| has(work, a, &item)) && a.iter().all(|item| has(work, b, &item));
    Ok(Value::Bool(both))
}

fn intersects<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(a), Value::List(b)] = args else { return Err(Error::NoOverload) };
    Ok(Value::Bool(b.iter().any(|item| has(work, a, &item))))
}
