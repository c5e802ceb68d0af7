//! The functions: one row each.

use std::borrow::Cow;
use std::cmp::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::format;
use super::value::{Data, Val};
use crate::quote::go_json;

/// A function of templates.
pub struct Function {
    pub name: &'static str,
    /// The arguments that it must have.
    pub fixed: &'static [Parameter],
    /// What further arguments have to be, if there may be any.
    pub rest: Option<Parameter>,
    /// For `and` and `or`: the truth of an argument after which no other is evaluated.
    pub stops_at: Option<bool>,
    pub run: for<'a> fn(Vec<Val<'a>>) -> Result<Val<'a>, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    Any,
    String,
}

use Parameter::{Any, String as Text};

const fn row(
    name: &'static str,
    fixed: &'static [Parameter],
    rest: Option<Parameter>,
    run: for<'a> fn(Vec<Val<'a>>) -> Result<Val<'a>, String>,
) -> Function {
    Function { name, fixed, rest, stops_at: None, run }
}

/// Those of every template.
pub static GO: &[Function] = &[
    Function { stops_at: Some(false), ..row("and", &[Any], Some(Any), last) },
    Function { stops_at: Some(true), ..row("or", &[Any], Some(Any), last) },
    row("not", &[Any], None, |a| Ok(truth(!a[0].is_true()))),
    row("len", &[Any], None, |a| length(&a[0])),
    row("index", &[Any], Some(Any), index),
    row("slice", &[Any], Some(Any), slice),
    row("print", &[], Some(Any), |a| Ok(bytes(format::sprint(&a)))),
    row("printf", &[Text], Some(Any), |a| Ok(bytes(format::sprintf(&a[0], &a[1..])))),
    row("println", &[], Some(Any), |a| Ok(bytes(format::sprintln(&a)))),
    row("html", &[], Some(Any), |a| Ok(bytes(html(&format::sprint_all(&a))))),
    row("js", &[], Some(Any), |a| Ok(bytes(js(&format::sprint_all(&a))))),
    row("urlquery", &[], Some(Any), |a| Ok(bytes(urlquery(&format::sprint_all(&a))))),
    row("eq", &[Any], Some(Any), |a| equal(&a).map(truth)),
    row("ne", &[Any, Any], None, |a| equal(&a).map(|equal| truth(!equal))),
    row("lt", &[Any, Any], None, |a| less(&a).map(truth)),
    row("le", &[Any, Any], None, |a| Ok(truth(less(&a)? || equal(&a)?))),
    row("gt", &[Any, Any], None, |a| Ok(truth(!(less(&a)? || equal(&a)?)))),
    row("ge", &[Any, Any], None, |a| less(&a).map(|less| truth(!less))),
    // There are no functions in JSON, so that nothing can be called.
    row("call", &[Any], Some(Any), |a| match a[0].is_nothing() {
        true => Err("call of nil".to_owned()),
        false => Err(format!("non-function of type {}", a[0].type_name())),
    }),
];

/// Those that a dialect names: first kubectl's, then crictl's.
pub static EXTRA: &[Function] = &[
    row("exists", &[Any], Some(Any), |a| Ok(truth(exists(&a)))),
    row("base64decode", &[Text], None, base64decode),
    row("json", &[Any], None, |a| json(&a[0])),
    row("title", &[Text], None, |a| Ok(cased(&a[0], title))),
    row("lower", &[Text], None, |a| Ok(cased(&a[0], str::to_lowercase))),
    row("upper", &[Text], None, |a| Ok(cased(&a[0], str::to_uppercase))),
];

impl Function {
    /// What the argument at a place has to be.
    pub fn parameter(&self, place: usize) -> Parameter {
        self.fixed.get(place).copied().or(self.rest).unwrap_or(Any)
    }
}

fn truth(value: bool) -> Val<'static> {
    Val::new(Data::Bool(value))
}

fn bytes<'a>(bytes: Vec<u8>) -> Val<'a> {
    Val::new(Data::Str(Cow::Owned(bytes)))
}

fn last(values: Vec<Val<'_>>) -> Result<Val<'_>, String> {
    Ok(values.into_iter().next_back().unwrap_or(Val::MISSING))
}

fn length<'a>(value: &Val<'a>) -> Result<Val<'a>, String> {
    let length = match &value.data {
        Data::Missing => return Err("reflect: call of reflect.Value.Type on zero Value".to_owned()),
        Data::Nil => return Err("len of nil pointer".to_owned()),
        Data::Str(text) => text.len(),
        Data::List(items) => items.len(),
        Data::Map(fields) => fields.len(),
        _ => return Err(format!("len of type {}", value.type_name())),
    };
    Ok(Val::new(Data::Int(i64::try_from(length).unwrap_or(i64::MAX))))
}

