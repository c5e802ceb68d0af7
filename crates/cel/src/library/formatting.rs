//! `'%s and %d'.format([a, b])`.
use super::standard::text_of;
use super::time;
use crate::golang;
use crate::value::{List, Value};
use crate::work::{Error, MOST_TEXT};
use api::quote::Quoted;
use std::fmt::Write;

const PRECISION: usize = 6;

/// A piece of a format.
pub enum Clause {
    Text(char),
    Verb { verb: char, precision: Option<usize> },
    Wrong(String),
}

type Characters<'p> = std::iter::Peekable<std::str::Chars<'p>>;

/// The next piece; none at the end.
pub fn next_clause(characters: &mut Characters<'_>) -> Option<Clause> {
    let character = characters.next()?;
    if character != '%' {
        return Some(Clause::Text(character));
    }
    if characters.next_if_eq(&'%').is_some() {
        return Some(Clause::Text('%'));
    }
    let precision = match precision(characters) {
        Ok(precision) => precision,
        Err(fault) => return Some(Clause::Wrong(fault)),
    };
    Some(match characters.next() {
        Some(verb) if "sdfeboxX".contains(verb) => Clause::Verb { verb, precision },
        Some(verb) => Clause::Wrong(format!("unrecognized formatting clause \"{verb}\"")),
        None => Clause::Wrong("unexpected end of string".to_owned()),
    })
}

fn precision(characters: &mut Characters<'_>) -> Result<Option<usize>, String> {
    if characters.next_if_eq(&'.').is_none() {
        return Ok(None);
    }
    let mut digits = String::new();
    while let Some(digit) = characters.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    let precision = digits.parse::<usize>().ok().filter(|precision| *precision <= 1000);
    let fault = "error while parsing precision: error while converting precision to integer";
    precision.map(Some).ok_or_else(|| fault.to_owned())
}

/// What a clause says of a value of another type.
pub fn refusal(verb: char, name: &str) -> String {
    let (clause, types) = match verb {
        'd' => ("decimal", "integers"),
        'f' => ("fixed-point", "doubles"),
        'e' => ("scientific", "doubles"),
        'b' => ("binary", "integers and bools"),
        'o' => ("octal", "integers"),
        'x' | 'X' => ("hex", "integers, byte buffers, and strings"),
        _ => (
            "string",
            "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
        ),
    };
    format!("{clause} clause can only be used on {types}, was given {name}")
}

pub fn format(pattern: &str, args: &List<'_>) -> Result<String, Error> {
    let mut out = String::new();
    let mut next = 0;
    let mut characters = pattern.chars().peekable();
    while let Some(piece) = next_clause(&mut characters) {
        if out.len() > MOST_TEXT {
            return Err(Error::Cost);
        }
        if let Clause::Text(character) = piece {
            out.push(character);
            continue;
        }
        let Some(arg) = args.get(next) else {
            return Err(Error::Said(format!("index {next} out of range")));
        };
        next += 1;
        match piece {
            Clause::Verb { verb, precision } => {
                clause(&mut out, verb, precision, &arg).map_err(|error| match error {
                    Error::Said(message) => {
                        Error::Said(format!("error during formatting: {message}"))
                    }
                    other => other,
                })?;
            }
            Clause::Wrong(fault) => {
                return Err(Error::Said(format!("could not parse formatting clause: {fault}")));
            }
            Clause::Text(_) => {}
        }
    }
    Ok(out)
}

fn clause(
    out: &mut String,
    verb: char,
    precision: Option<usize>,
    arg: &Value<'_>,
) -> Result<(), Error> {
    let refused = || Error::Said(refusal(verb, arg.type_name()));
    match (verb, arg) {
        ('s', _) => show(out, arg, false)?,
        ('d', Value::Int(value)) => push(out, format_args!("{value}")),
        ('d', Value::Uint(value)) => push(out, format_args!("{value}")),
        ('d', _) => return Err(refused()),
        ('f' | 'e', _) => {
            let value = match (arg, arg.as_str()) {
                (Value::Double(value), _) => *value,
                (_, Some("NaN")) => f64::NAN,
                (_, Some("Infinity")) => f64::INFINITY,
                (_, Some("-Infinity")) => f64::NEG_INFINITY,
                _ => return Err(refused()),
            };
            number(out, verb, precision.unwrap_or(PRECISION), value);
        }
        ('b', Value::Bool(value)) => push(out, format_args!("{}", u8::from(*value))),
        ('b', Value::Int(value)) => signed(out, *value, |value| format!("{value:b}")),
        ('b', Value::Uint(value)) => push(out, format_args!("{value:b}")),
        ('b', _) => return Err(refused()),
        ('o', Value::Int(value)) => signed(out, *value, |value| format!("{value:o}")),
        ('o', Value::Uint(value)) => push(out, format_args!("{value:o}")),
        ('o', _) => return Err(refused()),
        ('x' | 'X', _) => {
            let mut hex = String::new();
            match arg {
                Value::Int(value) => signed(&mut hex, *value, |value| format!("{value:x}")),
                Value::Uint(value) => push(&mut hex, format_args!("{value:x}")),
                Value::Bytes(bytes) => {
                    bytes.iter().for_each(|b| push(&mut hex, format_args!("{b:02x}")))
                }
                other => match other.as_str() {
                    Some(text) => {
                        text.bytes().for_each(|b| push(&mut hex, format_args!("{b:02x}")))
                    }
                    None => return Err(refused()),
                },
            }
            out.push_str(&if verb == 'X' { hex.to_uppercase() } else { hex });
        }
        _ => return Err(refused()),
    }
    Ok(())
}

