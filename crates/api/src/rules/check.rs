//! A place in an object: what is there, and the path to it.
//!
//! Rules walk an object with a [`Field`]: value and path move together, so that a rule names each
//! field once, and what is wrong goes into one list on the way. Most rules are then one line:
//!
//! ```text
//! port.at("containerPort").port();
//! port.at("protocol").one_of(PROTOCOLS);
//! ```
//!
//! The object is in its canonical form: an optional zero value is not there, which reads as zero. Only
//! lists and maps that were given empty are ([`given`](crate::codec::given)): whether there is
//! anything in one is [`Field::is_empty`], not [`Field::exists`].
//! In debug builds a field that the type does not have is a panic, so that a misspelt rule cannot
//! pass for a kept one.
use super::metadata::IMMUTABLE;
use crate::field::{BadValue, Error, ErrorList, Path};
use crate::names::{self, Faults};
use crate::quantity::Quantity;
use crate::schema::TypeRef;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;

static ABSENT: Value = Value::Null;

pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub const POSITIVE: &str = "must be greater than zero";

/// A value somewhere in an object, or its absence.
#[derive(Clone, Copy)]
pub struct Field<'v, 'p> {
    value: &'v Value,
    path: Path<'p>,
    errors: &'v RefCell<ErrorList>,
    ty: Option<TypeRef<'static>>,
    /// What is said here is said by a rule that upstream declares with the type.
    declared: bool,
}

/// What a walk over an object found wrong.
pub fn collect(
    object: &Value,
    ty: TypeRef<'static>,
    rules: impl FnOnce(&Field<'_, '_>),
) -> ErrorList {
    let errors = RefCell::new(ErrorList::new());
    rules(&Field {
        value: object,
        path: Path::NIL,
        errors: &errors,
        ty: Some(ty),
        declared: false,
    });
    errors.into_inner()
}

/// Reading.
impl<'v, 'p> Field<'v, 'p> {
    /// A field of this one; a name with dots descends several levels at once.
    pub fn at<'q>(&'q self, name: &'static str) -> Field<'v, 'q>
    where
        'p: 'q,
    {
        let (mut value, mut ty) = (self.value, self.ty);
        for name in name.split('.') {
            value = value.get(name).unwrap_or(&ABSENT);
            if cfg!(debug_assertions) {
                ty = ty.and_then(|ty| {
                    let child = ty.child(name);
                    let known = child.is_some() || ty.as_struct().is_none();
                    assert!(known, "{} has no field {name}", self.path);
                    child
                });
            }
        }
        Field { value, path: self.path.child(name), errors: self.errors, ty, declared: false }
    }

    /// A place below this one that upstream names unlike any field; there is no value.
    pub fn spelled<'q>(&'q self, name: &'q str) -> Field<'v, 'q>
    where
        'p: 'q,
    {
        Field {
            value: &ABSENT,
            path: self.path.child(name),
            errors: self.errors,
            ty: None,
            declared: false,
        }
    }

    /// An entry of this map, whether it is there or not.
    pub fn key<'q>(&'q self, key: &'q str) -> Field<'v, 'q>
    where
        'p: 'q,
    {
        let value = self.value.get(key).unwrap_or(&ABSENT);
        let ty = self.ty.and_then(|ty| ty.as_map().map(|map| ty.at(map.value)));
        Field { value, path: self.path.key(key), errors: self.errors, ty, declared: false }
    }

