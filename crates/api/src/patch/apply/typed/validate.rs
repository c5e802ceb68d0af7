//! Whether a configuration has the fields and types that the schema declares.
use super::super::fieldset::PathElement;
use super::atom::{Atom, ListAtom, MapAtom, Ty};
use crate::patch::golang::{Go, quote, type_name};
use crate::schema::Scalar;
use serde_json::{Map, Value};
use std::fmt::{self, Display, Formatter};

/// Each problem with its path, as upstream words and lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationErrors(pub Vec<(String, String)>);

impl std::error::Error for ValidationErrors {}

impl Display for ValidationErrors {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let show = |(path, message): &(String, String)| match path.as_str() {
            "" => message.clone(),
            path => format!("{path}: {message}"),
        };
        match &self.0[..] {
            [only] => f.write_str(&show(only)),
            all => {
                f.write_str("errors:")?;
                all.iter().try_for_each(|error| write!(f, "\n  {}", show(error)))
            }
        }
    }
}

pub(super) fn check(value: &Value, ty: Ty<'_>, duplicates: bool) -> Result<(), ValidationErrors> {
    let mut checker = Checker { duplicates, path: Vec::new(), errors: Vec::new() };
    checker.value(value, ty, false);
    match checker.errors.is_empty() {
        true => Ok(()),
        false => Err(ValidationErrors(checker.errors)),
    }
}

struct Checker {
    duplicates: bool,
    path: Vec<PathElement>,
    errors: Vec<(String, String)>,
}

impl Checker {
    /// `open`: some parent keeps unknown fields, and with it everything below.
    fn value(&mut self, value: &Value, ty: Ty<'_>, open: bool) {
        match ty.atom(Some(value)) {
            Atom::Scalar(scalar) => {
                if let Some(problem) = scalar_problem(scalar, value) {
                    self.report(problem);
                }
            }
            Atom::List(list) => match value {
                Value::Null => {}
                Value::Array(items) => self.list(items, &list, open),
                other => self.report(format!("expected list, got &{{{}}}", Go(other))),
            },
            Atom::Map(map) => match value {
                Value::Null => {}
                Value::Object(entries) => self.map(entries, &map, open),
                // Where a CRD says nothing (`additionalProperties: true`), anything may be.
                _ if map.fields.is_some_and(|(s, _)| s.fields.is_empty()) => {}
                other => self.report(format!("expected map, got &{{{}}}", Go(other))),
            },
        }
    }

    fn map(&mut self, entries: &Map<String, Value>, map: &MapAtom<'_>, open: bool) {
        let open = open || map.fields.is_some_and(|(s, _)| s.preserve_unknown);
        for (key, value) in entries {
            self.path.push(PathElement::field(key));
            let declared = map.declared(key).or(open.then_some(Ty::Deduced));
            match declared {
                Some(ty) => self.value(value, ty, open),
                None => self.report("field not declared in schema".to_owned()),
            }
            self.path.pop();
            if declared.is_none() {
                return;
            }
        }
    }

    fn list(&mut self, items: &[Value], list: &ListAtom<'_>, open: bool) {
        let mut seen = std::collections::BTreeSet::new();
        for (i, item) in items.iter().enumerate() {
            let element = match list.identity.map(|identity| list.element(identity, item)) {
                None => PathElement::Index(i64::try_from(i).unwrap_or(i64::MAX)),
                Some(Ok(element)) => element,
                Some(Err(problem)) => return self.report(format!("element {i}: {problem}")),
            };
            if list.identity.is_some() && !seen.insert(element.clone()) && !self.duplicates {
                self.report(format!("duplicate entries for key {element}"));
            }
            self.path.push(element);
            self.value(item, list.element, open);
            self.path.pop();
        }
    }

    fn report(&mut self, problem: String) {
        let path = self.path.iter().map(PathElement::to_string).collect();
        self.errors.push((path, problem));
    }
}

fn scalar_problem(scalar: Option<Scalar>, value: &Value) -> Option<String> {
    if value.is_null() {
        return None;
    }
    match scalar {
        Some(Scalar::Int32 | Scalar::Int64 | Scalar::Double | Scalar::Number) => (!value
            .is_number())
        .then(|| format!("expected numeric (int or float), got {}", type_name(value))),
        Some(Scalar::String | Scalar::Bytes | Scalar::Duration) => {
            (!value.is_string()).then(|| {
                format!("expected string, got &value.valueUnstructured{{Value:{}}}", syntax(value))
            })
        }
        Some(Scalar::Bool) => {
            (!value.is_boolean()).then(|| format!("expected boolean, got &{{{}}}", Go(value)))
        }
        _ => (value.is_array() || value.is_object())
            .then(|| format!("expected any scalar, got &{{{}}}", Go(value))),
    }
}

/// `%#v`.
fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            format!(
                "[]interface {{}}{{{}}}",
                items.iter().map(syntax).collect::<Vec<_>>().join(", ")
            )
        }
        Value::Object(map) => {
            let entries: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{}:{}", quote(key), syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        other => Go(other).to_string(),
    }
}