fn push(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(arguments);
}

fn signed(out: &mut String, value: i64, show: fn(u64) -> String) {
    if value < 0 {
        out.push('-');
    }
    out.push_str(&show(value.unsigned_abs()));
}

/// Upstream prints with the words and signs of American English.
fn number(out: &mut String, verb: char, precision: usize, value: f64) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "∞" } else { "-∞" });
    } else if verb == 'f' {
        let text = format!("{:.precision$}", value.abs());
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        if value < 0.0 {
            out.push('-');
        }
        for (at, digit) in whole.chars().enumerate() {
            if at > 0 && (whole.len() - at) % 3 == 0 {
                out.push(',');
            }
            out.push(digit);
        }
        if !fraction.is_empty() {
            out.push('.');
            out.push_str(fraction);
        }
    } else {
        // Upstream takes the precision for a width here; so there are always six digits.
        let text = format!("{value:.PRECISION$e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let superscript: String = exponent.chars().map(raised).collect();
        let padded = if exponent.trim_start_matches('-').len() < 2 { "⁰" } else { "" };
        let (minus, digits) = match superscript.strip_prefix('⁻') {
            Some(digits) => ("⁻", digits.to_owned()),
            None => ("", superscript),
        };
        push(out, format_args!("{mantissa}×10{minus}{padded}{digits}"));
    }
}

fn raised(character: char) -> char {
    match character {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '0' | '4'..='9' => {
            char::from_u32('⁰' as u32 + character as u32 - '0' as u32).unwrap_or(character)
        }
        other => other,
    }
}

/// A value as `%s` shows it; inside of lists and maps as CEL would write it.
fn show(out: &mut String, value: &Value<'_>, nested: bool) -> Result<(), Error> {
    if out.len() > MOST_TEXT {
        return Err(Error::Cost);
    }
    match value {
        Value::List(list) => {
            out.push('[');
            for (i, item) in list.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                show(out, &item, true)?;
            }
            out.push(']');
        }
        Value::Map(map) if !matches!(map, crate::value::Map::Object(_)) => {
            let mut entries = Vec::new();
            for (key, value) in map.iter() {
                let (mut name, mut text) = (String::new(), String::new());
                show(&mut name, &key, true)?;
                show(&mut text, &value, true)?;
                entries.push((name, text));
                if entries.len() > MOST_TEXT / 64 {
                    return Err(Error::Cost);
                }
            }
            entries.sort();
            let shown: Vec<String> =
                entries.into_iter().map(|(name, text)| format!("{name}:{text}")).collect();
            push(out, format_args!("{{{}}}", shown.join(", ")));
        }
        Value::Null => out.push_str("null"),
        Value::Timestamp(at) if nested => {
            push(out, format_args!("timestamp({})", Quoted(&time::timestamp_text(*at))));
        }
        Value::Duration(nanos) if nested => {
            push(out, format_args!("duration({})", Quoted(&time::duration_text(*nanos))));
        }
        Value::Double(value) if nested && !value.is_finite() => {
            push(out, format_args!("{}", Quoted(&golang::float(*value))));
        }
        Value::Double(value) if nested => push(out, format_args!("{value:.PRECISION$}")),
        Value::Bytes(_) if nested => push(out, format_args!("b{}", Quoted(&text_of(value)?))),
        value => match (value.as_str(), nested) {
            (Some(text), true) => push(out, format_args!("{}", Quoted(text))),
            (Some(text), false) => out.push_str(text),
            _ => out.push_str(
                &text_of(value).map_err(|_| Error::Said(refusal('s', value.type_name())))?,
            ),
        },
    }
    Ok(())
}

/// A value in an error's text.
pub fn plain(value: &Value<'_>) -> String {
    let mut out = String::new();
    match show(&mut out, value, false) {
        Ok(()) => out,
        Err(_) => value.type_name().to_owned(),
    }
}