fn index(values: Vec<Val<'_>>) -> Result<Val<'_>, String> {
    let mut values = values.into_iter();
    let mut item = values.next().unwrap_or(Val::MISSING);
    if item.is_nothing() {
        return Err("index of untyped nil".to_owned());
    }
    for key in values {
        item = match &item.data {
            Data::Missing | Data::Nil => return Err("index of nil pointer".to_owned()),
            Data::Str(text) => {
                let place = position(&key, text.len())?;
                let byte = text.get(place).ok_or("reflect: string index out of range")?;
                Val::new(Data::Byte(*byte))
            }
            Data::List(items) => {
                let place = position(&key, items.len())?;
                let element = items.get(place).ok_or("reflect: slice index out of range")?;
                Val::element(element)
            }
            Data::Map(fields) => match &key.data {
                Data::Missing | Data::Nil => {
                    return Err("value is nil; should be of type string".to_owned());
                }
                Data::Str(name) => {
                    let field = std::str::from_utf8(name).ok().and_then(|name| fields.get(name));
                    field.map_or(Val { data: Data::Nil, wrapped: true }, Val::element)
                }
                _ => return Err(format!("value has type {}; should be string", key.type_name())),
            },
            _ => return Err(format!("can't index item of type {}", item.type_name())),
        };
    }
    Ok(item)
}

/// An index, which may point just behind the end.
fn position(key: &Val<'_>, length: usize) -> Result<usize, String> {
    let place = match &key.data {
        Data::Int(n) | Data::Int64(n) => *n,
        Data::Byte(n) => i64::from(*n),
        Data::Missing | Data::Nil => return Err("cannot index slice/array with nil".to_owned()),
        _ => return Err(format!("cannot index slice/array with type {}", key.type_name())),
    };
    usize::try_from(place)
        .ok()
        .filter(|place| *place <= length)
        .ok_or_else(|| format!("index out of range: {place}"))
}

fn slice(values: Vec<Val<'_>>) -> Result<Val<'_>, String> {
    let (item, indexes) = values.split_first().ok_or("slice of untyped nil")?;
    let length = match &item.data {
        Data::Missing | Data::Nil => return Err("slice of untyped nil".to_owned()),
        Data::Str(_) if indexes.len() == 3 => {
            return Err("cannot 3-index slice a string".to_owned());
        }
        Data::Str(text) => text.len(),
        Data::List(items) => items.len(),
        _ => return Err(format!("can't slice item of type {}", item.type_name())),
    };
    if indexes.len() > 3 {
        return Err(format!("too many slice indexes: {}", indexes.len()));
    }
    let mut bounds = [0, length, length];
    for (bound, index) in bounds.iter_mut().zip(indexes) {
        *bound = position(index, length)?;
    }
    let [start, end, limit] = bounds;
    if start > end {
        return Err(format!("invalid slice index: {start} > {end}"));
    }
    if end > limit {
        return Err(format!("invalid slice index: {end} > {limit}"));
    }
    Ok(match &item.data {
        Data::Str(Cow::Borrowed(text)) => Val::new(Data::Str(Cow::Borrowed(&text[start..end]))),
        Data::Str(text) => bytes(text[start..end].to_vec()),
        Data::List(items) => Val::new(Data::List(&items[start..end])),
        _ => Val::MISSING,
    })
}

/// What kind of basic value it is; nothing else has an order.
#[derive(PartialEq, Eq)]
enum Basic {
    None,
    Bool,
    Int,
    Uint,
    Float,
    String,
}

fn basic(value: &Val<'_>) -> Basic {
    match &value.data {
        Data::Bool(_) => Basic::Bool,
        Data::Int(_) | Data::Int64(_) => Basic::Int,
        Data::Byte(_) => Basic::Uint,
        Data::Float(_) => Basic::Float,
        Data::Str(_) => Basic::String,
        _ => Basic::None,
    }
}

fn as_int(value: &Val<'_>) -> i64 {
    match &value.data {
        Data::Int(n) | Data::Int64(n) => *n,
        Data::Byte(n) => i64::from(*n),
        _ => 0,
    }
}

/// The order of two values of one kind; None if they have none.
fn order(a: &Val<'_>, b: &Val<'_>) -> Option<Ordering> {
    match (&a.data, &b.data) {
        (Data::Bool(a), Data::Bool(b)) => Some(a.cmp(b)),
        (Data::Float(a), Data::Float(b)) => a.partial_cmp(b),
        (Data::Str(a), Data::Str(b)) => Some(a.cmp(b)),
        _ => Some(as_int(a).cmp(&as_int(b))),
    }
}

fn is_integer(kind: &Basic) -> bool {
    matches!(kind, Basic::Int | Basic::Uint)
}

fn incompatible(a: &Val<'_>, b: &Val<'_>) -> String {
    format!("incompatible types for comparison: {} and {}", a.type_name(), b.type_name())
}

/// Whether the first equals any of the others.
fn equal(values: &[Val<'_>]) -> Result<bool, String> {
    let (first, others) = values.split_first().ok_or("missing argument for comparison")?;
    if others.is_empty() {
        return Err("missing argument for comparison".to_owned());
    }
    for other in others {
        let (a, b) = (basic(first), basic(other));
        let same = match a == b || is_integer(&a) && is_integer(&b) {
            false if first.is_nothing() || other.is_nothing() => false,
            false => return Err(incompatible(first, other)),
            true if a == Basic::None => match first.is_nothing() || other.is_nothing() {
                true => first.is_nothing() && other.is_nothing(),
                false if first.type_name() != other.type_name() => {
                    let (one, two) = (shown(first), shown(other));
                    let (of, and) = (first.type_name(), other.type_name());
                    return Err(format!("non-comparable types {one}: {of}, {and}: {two}"));
                }
                false => {
                    return Err(format!(
                        "non-comparable type {}: {}",
                        shown(other),
                        other.type_name()
                    ));
                }
            },
            true => order(first, other) == Some(Ordering::Equal),
        };
        if same {
            return Ok(true);
        }
    }
    Ok(false)
}

fn shown(value: &Val<'_>) -> String {
    String::from_utf8_lossy(&format::print(value)).into_owned()
}

fn less(values: &[Val<'_>]) -> Result<bool, String> {
    let [first, second] = values else { return Err("missing argument for comparison".to_owned()) };
    let (a, b) = (basic(first), basic(second));
    if a == Basic::None || b == Basic::None {
        return Err("invalid type for comparison".to_owned());
    }
    if a != b && !(is_integer(&a) && is_integer(&b)) {
        return Err(incompatible(first, second));
    }
    if a == Basic::Bool {
        return Err("invalid type for comparison".to_owned());
    }
    Ok(order(first, second) == Some(Ordering::Less))
}

/// Whether `index` would find something.
fn exists(values: &[Val<'_>]) -> bool {
    let Some((first, indexes)) = values.split_first() else { return false };
    // Go's reflection finds no pointer in nothing, and so no empty one.
    if indexes.is_empty() {
        return true;
    }
    let mut item = first.clone();
    for key in indexes {
        let found = match (&item.data, &key.data) {
            (Data::Str(text), Data::Int(_) | Data::Int64(_)) => {
                let byte = usize::try_from(as_int(key)).ok().and_then(|place| text.get(place));
                byte.map(|byte| Val::new(Data::Byte(*byte)))
            }
            (Data::List(items), Data::Int(_) | Data::Int64(_)) => {
                let place = usize::try_from(as_int(key)).ok();
                place.and_then(|place| items.get(place)).map(Val::element)
            }
            (Data::Map(fields), Data::Str(name)) => {
                std::str::from_utf8(name).ok().and_then(|name| fields.get(name)).map(Val::element)
            }
            _ => None,
        };
        match found {
            Some(found) => item = found,
            None => return false,
        }
    }
    !item.is_nothing()
}

/// With a newline, as Go's encoder ends what it writes.
fn json<'a>(value: &Val<'_>) -> Result<Val<'a>, String> {
    let text = match &value.data {
        Data::Missing | Data::Nil => Ok("null".to_owned()),
        Data::Bool(value) => go_json(value),
        Data::Int(value) | Data::Int64(value) => go_json(value),
        Data::Float(value) => go_json(value),
        Data::Byte(value) => go_json(value),
        Data::Str(text) => go_json(&String::from_utf8_lossy(text)),
        Data::List(items) => go_json(items),
        Data::Map(fields) => go_json(fields),
    };
    let text = text.map_err(|error| format!("unable to encode JSON: {error}"))?;
    Ok(Val::text(text + "\n"))
}

fn cased<'a>(value: &Val<'_>, change: impl Fn(&str) -> String) -> Val<'a> {
    match &value.data {
        Data::Str(text) => Val::text(change(&String::from_utf8_lossy(text))),
        _ => Val::text(""),
    }
}

/// The first letter of each word large, the others as they are.
fn title(text: &str) -> String {
    let mut before = ' ';
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match before.is_alphanumeric() || before == '\'' {
            true => out.push(letter),
            false => out.extend(letter.to_uppercase()),
        }
        before = letter;
    }
    out
}

