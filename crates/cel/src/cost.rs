//! What evaluating costs, in cel-go's and Kubernetes' units
//! (`interpreter/runtimecost.go`, `apiserver/pkg/cel/library/cost.go`).
use crate::value::{List, Map, Value};

/// What one call of an expression may cost.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// What the validations of one policy's binding, or of one custom object, may cost together.
pub const RUNTIME_BUDGET: u64 = 10_000_000;
/// What the match conditions of one hook or policy may cost together.
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;

pub const LIST: u64 = 10;
pub const MAP: u64 = 30;
pub const STRUCT: u64 = 40;

const TRAVERSAL: f64 = 0.1;
const PATTERN: f64 = 0.25;

/// Of a call, from its arguments and its result.
pub type CallCost = fn(&[Value<'_>], &Value<'_>) -> u64;

pub fn one(_: &[Value<'_>], _: &Value<'_>) -> u64 {
    1
}

/// What is prepared costs nothing.
pub fn none(_: &[Value<'_>], _: &Value<'_>) -> u64 {
    0
}

fn size(value: Option<&Value<'_>>) -> u64 {
    match value {
        Some(Value::Optional(Some(inner))) => inner.size().unwrap_or(1),
        Some(value) => value.size().unwrap_or(1),
        None => 1,
    }
}

fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// Reading the first argument, a text.
pub fn traversal(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    scaled(size(args.first()), TRAVERSAL)
}

/// Reading the first argument and making as much again.
pub fn twice(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    scaled(size(args.first()), 2.0 * TRAVERSAL)
}

/// Reading the second argument: `startsWith`.
pub fn second(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    scaled(size(args.get(1)), TRAVERSAL)
}

/// Making the result: `join`.
pub fn result_twice(_: &[Value<'_>], result: &Value<'_>) -> u64 {
    scaled(size(Some(result)), 2.0 * TRAVERSAL)
}

/// Reading both: `a + b` of texts.
pub fn sum(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    match args {
        [Value::String(_) | Value::Pattern(_) | Value::Bytes(_), _] => {
            scaled(size(args.first()) + size(args.get(1)), TRAVERSAL)
        }
        _ => 1,
    }
}

/// Reading the shorter: comparisons.
pub fn shorter(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    match args.first() {
        Some(
            Value::Quantity(_)
            | Value::Ip(_)
            | Value::Cidr(_)
            | Value::Format(_)
            | Value::Url(_)
            | Value::Semver(_)
            | Value::Authorization(_),
        ) => 1,
        _ => scaled(size(args.first()).min(size(args.get(1))), TRAVERSAL),
    }
}

/// Comparisons of texts read, others do not.
pub fn ordering(args: &[Value<'_>], result: &Value<'_>) -> u64 {
    match args.first() {
        Some(Value::String(_) | Value::Pattern(_) | Value::Bytes(_)) => shorter(args, result),
        _ => 1,
    }
}

pub fn contains(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    scaled(size(args.first()), TRAVERSAL) * scaled(size(args.get(1)), TRAVERSAL)
}

/// A pattern over a text; even an empty text costs something.
pub fn pattern(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    scaled(size(args.first()) + 1, TRAVERSAL) * scaled(size(args.get(1)), PATTERN)
}

pub fn membership(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    match args.get(1) {
        Some(list @ Value::List(_)) => size(Some(list)),
        _ => 1,
    }
}

/// Two authorizations fit into one call's limit.
pub fn authorization(_: &[Value<'_>], _: &Value<'_>) -> u64 {
    350_000
}

pub fn selector(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    let length = size(args.get(1));
    let requirements = scaled(length, 0.5);
    LIST + scaled(length, TRAVERSAL) + requirements * (LIST + STRUCT)
}

/// Looking at everything in the first argument.
pub fn traverse_all(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    let mut cost = 0;
    if let Some(value) = args.first() {
        tree(value, &mut cost);
    }
    cost
}

/// Adds up until more than any limit allows: what was built of one part many times is as large as
/// it looks.
fn tree(value: &Value<'_>, cost: &mut u64) {
    if *cost > RUNTIME_BUDGET {
        return;
    }
    *cost += match value {
        Value::String(text) => (text.len() as f64 * TRAVERSAL) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * TRAVERSAL) as u64,
        Value::List(list) => return list.iter().for_each(|item| tree(&item, cost)),
        Value::Map(map) => {
            return map.iter().for_each(|(key, value)| {
                tree(&key, cost);
                tree(&value, cost);
            });
        }
        _ => 1,
    };
}

pub fn contains_ip(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    let cidr = size(args.first());
    let parsed = match args.get(1) {
        Some(text @ Value::String(_)) => scaled(size(Some(text)), TRAVERSAL),
        _ => 0,
    };
    scaled(2 * cidr, TRAVERSAL) + parsed
}

pub fn contains_cidr(args: &[Value<'_>], result: &Value<'_>) -> u64 {
    contains_ip(args, result) + scaled(size(args.first()), TRAVERSAL) + 1
}

pub fn format(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    let pattern = match args.first() {
        Some(Value::Format(format)) => format.pattern_size,
        _ => 0,
    };
    scaled(size(args.get(1)) + 1, TRAVERSAL) * scaled(pattern, PATTERN)
}

/// A call that makes a list of so many elements.
fn allocating(factor: f64, size: u64) -> u64 {
    1 + LIST + (size as f64 * factor) as u64
}

/// `slice`, `range`, `reverse`.
pub fn output(_: &[Value<'_>], result: &Value<'_>) -> u64 {
    allocating(1.0, size(Some(result)))
}

pub fn flatten(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    let depth = match args.get(1) {
        Some(Value::Int(depth)) => *depth as f64,
        _ => 1.0,
    };
    allocating(depth, size(args.first()))
}

/// Every element with every other: `distinct`, `sort`.
pub fn squared(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    compared(args.first())
}

pub fn squared_keys(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    compared(args.get(1))
}

fn compared(list: Option<&Value<'_>>) -> u64 {
    let size = size(list);
    let first = match list {
        Some(Value::List(list)) => list.get(0),
        _ => None,
    };
    let factor = match first {
        Some(Value::String(_) | Value::Bytes(_)) => 2.0 + TRAVERSAL,
        _ => 2.0,
    };
    allocating(factor, size.saturating_mul(size))
}

/// Each element of one with each of the other.
pub fn sets(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    1 + size(args.first()).saturating_mul(size(args.get(1)))
}

pub fn both_ways(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    1 + size(args.first()).saturating_mul(size(args.get(1))).saturating_mul(2)
}

/// How large a new value is, for [`crate::work::Work`].
pub(crate) fn weight(value: &Value<'_>) -> u64 {
    match value {
        Value::List(List::Owned(items)) => items.len() as u64,
        Value::Map(Map::Owned(entries)) => entries.list().len() as u64,
        Value::String(text) => text.len() as u64 / 64,
        _ => 0,
    }
}