    pub fn value(&self) -> &'v Value {
        self.value
    }

    pub fn exists(&self) -> bool {
        !self.value.is_null()
    }

    pub fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::Bool(flag) => !flag,
        }
    }

    pub fn int(&self) -> i64 {
        self.value.as_i64().unwrap_or(0)
    }

    pub fn flag(&self) -> bool {
        self.value.as_bool().unwrap_or(false)
    }

    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            _ => 0,
        }
    }

    pub fn list(&self) -> &'v [Value] {
        self.value.as_array().map_or(&[], Vec::as_slice)
    }

    pub fn texts(&self) -> impl Iterator<Item = &'v str> {
        self.list().iter().filter_map(Value::as_str)
    }

    pub fn map(&self) -> Option<&'v Map<String, Value>> {
        self.value.as_object()
    }

    /// A map of texts, such as labels.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let entry = |(key, value): (&String, &Value)| {
            (key.clone(), value.as_str().unwrap_or_default().to_owned())
        };
        self.map().into_iter().flatten().map(entry).collect()
    }

    pub fn quantity(&self) -> Option<Quantity> {
        self.value.as_str().and_then(|text| Quantity::parse(text).ok())
    }

    pub fn items<'q>(&'q self) -> impl Iterator<Item = Field<'v, 'q>>
    where
        'p: 'q,
    {
        let ty = self.ty.and_then(|ty| ty.as_list().map(|list| ty.at(list.element)));
        self.list().iter().enumerate().map(move |(i, value)| Field {
            value,
            path: self.path.index(i),
            errors: self.errors,
            ty,
            declared: false,
        })
    }

    /// The entries of a map, sorted by key.
    pub fn entries<'q>(&'q self) -> impl Iterator<Item = (&'v str, Field<'v, 'q>)>
    where
        'p: 'q,
    {
        let ty = self.ty.and_then(|ty| ty.as_map().map(|map| ty.at(map.value)));
        let mut entries: Vec<_> = self.map().into_iter().flatten().collect();
        entries.sort_by_key(|(key, _)| *key);
        entries.into_iter().map(move |(key, value)| {
            let path = self.path.key(key);
            (key.as_str(), Field { value, path, errors: self.errors, ty, declared: false })
        })
    }

    /// Another value in the same place, for a walk over what is not there literally.
    pub fn with_value<T>(&self, value: &Value, walk: impl FnOnce(&Field<'_, '_>) -> T) -> T {
        walk(&Field { value, ..*self })
    }

    /// The same value under another path.
    pub fn on_path<'q>(&self, path: Path<'q>) -> Field<'v, 'q> {
        Field { value: self.value, path, errors: self.errors, ty: self.ty, declared: self.declared }
    }

    /// What the rules find wrong here, in a list of its own.
    pub fn apart(&self, rules: impl FnOnce(&Field<'_, '_>)) -> ErrorList {
        let errors = RefCell::new(ErrorList::new());
        rules(&Field { errors: &errors, ..*self });
        errors.into_inner()
    }

    /// The same place, whose rules upstream declares with the type: what they say comes last.
    pub fn declared(mut self) -> Self {
        self.declared = true;
        self
    }

    pub fn is_declared(&self) -> bool {
        self.declared
    }

    pub fn path(&self) -> &Path<'p> {
        &self.path
    }

    /// The typed form of what is here, if it has that form.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        T::deserialize(self.value).ok()
    }
}

/// Reporting.
impl Field<'_, '_> {
    pub fn push(&self, mut error: Error) {
        error.declared |= self.declared;
        self.errors.borrow_mut().push(error);
    }

    pub fn extend(&self, errors: impl IntoIterator<Item = Error>) {
        errors.into_iter().for_each(|error| self.push(error));
    }

    pub fn count(&self) -> usize {
        self.errors.borrow().len()
    }

    /// The value as messages show it. What is absent is an empty text unless it is a pointer.
    pub fn shown(&self) -> BadValue {
        match self.value {
            Value::Null => "".into(),
            value => value.into(),
        }
    }

    /// A small struct as upstream's messages show it: under Go's names, with nothing left out. A
    /// row is the name in Go, the name in JSON, and what stands for absence.
    pub fn internal(&self, rows: &[(&str, &str, &str)]) -> BadValue {
        let part = |(go, json, zero): &(&str, &str, &str)| {
            let value = self.value.get(json).map_or_else(|| (*zero).to_owned(), Value::to_string);
            format!("\"{go}\":{value}")
        };
        let parts: Vec<String> = rows.iter().map(part).collect();
        BadValue::verbatim(format!("{{{}}}", parts.join(",")))
    }

    pub fn required(&self, detail: impl Into<Cow<'static, str>>) {
        self.push(Error::required(&self.path, detail));
    }

    pub fn invalid(&self, detail: impl Into<Cow<'static, str>>) {
        self.push(Error::invalid(&self.path, self.shown(), detail));
    }

    pub fn invalid_as(&self, value: impl Into<BadValue>, detail: impl Into<Cow<'static, str>>) {
        self.push(Error::invalid(&self.path, value, detail));
    }

    pub fn forbidden(&self, detail: impl Into<Cow<'static, str>>) {
        self.push(Error::forbidden(&self.path, detail));
    }

    pub fn not_supported(&self, supported: &[&str]) {
        self.push(Error::not_supported(&self.path, self.shown(), supported));
    }

    pub fn duplicate(&self) {
        self.push(Error::duplicate(&self.path, self.shown()));
    }

    pub fn not_found(&self) {
        self.push(Error::not_found(&self.path, self.shown()));
    }

    pub fn too_long(&self, max: usize) {
        self.push(Error::too_long(&self.path, max));
    }

    pub fn too_many(&self, max: usize) {
        self.push(Error::too_many(&self.path, Some(self.len()), max));
    }
}

/// Rules of one line. Those that answer say whether the value passed.
impl Field<'_, '_> {
    pub fn require(&self) -> bool {
        self.require_for("")
    }

