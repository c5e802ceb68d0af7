//! Patterns: CEL's `matches`, Kubernetes' `find` and `findAll`.
use super::{Outcome, Row, row};
use crate::cost;
use crate::value::Value;
use crate::work::{Error, Work};

pub static ROWS: &[Row] = &[
    row(
        "matches",
        &["(string, string) -> bool", "string.(string) -> bool"],
        matches,
        cost::pattern,
    ),
    row("find", &["string.(string) -> string"], find, cost::pattern),
    row(
        "findAll",
        &["string.(string) -> list(string)", "string.(string, int) -> list(string)"],
        find_all,
        cost::pattern,
    ),
];

fn matches<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [target, pattern] = args else { return Err(Error::NoOverload) };
    let target = target.as_str().ok_or(Error::NoOverload)?;
    Ok(Value::Bool(work.pattern(pattern)?.regexp.is_match(target)))
}

fn illegal(error: Error) -> Error {
    match error {
        Error::Said(message) => Error::Said(format!("Illegal regex: {message}")),
        other => other,
    }
}

fn find<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [target, pattern] = args else { return Err(Error::NoOverload) };
    let target = target.as_str().ok_or(Error::NoOverload)?;
    let pattern = work.pattern(pattern).map_err(illegal)?;
    Ok(Value::text(pattern.regexp.find_all(target).next().unwrap_or_default()))
}

fn find_all<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let (target, pattern, most) = match args {
        [target, pattern] => (target, pattern, -1),
        [target, pattern, Value::Int(most)] => (target, pattern, *most),
        _ => return Err(Error::NoOverload),
    };
    let target = target.as_str().ok_or(Error::NoOverload)?;
    let pattern = work.pattern(pattern).map_err(illegal)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    Ok(Value::texts(pattern.regexp.find_all(target).take(most)))
}
