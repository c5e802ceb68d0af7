//! Lists: Kubernetes' library, version 1, and cel-go's, version 3.
use super::operators::add;
use super::{Outcome, Row, row};
use crate::compare::{equal, order};
use crate::cost;
use crate::value::{List, Value};
use crate::work::{Error, Work};
use std::cmp::Ordering;

pub static ROWS: &[Row] = &[
    row(
        "isSorted",
        &[
            "list(int).() -> bool",
            "list(uint).() -> bool",
            "list(double).() -> bool",
            "list(bool).() -> bool",
            "list(duration).() -> bool",
            "list(timestamp).() -> bool",
            "list(string).() -> bool",
            "list(bytes).() -> bool",
        ],
        is_sorted,
        cost::traverse_all,
    ),
    row(
        "sum",
        &[
            "list(int).() -> int",
            "list(uint).() -> uint",
            "list(double).() -> double",
            "list(duration).() -> duration",
        ],
        sum,
        cost::traverse_all,
    ),
    row("max", COMPARABLE, max, cost::traverse_all),
    row("min", COMPARABLE, min, cost::traverse_all),
    row("indexOf", &["list(A).(A) -> int"], index_of, cost::traverse_all),
    row("lastIndexOf", &["list(A).(A) -> int"], last_index_of, cost::traverse_all),
    row("includes", &["dyn.(dyn) -> bool"], includes, cost::traverse_all),
    row("slice", &["list(T).(int, int) -> list(T)"], slice, cost::output),
    row(
        "flatten",
        &["list(list(T)).() -> list(T)", "list(dyn).(int) -> list(dyn)"],
        flatten,
        cost::flatten,
    ),
    row(
        "sort",
        &[
            "list(int).() -> list(int)",
            "list(uint).() -> list(uint)",
            "list(double).() -> list(double)",
            "list(bool).() -> list(bool)",
            "list(duration).() -> list(duration)",
            "list(timestamp).() -> list(timestamp)",
            "list(string).() -> list(string)",
            "list(bytes).() -> list(bytes)",
        ],
        sort,
        cost::squared,
    ),
    row(
        "@sortByAssociatedKeys",
        &[
            "list(T).(list(int)) -> list(T)",
            "list(T).(list(uint)) -> list(T)",
            "list(T).(list(double)) -> list(T)",
            "list(T).(list(bool)) -> list(T)",
            "list(T).(list(duration)) -> list(T)",
            "list(T).(list(timestamp)) -> list(T)",
            "list(T).(list(string)) -> list(T)",
            "list(T).(list(bytes)) -> list(T)",
        ],
        sort_by,
        cost::squared_keys,
    ),
    row("lists.range", &["(int) -> list(int)"], range, cost::output),
    row("reverse", &["list(T).() -> list(T)"], reverse, cost::output),
    row("distinct", &["list(T).() -> list(T)"], distinct, cost::squared),
];

const COMPARABLE: &[&str] = &[
    "list(int).() -> int",
    "list(uint).() -> uint",
    "list(double).() -> double",
    "list(bool).() -> bool",
    "list(duration).() -> duration",
    "list(timestamp).() -> timestamp",
    "list(string).() -> string",
    "list(bytes).() -> bytes",
];

/// So long a range may be.
const MOST_RANGE: i64 = 1_000_000;

fn list<'v, 'a>(args: &'v [Value<'a>]) -> Result<&'v List<'a>, Error> {
    match args.first() {
        Some(Value::List(list)) => Ok(list),
        _ => Err(Error::NoOverload),
    }
}

fn is_sorted<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let mut previous: Option<Value<'_>> = None;
    for item in list(args)?.iter() {
        if let Some(previous) = &previous {
            match order(previous, &item) {
                Ok(Ordering::Greater) => return Ok(Value::Bool(false)),
                Ok(_) => {}
                Err(_) => return Err(Error::NoOverload),
            }
        }
        previous = Some(item);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let list = list(args)?;
    // Of an empty list of which no more is known it is the integer.
    let mut total = match list.get(0) {
        Some(Value::Uint(_)) => Value::Uint(0),
        Some(Value::Double(_)) => Value::Double(0.0),
        Some(Value::Duration(_)) => Value::Duration(0),
        _ => Value::Int(0),
    };
    for item in list.iter() {
        total = add(work, &[total, item])?;
    }
    Ok(total)
}

