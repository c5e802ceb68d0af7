//! Values that may not be there.
use super::{Outcome, Row, row};
use crate::cost;
use crate::value::Value;
use crate::work::{Error, Work};

pub static ROWS: &[Row] = &[
    row("optional.of", &["(V) -> optional(V)"], of, cost::one),
    row("optional.ofNonZeroValue", &["(V) -> optional(V)"], of_non_zero, cost::one),
    row("optional.none", &["() -> optional(V)"], none, cost::one),
    row("value", &["optional(V).() -> V"], value, cost::one),
    row("hasValue", &["optional(V).() -> bool"], has_value, cost::one),
    // The evaluator's, because the argument may not be evaluated.
    row("or", &["optional(V).(optional(V)) -> optional(V)"], never, cost::one),
    row("orValue", &["optional(V).(V) -> V"], never, cost::one),
    row("first", &["list(V).() -> optional(V)"], first, cost::one),
    row("last", &["list(V).() -> optional(V)"], last, cost::one),
    row("optional.unwrap", &["(list(optional(V))) -> list(V)"], unwrap, cost::one),
    row("unwrapOpt", &["list(optional(V)).() -> list(V)"], unwrap, cost::one),
];

fn never<'a>(_: &mut Work, _: &[Value<'a>]) -> Outcome<'a> {
    Err(Error::NoOverload)
}

fn of<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    args.first().cloned().map(Value::some).ok_or(Error::NoOverload)
}

fn of_non_zero<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [value] = args else { return Err(Error::NoOverload) };
    let zero = match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Duration(0) => {
            true
        }
        Value::Double(value) => *value == 0.0,
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Optional(value) => value.is_none(),
        Value::Timestamp(at) => at.secs == api::time::ZERO_SECS && at.nanos == 0,
        value => value.as_str() == Some(""),
    };
    Ok(if zero { Value::none() } else { Value::some(value.clone()) })
}

fn none<'a>(_: &mut Work, _: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::none())
}

fn value<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => Err(Error::said("optional.none() dereference")),
        _ => Err(Error::NoOverload),
    }
}

fn has_value<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(Error::NoOverload),
    }
}

fn end<'a>(args: &[Value<'a>], at: fn(usize) -> usize) -> Outcome<'a> {
    match args {
        [Value::List(list)] if list.is_empty() => Ok(Value::none()),
        [Value::List(list)] => list.get(at(list.len())).map(Value::some).ok_or(Error::NoOverload),
        _ => Err(Error::NoOverload),
    }
}

fn first<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    end(args, |_| 0)
}

fn last<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    end(args, |length| length - 1)
}

fn unwrap<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = args else { return Err(Error::NoOverload) };
    let mut values = Vec::new();
    for item in list.iter() {
        match item {
            Value::Optional(Some(value)) => values.push((*value).clone()),
            Value::Optional(None) => {}
            _ => return Err(Error::said("value is not optional")),
        }
    }
    Ok(Value::list(values))
}
