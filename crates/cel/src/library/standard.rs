//! CEL's own functions: sizes, conversions, tests of texts.
use super::operators::{overflow, unsigned_overflow};
use super::{Outcome, Row, row, time};
use crate::cost;
use crate::golang;
use crate::value::{Moment, Value};
use crate::work::{Error, Work};

pub static ROWS: &[Row] = &[
    row(
        "size",
        &[
            "(bytes) -> int",
            "bytes.() -> int",
            "(list(A)) -> int",
            "list(A).() -> int",
            "(map(A, B)) -> int",
            "map(A, B).() -> int",
            "(string) -> int",
            "string.() -> int",
        ],
        size,
        cost::one,
    ),
    row("type", &["(A) -> type(A)"], type_of, cost::one),
    row("dyn", &["(A) -> dyn"], same, cost::one),
    row("bool", &["(bool) -> bool", "(string) -> bool"], bool, cost::one),
    row("bytes", &["(bytes) -> bytes", "(string) -> bytes"], bytes, to_bytes_cost),
    row(
        "double",
        &["(double) -> double", "(int) -> double", "(string) -> double", "(uint) -> double"],
        double,
        cost::one,
    ),
    row(
        "int",
        &[
            "(int) -> int",
            "(double) -> int",
            "(duration) -> int",
            "(string) -> int",
            "(timestamp) -> int",
            "(uint) -> int",
        ],
        int,
        cost::one,
    ),
    row(
        "uint",
        &["(uint) -> uint", "(double) -> uint", "(int) -> uint", "(string) -> uint"],
        uint,
        cost::one,
    ),
    row(
        "string",
        &[
            "(string) -> string",
            "(bool) -> string",
            "(bytes) -> string",
            "(double) -> string",
            "(duration) -> string",
            "(int) -> string",
            "(timestamp) -> string",
            "(uint) -> string",
        ],
        string,
        to_string_cost,
    ),
    row("duration", &["(duration) -> duration", "(string) -> duration"], duration, cost::one),
    row(
        "timestamp",
        &["(timestamp) -> timestamp", "(int) -> timestamp", "(string) -> timestamp"],
        timestamp,
        cost::one,
    ),
    row("contains", &["string.(string) -> bool"], contains, cost::contains),
    row("endsWith", &["string.(string) -> bool"], ends_with, cost::second),
    row("startsWith", &["string.(string) -> bool"], starts_with, cost::second),
];

fn to_bytes_cost(args: &[Value<'_>], result: &Value<'_>) -> u64 {
    match args {
        [Value::String(_)] => cost::traversal(args, result),
        _ => 1,
    }
}

fn to_string_cost(args: &[Value<'_>], result: &Value<'_>) -> u64 {
    match args {
        [Value::Bytes(_)] => cost::traversal(args, result),
        _ => 1,
    }
}

fn size<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [
            value @ (Value::String(_)
            | Value::Pattern(_)
            | Value::Bytes(_)
            | Value::List(_)
            | Value::Map(_)),
        ] => Ok(Value::Int(value.size().ok_or(Error::NoOverload)? as i64)),
        _ => Err(Error::NoOverload),
    }
}

fn type_of<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [value] => Ok(Value::Type(value.type_name().into())),
        _ => Err(Error::NoOverload),
    }
}

fn same<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    args.first().cloned().ok_or(Error::NoOverload)
}

fn conversion(from: &Value<'_>, to: &str) -> Error {
    Error::Said(format!("type conversion error from '{}' to '{to}'", from.type_name()))
}

fn bool<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [value] => match value.as_str() {
            Some("1" | "t" | "T" | "TRUE" | "true" | "True") => Ok(Value::Bool(true)),
            Some("0" | "f" | "F" | "FALSE" | "false" | "False") => Ok(Value::Bool(false)),
            Some(_) => Err(conversion(value, "bool")),
            None => Err(Error::NoOverload),
        },
        _ => Err(Error::NoOverload),
    }
}

fn bytes<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Bytes(bytes)] => Ok(Value::Bytes(bytes.clone())),
        [value] => {
            let text = value.as_str().ok_or(Error::NoOverload)?;
            Ok(Value::Bytes(text.as_bytes().into()))
        }
        _ => Err(Error::NoOverload),
    }
}