fn base64decode(values: Vec<Val<'_>>) -> Result<Val<'_>, String> {
    let Some(Data::Str(text)) = values.into_iter().next().map(|value| value.data) else {
        return Ok(Val::text(""));
    };
    // Go's decoder reads over newlines.
    let text: Vec<u8> =
        text.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    match STANDARD.decode(&text) {
        Ok(decoded) => Ok(bytes(decoded)),
        Err(fault) => {
            let at = match fault {
                base64::DecodeError::InvalidByte(at, _)
                | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                _ => text.len() / 4 * 4,
            };
            Err(format!("base64 decode failed: illegal base64 data at input byte {at}"))
        }
    }
}

fn html(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        match byte {
            0 => out.extend_from_slice("\u{fffd}".as_bytes()),
            b'"' => out.extend_from_slice(b"&#34;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            byte => out.push(*byte),
        }
    }
    out
}

fn js(text: &[u8]) -> Vec<u8> {
    let mut out = String::with_capacity(text.len());
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\'"),
            '"' => out.push_str("\\\""),
            '<' => out.push_str("\\u003C"),
            '>' => out.push_str("\\u003E"),
            '&' => out.push_str("\\u0026"),
            '=' => out.push_str("\\u003D"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.into_bytes()
}

fn urlquery(text: &[u8]) -> Vec<u8> {
    let mut out = String::with_capacity(text.len());
    for byte in text {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(*byte))
            }
            b' ' => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out.into_bytes()
}