    pub fn require_for(&self, detail: &'static str) -> bool {
        if self.is_empty() {
            self.required(detail);
        }
        !self.is_empty()
    }

    /// Each fault of a name in an error of its own.
    pub fn faults(&self, faults: Faults) -> bool {
        let sound = faults.is_empty();
        faults.into_iter().for_each(|fault| self.invalid(fault));
        sound
    }

    /// Must be there and have the form.
    pub fn named(&self, rule: fn(&str) -> Faults) {
        if self.require() {
            self.faults(rule(self.text()));
        }
    }

    /// The same where only the first is declared with the type.
    pub fn declared_named(&self, rule: fn(&str) -> Faults) {
        if self.declared().require() {
            self.faults(rule(self.text()));
        }
    }

    /// May be left out, else must have the form.
    pub fn named_if_given(&self, rule: fn(&str) -> Faults) {
        if !self.is_empty() {
            self.faults(rule(self.text()));
        }
    }

    /// One of an enumeration; absence is a value like any other.
    pub fn one_of(&self, supported: &[&str]) -> bool {
        let known = supported.contains(&self.text());
        if !known {
            self.not_supported(supported);
        }
        known
    }

    pub fn one_of_if_given(&self, supported: &[&str]) -> bool {
        !self.exists() || self.one_of(supported)
    }

    /// Must be given, and be one of an enumeration.
    pub fn require_one_of(&self, supported: &[&str]) -> bool {
        self.require() && self.one_of(supported)
    }

    pub fn nonnegative(&self) -> bool {
        let sound = self.int() >= 0;
        if !sound {
            self.invalid(NOT_NEGATIVE);
        }
        sound
    }

    pub fn positive(&self) -> bool {
        let sound = self.int() > 0;
        if !sound {
            self.invalid_as(self.int(), POSITIVE);
        }
        sound
    }

    pub fn between(&self, low: i64, high: i64) -> bool {
        let sound = (low..=high).contains(&self.int());
        if !sound {
            self.invalid_as(self.int(), names::inclusive_range(low, high));
        }
        sound
    }

    pub fn port(&self) -> bool {
        self.between(1, 65535)
    }

    /// A number or a name of a port.
    pub fn port_or_name(&self) {
        match self.value {
            Value::String(name) => {
                self.faults(names::port_name(name));
            }
            _ => {
                self.port();
            }
        }
    }

    pub fn immutable(&self, old: &Field<'_, '_>) -> bool {
        let same = self.value == old.value;
        if !same {
            let shown = match (self.value, old.value) {
                (Value::Null, Value::String(_)) => "".into(),
                (Value::Null, _) => BadValue::null(),
                (Value::Object(fields), _)
                    if fields.contains_key("matchExpressions")
                        || fields.contains_key("matchLabels") =>
                {
                    super::workload::selector_shown(self)
                }
                (value, _) => value.into(),
            };
            self.invalid_as(shown, IMMUTABLE);
        }
        same
    }

    /// The same where the rule is declared with the type: its messages show no value.
    pub fn declared_immutable(&self, old: &Field<'_, '_>) {
        if self.value != old.value {
            self.declared().invalid_as(BadValue::null(), IMMUTABLE);
        }
    }

    /// An absolute path, or one that leads out of where it starts, is refused.
    pub fn descending_path(&self) {
        if self.text().starts_with('/') {
            self.invalid("must be a relative path");
        }
        self.no_backsteps();
    }

    pub fn no_backsteps(&self) {
        if self.text().split('/').any(|part| part == "..") {
            self.invalid("must not contain '..'");
        }
    }

    /// Each item's value of a field must be another; reports at the field of the later item.
    pub fn unique_by(&self, field: &'static str) {
        let mut seen = std::collections::HashSet::new();
        for item in self.items() {
            let value = item.at(field);
            if !value.is_empty() && !seen.insert(value.text()) {
                value.duplicate();
            }
        }
    }

    /// Nothing may occur twice.
    pub fn unique(&self) {
        let list = self.list();
        for (i, item) in self.items().enumerate() {
            if list[..i].contains(&list[i]) {
                item.duplicate();
            }
        }
    }

    pub fn at_most(&self, max: usize) -> bool {
        if self.len() > max {
            self.too_many(max);
        }
        self.len() <= max
    }

    /// Labels as they are given to objects.
    pub fn label_map(&self) {
        self.extend(super::metadata::validate_labels(&self.labels(), &self.path));
    }

    pub fn label_selector(&self) {
        let selector = self.read();
        self.extend(crate::selector::label::validate_label_selector(selector.as_ref(), &self.path));
    }
}
