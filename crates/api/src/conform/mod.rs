//! Whether a value conforms to an OpenAPI schema: the one judge of custom resources and of the
//! defaults that their definitions give.
//!
//! The schema is that of a definition's version, as JSON. Faults come in the words of upstream's
//! `kube-openapi/pkg/validation` (`spec.a in body should be at least 1 chars long`), turned into errors
//! of fields as its server turns them. Where alternatives all fail, the faults of the best one are told:
//! the one of which most checks passed, so that [`Verdict`] counts those as upstream does.
//!
//! Rules in CEL, the uniqueness of list maps and what every object has (its type and metadata) are
//! others' to check.
mod formats;
mod numbers;
mod work;

pub use formats::{conforms, duration, is_known};

use crate::field::{BadValue, Error, ErrorList, Path};
use crate::quote::{Quoted, go_json};
use serde_json::Value;
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use work::Work;

/// What is wrong with a value that is at `path`.
pub fn faults(value: &Value, schema: &Value, path: &Path<'_>) -> ErrorList {
    let work = Work::default();
    let verdict = judge(value, schema, "", &work);
    if work.is_exhausted() {
        // What was not looked at may be as wrong as it likes, so nothing else is told.
        return vec![Error::forbidden(path, work::TOO_MUCH)];
    }
    verdict.faults.into_iter().map(|fault| fault.error(path)).collect()
}

/// One thing that is wrong.
#[derive(Debug)]
struct Fault {
    kind: Kind,
    /// Where, seen from the value: `spec.a[0]`.
    name: String,
    value: BadValue,
    message: String,
}

#[derive(Debug)]
enum Kind {
    Required,
    Type,
    /// With what is supported.
    Enum(Vec<String>),
    TooLong(usize),
    TooMany(usize, usize),
    Other,
    /// About the value as a whole, wherever inside of it.
    Whole,
}

impl Fault {
    fn of(kind: Kind, name: &str, value: impl Into<BadValue>, words: impl AsRef<str>) -> Fault {
        let message = format!("{name} in body {}", words.as_ref());
        Fault { kind, name: name.to_owned(), value: value.into(), message }
    }

    fn whole(message: String) -> Fault {
        Fault { kind: Kind::Whole, name: String::new(), value: "".into(), message }
    }

    fn error(self, path: &Path<'_>) -> Error {
        let name = self.name.strip_prefix('.').unwrap_or(&self.name);
        let inner = path.child(name);
        let path = if name.is_empty() { path } else { &inner };
        match self.kind {
            Kind::Required => Error::required(path, ""),
            Kind::Type => Error::type_invalid(path, self.value, self.message),
            Kind::Enum(values) => Error::not_supported(path, self.value, values),
            Kind::TooLong(max) => Error::too_long(path, max),
            Kind::TooMany(actual, max) => Error::too_many(path, Some(actual), max),
            Kind::Other | Kind::Whole => Error::invalid(path, self.value, self.message),
        }
    }
}

/// What is wrong, and how many checks were made that count.
#[derive(Default)]
struct Verdict {
    faults: Vec<Fault>,
    /// The hashes of their messages: a list may have a fault in each of a million items.
    told: HashSet<u64, BuildHasherDefault<DefaultHasher>>,
    passed: usize,
}

impl Verdict {
    /// Nothing is told twice.
    fn add(&mut self, fault: Fault) {
        if self.told.insert(self.told.hasher().hash_one(&fault.message)) {
            self.faults.push(fault);
        }
    }

    fn merge(&mut self, other: Verdict) {
        self.passed += other.passed;
        if self.faults.is_empty() {
            (self.faults, self.told) = (other.faults, other.told);
            return;
        }
        other.faults.into_iter().for_each(|fault| self.add(fault));
    }

    fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }
}

/// `name` leads to the value from the one that was asked about.
fn judge(value: &Value, schema: &Value, name: &str, work: &Work) -> Verdict {
    let mut verdict = Verdict::default();
    if !work.step() {
        return verdict;
    }
    let declares =
        schema["type"].is_string() || schema["format"].is_string() || schema[INT_OR_STRING] == true;
    match of_type(value, schema, name) {
        Some(fault) => verdict.add(fault),
        None => verdict.passed += usize::from(declares || value.is_null()),
    }
    if value.is_null() {
        one_of(value, schema, name).into_iter().for_each(|fault| verdict.add(fault));
        return verdict;
    }
    verdict.merge(junctors(value, schema, name, work));
    match value {
        Value::String(text) => {
            string(text, schema, name, work).into_iter().for_each(|fault| verdict.add(fault));
            verdict.passed += 1;
            let format = schema["format"].as_str().unwrap_or_default();
            if formats::is_known(format) {
                verdict.passed += 1;
                if !formats::conforms(format, text) {
                    let words = format!("must be of type {format}: {}", Quoted(text));
                    verdict.add(Fault::of(Kind::Type, name, text.as_str(), words));
                }
            }
        }
        Value::Number(number) => {
            numbers::faults(number, schema, name).into_iter().for_each(|fault| verdict.add(fault));
            verdict.passed += 2;
        }
        Value::Array(items) => verdict.merge(array(items, schema, name, work)),
        Value::Object(_) => verdict.merge(object(value, schema, name, work)),
        _ => {}
    }
    one_of(value, schema, name).into_iter().for_each(|fault| verdict.add(fault));
    // The type, where there is one, the junctors, the enumeration, and the whole.
    verdict.passed += usize::from(declares) + 3;
    verdict
}

