//! cel-go's library of strings, version 2 (`ext/strings.go`). Places are counted in characters.
use super::formatting;
use super::{Outcome, Row, row};
use crate::cost;
use crate::value::Value;
use crate::work::{Error, MOST_TEXT, Work};

pub static ROWS: &[Row] = &[
    row("charAt", &["string.(int) -> string"], char_at, cost::one),
    row(
        "indexOf",
        &["string.(string) -> int", "string.(string, int) -> int"],
        index_of,
        cost::traverse_all,
    ),
    row(
        "lastIndexOf",
        &["string.(string) -> int", "string.(string, int) -> int"],
        last_index_of,
        cost::traverse_all,
    ),
    row("lowerAscii", &["string.() -> string"], lower, cost::traversal),
    row("upperAscii", &["string.() -> string"], upper, cost::traversal),
    row(
        "replace",
        &["string.(string, string) -> string", "string.(string, string, int) -> string"],
        replace,
        cost::twice,
    ),
    row(
        "split",
        &["string.(string) -> list(string)", "string.(string, int) -> list(string)"],
        split,
        cost::twice,
    ),
    row(
        "substring",
        &["string.(int) -> string", "string.(int, int) -> string"],
        substring,
        cost::traversal,
    ),
    row("trim", &["string.() -> string"], trim, cost::traversal),
    row("format", &["string.(list(dyn)) -> string"], format, cost::traversal),
    row("strings.quote", &["(string) -> string"], quote, cost::one),
    row(
        "join",
        &["list(string).() -> string", "list(string).(string) -> string"],
        join,
        cost::result_twice,
    ),
];

fn text<'v>(value: &'v Value<'_>) -> Result<&'v str, Error> {
    value.as_str().ok_or(Error::NoOverload)
}

fn out_of_range(index: i64) -> Error {
    Error::Said(format!("index out of range: {index}"))
}

/// Where the character of this number begins; the end counts.
fn offset(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    starts.nth(index)
}

fn characters(text: &str) -> i64 {
    text.chars().count() as i64
}

fn char_at<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [target, Value::Int(index)] = args else { return Err(Error::NoOverload) };
    let target = text(target)?;
    let at = offset(target, *index).ok_or_else(|| out_of_range(*index))?;
    Ok(Value::text(target[at..].chars().next().map(String::from).unwrap_or_default()))
}

fn index_of<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let (target, part, from) = match args {
        [target, part] => (text(target)?, text(part)?, 0),
        [target, part, Value::Int(from)] => (text(target)?, text(part)?, *from),
        _ => return Err(Error::NoOverload),
    };
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let start = offset(target, from).filter(|_| from < characters(target) || from == 0);
    let start = match start {
        Some(start) => start,
        None if from < 0 => return Err(out_of_range(from)),
        None => return Ok(Value::Int(-1)),
    };
    let found = target[start..].find(part);
    Ok(Value::Int(found.map_or(-1, |at| characters(&target[..start + at]))))
}

fn last_index_of<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let (target, part, until) = match args {
        [target, part] => {
            let (target, part) = (text(target)?, text(part)?);
            if part.is_empty() {
                return Ok(Value::Int(characters(target)));
            }
            let found = target.rfind(part);
            return Ok(Value::Int(found.map_or(-1, |at| characters(&target[..at]))));
        }
        [target, part, Value::Int(until)] => (text(target)?, text(part)?, *until),
        _ => return Err(Error::NoOverload),
    };
    if part.is_empty() {
        return Ok(Value::Int(until));
    }
    if until < 0 {
        return Err(out_of_range(until));
    }
    if until >= characters(target) {
        return Ok(Value::Int(-1));
    }
    let mut starts: Vec<usize> =
        target.char_indices().map(|(at, _)| at).take(until as usize + 1).collect();
    while let Some(start) = starts.pop() {
        if target[start..].starts_with(part) {
            return Ok(Value::Int(starts.len() as i64));
        }
    }
    Ok(Value::Int(-1))
}

fn lower<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [target] = args else { return Err(Error::NoOverload) };
    Ok(Value::text(text(target)?.to_ascii_lowercase()))
}

fn upper<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [target] = args else { return Err(Error::NoOverload) };
    Ok(Value::text(text(target)?.to_ascii_uppercase()))
}

fn replace<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let (target, old, new, most) = match args {
        [target, old, new] => (target, old, new, -1),
        [target, old, new, Value::Int(most)] => (target, old, new, *most),
        _ => return Err(Error::NoOverload),
    };
    let (target, old, new) = (text(target)?, text(old)?, text(new)?);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let times = target.matches(old).take(most).count();
    if target.len().saturating_add(times.saturating_mul(new.len())) > MOST_TEXT {
        return Err(Error::Cost);
    }
    Ok(Value::text(target.replacen(old, new, most)))
}

fn split<'a>(work: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let (target, separator, most) = match args {
        [target, separator] => (text(target)?, text(separator)?, -1),
        [target, separator, Value::Int(most)] => (text(target)?, text(separator)?, *most),
        _ => return Err(Error::NoOverload),
    };
    if most == 0 {
        return Ok(Value::list(Vec::new()));
    }
    if !work.take(target.len() as u64) {
        return Err(Error::Cost);
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if !separator.is_empty() {
        return Ok(Value::texts(target.splitn(most, separator)));
    }
    // An empty separator is between every two characters.
    let mut parts = Vec::new();
    let mut rest = target;
    while !rest.is_empty() && parts.len() + 1 < most {
        let end = rest.chars().next().map_or(0, char::len_utf8);
        parts.push(&rest[..end]);
        rest = &rest[end..];
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    Ok(Value::texts(parts))
}

fn substring<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [target, Value::Int(start)] => {
            let target = text(target)?;
            let at = offset(target, *start).ok_or_else(|| out_of_range(*start))?;
            Ok(Value::text(&target[at..]))
        }
        [target, Value::Int(start), Value::Int(end)] => {
            let target = text(target)?;
            if start > end {
                let message = format!("invalid substring range. start: {start}, end: {end}");
                return Err(Error::Said(message));
            }
            let from = offset(target, *start).ok_or_else(|| out_of_range(*start))?;
            let to = offset(target, *end).ok_or_else(|| out_of_range(*end))?;
            Ok(Value::text(&target[from..to]))
        }
        _ => Err(Error::NoOverload),
    }
}

fn trim<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [target] = args else { return Err(Error::NoOverload) };
    Ok(Value::text(text(target)?.trim()))
}

fn format<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [target, Value::List(list)] = args else { return Err(Error::NoOverload) };
    formatting::format(text(target)?, list).map(Value::text)
}

fn quote<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [target] = args else { return Err(Error::NoOverload) };
    let target = text(target)?;
    let mut quoted = String::with_capacity(target.len() + 2);
    quoted.push('"');
    for character in target.chars() {
        match character {
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0c' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x0b' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    Ok(Value::text(quoted))
}

fn join<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), separator] => (list, text(separator)?),
        _ => return Err(Error::NoOverload),
    };
    let mut joined = String::new();
    for (i, item) in list.iter().enumerate() {
        if i > 0 {
            joined.push_str(separator);
        }
        let Some(part) = item.as_str() else {
            return Err(Error::Said(format!("join: invalid input: {}", formatting::plain(&item))));
        };
        joined.push_str(part);
        if joined.len() > MOST_TEXT {
            return Err(Error::Cost);
        }
    }
    Ok(Value::text(joined))
}