fn extreme<'a>(args: &[Value<'a>], name: &str, wanted: Ordering) -> Outcome<'a> {
    let mut best: Option<Value<'a>> = None;
    for item in list(args)?.iter() {
        let better = match &best {
            None => true,
            Some(best) => order(&item, best).map_err(|_| Error::NoOverload)? == wanted,
        };
        if better {
            best = Some(item);
        }
    }
    best.ok_or_else(|| Error::Said(format!("{name} called on empty list")))
}

fn max<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    extreme(args, "max", Ordering::Greater)
}

fn min<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    extreme(args, "min", Ordering::Less)
}

fn index_of<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list), wanted] = args else { return Err(Error::NoOverload) };
    let found = list.iter().position(|item| equal(work, &item, wanted));
    Ok(Value::Int(found.map_or(-1, |at| at as i64)))
}

fn last_index_of<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list), wanted] = args else { return Err(Error::NoOverload) };
    let found = list.iter().rev().position(|item| equal(work, &item, wanted));
    Ok(Value::Int(found.map_or(-1, |at| (list.len() - 1 - at) as i64)))
}

fn includes<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(match args {
        [Value::List(list), wanted] => list.iter().any(|item| equal(work, &item, wanted)),
        [one, wanted] => equal(work, one, wanted),
        _ => return Err(Error::NoOverload),
    }))
}

fn slice<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return Err(Error::NoOverload);
    };
    let refused = |why: &str| Err(Error::Said(format!("cannot slice({start}, {end}), {why}")));
    if *start < 0 || *end < 0 {
        return refused("negative indexes not supported");
    }
    if start > end {
        return refused("start index must be less than or equal to end index");
    }
    if (list.len() as i64) < *end {
        return refused(&format!("list is length {}", list.len()));
    }
    Ok(Value::list((*start..*end).filter_map(|at| list.get(at as usize)).collect()))
}

fn flatten<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return Err(Error::NoOverload),
    };
    if depth < 0 {
        return Err(Error::said("level must be non-negative"));
    }
    let mut flat = Vec::new();
    level(work, list, depth, &mut flat)?;
    Ok(Value::list(flat))
}

fn level<'a>(
    work: &mut Work,
    list: &List<'a>,
    depth: i64,
    flat: &mut Vec<Value<'a>>,
) -> Result<(), Error> {
    for item in list.iter() {
        if !work.take(1) {
            return Err(Error::Cost);
        }
        match item {
            Value::List(inner) if depth > 0 => level(work, &inner, depth - 1, flat)?,
            item => flat.push(item),
        }
    }
    Ok(())
}

fn sort<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = args else { return Err(Error::NoOverload) };
    sorted(list, list)
}

fn sort_by<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list), Value::List(keys)] = args else { return Err(Error::NoOverload) };
    sorted(list, keys)
}

fn sorted<'a>(list: &List<'a>, keys: &List<'a>) -> Outcome<'a> {
    if list.len() != keys.len() {
        return Err(Error::Said(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, \
             but got {} and {} elements respectively",
            list.len(),
            keys.len()
        )));
    }
    let Some(first) = keys.get(0) else { return Ok(Value::List(list.clone())) };
    if order(&first, &first).is_err() {
        return Err(Error::said("list elements must be comparable"));
    }
    if keys.iter().any(|key| key.type_name() != first.type_name()) {
        return Err(Error::said("list elements must have the same type"));
    }
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.iter().zip(list.iter()).collect();
    pairs.sort_by(|(a, _), (b, _)| order(a, b).unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, value)| value).collect()))
}

fn range<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Int(size)] = args else { return Err(Error::NoOverload) };
    if *size < 0 {
        let message = format!("lists.range: size must be non-negative, got {size}");
        return Err(Error::Said(message));
    }
    if *size > MOST_RANGE {
        return Err(Error::Said(format!(
            "lists.range: size {size} exceeds maximum allowed ({MOST_RANGE})"
        )));
    }
    if !work.take(*size as u64) {
        return Err(Error::Cost);
    }
    Ok(Value::list((0..*size).map(Value::Int).collect()))
}

fn reverse<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = args else { return Err(Error::NoOverload) };
    Ok(Value::list(list.iter().rev().collect()))
}

fn distinct<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = args else { return Err(Error::NoOverload) };
    let mut seen: Vec<Value<'a>> = Vec::new();
    for item in list.iter() {
        if !seen.iter().any(|other| equal(work, &item, other)) {
            seen.push(item);
        }
        if work.is_exhausted() {
            return Err(Error::Cost);
        }
    }
    Ok(Value::list(seen))
}