const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

fn of_type(value: &Value, schema: &Value, name: &str) -> Option<Fault> {
    let both = if schema[INT_OR_STRING] == true { "integer,string" } else { "" };
    let wanted = schema["type"].as_str().unwrap_or(both);
    let format = schema["format"].as_str().unwrap_or_default();
    let fault = |wanted: &str, found: &str| {
        let words = format!("must be of type {wanted}: {}", Quoted(found));
        Some(Fault::of(Kind::Type, name, found, words))
    };
    if value.is_null() {
        let sound = wanted.is_empty() || wanted == "null" || schema["nullable"] == true;
        return if sound { None } else { fault(wanted, "null") };
    }
    if wanted.is_empty() && format.is_empty() {
        return None;
    }
    let (found, own) = match value {
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if numbers::is_float(number) => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        _ => ("object", ""),
    };
    let whole = || value.as_f64().is_some_and(numbers::is_whole);
    let fits = wanted.split(',').any(|wanted| wanted == found)
        || wanted == "number" && found == "integer"
        || wanted.starts_with("integer") && found == "number" && whole();
    let plain = matches!(found, "string" | "array");
    match () {
        () if !plain && !format.is_empty() && !fits && format != own => fault(format, own),
        () if plain && !format.is_empty() && !matches!(wanted, "number" | "integer") => None,
        () if !fits => fault(wanted, found),
        () => None,
    }
}

fn one_of(value: &Value, schema: &Value, name: &str) -> Option<Fault> {
    let values = schema["enum"].as_array().filter(|values| !values.is_empty())?;
    if values.iter().any(|known| equals(value, known)) {
        return None;
    }
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => go_json(other).unwrap_or_default(),
    };
    let supported: Vec<String> = values.iter().map(shown).collect();
    let words = format!("should be one of [{}]", supported.join(" "));
    let shown = if value.is_null() { BadValue::null() } else { value.into() };
    Some(Fault::of(Kind::Enum(supported), name, shown, words))
}

/// Go converts a value to the type of what it is compared with, if it can.
fn equals(value: &Value, known: &Value) -> bool {
    match (value, known) {
        (_, Value::Null) => false,
        (Value::Number(value), Value::Number(known)) => {
            match (numbers::is_float(value), numbers::is_float(known)) {
                (true, false) => value.as_f64().map(f64::trunc) == known.as_f64(),
                (false, false) => value == known,
                _ => value.as_f64() == known.as_f64(),
            }
        }
        // An integer becomes the character of that number.
        (Value::Number(value), Value::String(known)) if !numbers::is_float(value) => {
            let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
            let c = number.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
            *known == c.to_string()
        }
        _ => value == known,
    }
}

/// The first of them only.
fn string(text: &str, schema: &Value, name: &str, work: &Work) -> Option<Fault> {
    let limit = |field: &str| schema[field].as_u64().map(|limit| limit as usize);
    let length = text.chars().count();
    let pattern = schema["pattern"].as_str().filter(|pattern| !pattern.is_empty());
    if let Some(max) = limit("maxLength").filter(|max| length > *max) {
        let words = format!("should be at most {max} chars long");
        return Some(Fault::of(Kind::TooLong(max), name, text, words));
    }
    if let Some(min) = limit("minLength").filter(|min| length < *min) {
        let words = format!("should be at least {min} chars long");
        return Some(Fault::of(Kind::Other, name, text, words));
    }
    let pattern = pattern?;
    let words = match &*work.pattern(pattern) {
        Ok(regexp) if regexp.is_match(text) => return None,
        Ok(_) => format!("should match '{pattern}'"),
        Err(fault) => format!("should match '{pattern}, but pattern is invalid: {fault}'"),
    };
    Some(Fault::of(Kind::Other, name, text, words))
}