fn double<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Double(value)] => Ok(Value::Double(*value)),
        [Value::Int(value)] => Ok(Value::Double(*value as f64)),
        [Value::Uint(value)] => Ok(Value::Double(*value as f64)),
        [value] => {
            let text = value.as_str().ok_or(Error::NoOverload)?;
            golang::parse_float(text).map(Value::Double).ok_or_else(|| conversion(value, "double"))
        }
        _ => Err(Error::NoOverload),
    }
}

fn int<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Int(value)] => Ok(Value::Int(*value)),
        [Value::Uint(value)] => i64::try_from(*value).map(Value::Int).map_err(|_| overflow()),
        [Value::Double(value)] => {
            // The bounds themselves are no doubles, or are rounded out of reach.
            let fits =
                *value > -9_223_372_036_854_775_808.0 && *value < 9_223_372_036_854_775_808.0;
            if fits { Ok(Value::Int(*value as i64)) } else { Err(overflow()) }
        }
        [Value::Duration(nanos)] => Ok(Value::Int(*nanos)),
        [Value::Timestamp(at)] => Ok(Value::Int(at.secs)),
        [value] => {
            let text = value.as_str().ok_or(Error::NoOverload)?;
            text.parse().map(Value::Int).map_err(|_| conversion(value, "int"))
        }
        _ => Err(Error::NoOverload),
    }
}

fn uint<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Uint(value)] => Ok(Value::Uint(*value)),
        [Value::Int(value)] => {
            u64::try_from(*value).map(Value::Uint).map_err(|_| unsigned_overflow())
        }
        [Value::Double(value)] => {
            let fits = *value >= 0.0 && *value < 18_446_744_073_709_551_616.0;
            if fits { Ok(Value::Uint(*value as u64)) } else { Err(unsigned_overflow()) }
        }
        [value] => {
            let text = value.as_str().ok_or(Error::NoOverload)?;
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let parsed = text.parse().ok().filter(|_| digits);
            parsed.map(Value::Uint).ok_or_else(|| conversion(value, "uint"))
        }
        _ => Err(Error::NoOverload),
    }
}

fn string<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [value] = args else { return Err(Error::NoOverload) };
    if let Value::String(_) = value {
        return Ok(value.clone());
    }
    text_of(value).map(Value::text)
}

/// A simple value as a text.
pub(super) fn text_of(value: &Value<'_>) -> Result<String, Error> {
    Ok(match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => golang::float(*value),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => {
                return Err(Error::said("invalid UTF-8 in bytes, cannot convert to string"));
            }
        },
        Value::Duration(nanos) => time::duration_text(*nanos),
        Value::Timestamp(at) => time::timestamp_text(*at),
        Value::Type(name) => name.to_string(),
        value => value.as_str().ok_or(Error::NoOverload)?.to_owned(),
    })
}

fn duration<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Duration(nanos)] => Ok(Value::Duration(*nanos)),
        [value] => {
            let text = value.as_str().ok_or(Error::NoOverload)?;
            let parsed = time::parse_duration(text);
            parsed.map(Value::Duration).ok_or_else(|| conversion(value, "google.protobuf.Duration"))
        }
        _ => Err(Error::NoOverload),
    }
}

fn timestamp<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Timestamp(at)] => Ok(Value::Timestamp(*at)),
        [Value::Int(secs)] => time::checked(Moment { secs: *secs, nanos: 0 }),
        [value] => {
            let text = value.as_str().ok_or(Error::NoOverload)?;
            match time::parse_timestamp(text) {
                Some(at) => time::checked(at),
                None => Err(conversion(value, "google.protobuf.Timestamp")),
            }
        }
        _ => Err(Error::NoOverload),
    }
}

fn pair<'v>(args: &'v [Value<'_>]) -> Result<(&'v str, &'v str), Error> {
    let [a, b] = args else { return Err(Error::NoOverload) };
    Ok((a.as_str().ok_or(Error::NoOverload)?, b.as_str().ok_or(Error::NoOverload)?))
}

fn contains<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    pair(args).map(|(text, part)| Value::Bool(text.contains(part)))
}

fn ends_with<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    pair(args).map(|(text, part)| Value::Bool(text.ends_with(part)))
}

fn starts_with<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    pair(args).map(|(text, part)| Value::Bool(text.starts_with(part)))
}
