//! Quantities of resources.
use super::{Outcome, Row, row};
use crate::cost;
use crate::value::Value;
use crate::work::{Error, Work};
use api::quantity::{Format, Quantity};
use std::cmp::Ordering;
use std::sync::Arc;

pub static ROWS: &[Row] = &[
    row("quantity", &["(string) -> Quantity"], quantity, cost::traversal),
    row("isQuantity", &["(string) -> bool"], is_quantity, cost::traversal),
    row(
        "sign",
        &["(Quantity) -> int"],
        |_, args| of(args, |q| Ok(Value::Int(q.sign() as i64))),
        cost::one,
    ),
    row(
        "isGreaterThan",
        &["Quantity.(Quantity) -> bool"],
        |_, args| with(args, |o| Value::Bool(o.is_gt())),
        cost::one,
    ),
    row(
        "isLessThan",
        &["Quantity.(Quantity) -> bool"],
        |_, args| with(args, |o| Value::Bool(o.is_lt())),
        cost::one,
    ),
    row(
        "compareTo",
        &["Quantity.(Quantity) -> int"],
        |_, args| with(args, |o| Value::Int(o as i64)),
        cost::one,
    ),
    row(
        "asApproximateFloat",
        &["Quantity.() -> double"],
        |_, args| of(args, |q| Ok(Value::Double(q.as_approximate_f64()))),
        cost::one,
    ),
    row("asInteger", &["Quantity.() -> int"], |_, args| of(args, as_integer), cost::one),
    row(
        "isInteger",
        &["Quantity.() -> bool"],
        |_, args| of(args, |q| Ok(Value::Bool(q.as_i64().is_some()))),
        cost::one,
    ),
    row(
        "add",
        &["Quantity.(Quantity) -> Quantity", "Quantity.(int) -> Quantity"],
        |_, args| changed(args, |a, b| a + b),
        cost::one,
    ),
    row(
        "sub",
        &["Quantity.(Quantity) -> Quantity", "Quantity.(int) -> Quantity"],
        |_, args| changed(args, |a, b| a - b),
        cost::one,
    ),
];

fn text<'v>(args: &'v [Value<'_>]) -> Result<&'v str, Error> {
    match args {
        [text] => text.as_str().ok_or(Error::NoOverload),
        _ => Err(Error::NoOverload),
    }
}

fn quantity<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let parsed = Quantity::parse(text(args)?);
    let parsed = parsed.map_err(|error| Error::Said(error.to_string()))?;
    Ok(Value::Quantity(Arc::new(parsed)))
}

fn is_quantity<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(Quantity::parse(text(args)?).is_ok()))
}

fn of<'a>(args: &[Value<'a>], what: fn(&Quantity) -> Outcome<'static>) -> Outcome<'a> {
    match args {
        [Value::Quantity(quantity)] => what(quantity),
        _ => Err(Error::NoOverload),
    }
}

fn as_integer(quantity: &Quantity) -> Outcome<'static> {
    let value = quantity.as_i64().map(Value::Int);
    value.ok_or_else(|| Error::said("cannot convert value to integer"))
}

fn with<'a>(args: &[Value<'a>], what: fn(Ordering) -> Value<'static>) -> Outcome<'a> {
    match args {
        [Value::Quantity(a), Value::Quantity(b)] => Ok(what(a.cmp(b))),
        _ => Err(Error::NoOverload),
    }
}

fn changed<'a>(args: &[Value<'a>], what: fn(Quantity, &Quantity) -> Quantity) -> Outcome<'a> {
    let result = match args {
        [Value::Quantity(a), Value::Quantity(b)] => what((**a).clone(), b),
        [Value::Quantity(a), Value::Int(b)] => {
            what((**a).clone(), &Quantity::new(*b, Format::DecimalExponent))
        }
        _ => return Err(Error::NoOverload),
    };
    Ok(Value::Quantity(Arc::new(result)))
}