fn array(items: &[Value], schema: &Value, name: &str, work: &Work) -> Verdict {
    let mut verdict = Verdict { passed: 2, ..Verdict::default() };
    if schema["items"].is_object() {
        for (i, item) in items.iter().enumerate() {
            verdict.merge(judge(item, &schema["items"], &format!("{name}[{i}]"), work));
        }
    }
    let size = items.len();
    let limit = |field: &str| schema[field].as_u64().map(|limit| limit as usize);
    if let Some(min) = limit("minItems").filter(|min| size < *min) {
        let words = format!("should have at least {min} items");
        verdict.add(Fault::of(Kind::Other, name, size, words));
    }
    if let Some(max) = limit("maxItems").filter(|max| size > *max) {
        let words = format!("should have at most {max} items");
        verdict.add(Fault::of(Kind::TooMany(size, max), name, size, words));
    }
    if schema["uniqueItems"] == true && (1..size).any(|i| items[..i].contains(&items[i])) {
        verdict.add(Fault::of(Kind::Other, name, "", "shouldn't contain duplicates"));
    }
    verdict
}

fn object(value: &Value, schema: &Value, name: &str, work: &Work) -> Verdict {
    let mut verdict = Verdict { passed: 1, ..Verdict::default() };
    let Some(fields) = value.as_object() else { return verdict };
    let size = fields.len();
    let limit = |field: &str| schema[field].as_u64().map(|limit| limit as usize);
    if let Some(min) = limit("minProperties").filter(|min| size < *min) {
        let words = format!("should have at least {min} properties");
        verdict.add(Fault::of(Kind::Other, name, size, words));
    }
    if let Some(max) = limit("maxProperties").filter(|max| size > *max) {
        let words = format!("should have at most {max} properties");
        verdict.add(Fault::of(Kind::TooMany(size, max), name, size, words));
    }
    let (known, more) = (&schema["properties"], &schema["additionalProperties"]);
    for (key, value) in fields.iter().filter(|(key, _)| known.get(key.as_str()).is_none()) {
        match more {
            Value::Bool(false) => {
                let message = format!("{name}.{key} in body is a forbidden property");
                let fault = Fault::of(Kind::Other, name, key.as_str(), "");
                verdict.add(Fault { message, ..fault });
            }
            Value::Object(_) => verdict.merge(judge(value, more, &format!("{name}.{key}"), work)),
            _ => {}
        }
    }
    for (key, property) in known.as_object().into_iter().flatten() {
        if let Some(value) = fields.get(key) {
            let inner = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            verdict.merge(judge(value, property, &inner, work));
        }
    }
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(key) {
            let name = format!("{name}.{key}");
            verdict.add(Fault::of(Kind::Required, &name, "", "is required"));
        }
    }
    verdict
}

/// `anyOf`, `oneOf`, `allOf` and `not`.
fn junctors(value: &Value, schema: &Value, name: &str, work: &Work) -> Verdict {
    let mut verdict = Verdict { passed: 1, ..Verdict::default() };
    let each = |field: &str| {
        let schemas = schema[field].as_array().into_iter().flatten();
        schemas.map(|schema| judge(value, schema, name, work)).collect::<Vec<_>>()
    };
    // Of those that fail equally well the first.
    let best = |failed: Vec<Verdict>| {
        failed.into_iter().reduce(|best, next| if next.passed > best.passed { next } else { best })
    };
    let place = Quoted(name);
    let any = each("anyOf");
    let is_asked = !any.is_empty();
    match any.iter().position(Verdict::is_sound) {
        Some(i) => verdict.passed += any[i].passed,
        None if is_asked => {
            verdict.add(Fault::whole(format!("{place} must validate at least one schema (anyOf)")));
            best(any).into_iter().for_each(|best| verdict.merge(best));
        }
        None => {}
    }
    let one = each("oneOf");
    let sound = one.iter().filter(|each| each.is_sound()).count();
    match sound {
        _ if one.is_empty() => {}
        1 => verdict.passed += one.iter().find(|each| each.is_sound()).map_or(0, |one| one.passed),
        sound => {
            let found = match sound {
                0 => "Found none valid".to_owned(),
                more => format!("Found {more} valid alternatives"),
            };
            let words = format!("{place} must validate one and only one schema (oneOf). {found}");
            verdict.add(Fault::whole(words));
            best(one).filter(|_| sound == 0).into_iter().for_each(|best| verdict.merge(best));
        }
    }
    let all = each("allOf");
    let (asked, sound) = (all.len(), all.iter().filter(|each| each.is_sound()).count());
    all.into_iter().for_each(|each| verdict.merge(each));
    if sound != asked {
        let none = if sound == 0 { ". None validated" } else { "" };
        let words = format!("{place} must validate all the schemas (allOf){none}");
        verdict.add(Fault::whole(words));
    }
    if schema["not"].is_object() && judge(value, &schema["not"], name, work).is_sound() {
        verdict.add(Fault::whole(format!("{place} must not validate the schema (not)")));
    }
    verdict
}
