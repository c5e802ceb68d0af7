//! Values of expressions: JSON by reference, and what expressions make of it.
//!
//! An object is never copied into a second tree: a [`Value`] borrows the JSON it came from, with a
//! view of its type if one is known. What an expression makes is shared by counting.
use crate::authorizer::Authorization;
use crate::library::format::Format;
use crate::library::net::Cidr;
use crate::library::semver::Semver;
use crate::library::urls::Url;
use crate::provider::{escape, unescape_field};
use crate::shape::{Identity, Shape};
use api::quantity::Quantity;
use api::regexp::Regexp;
use api::schema::{Scalar, Type as SchemaType, TypeRef};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

#[derive(Clone)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// In nanoseconds.
    Duration(i64),
    Timestamp(Moment),
    List(List<'a>),
    Map(Map<'a>),
    Type(Arc<str>),
    Optional(Option<Arc<Value<'a>>>),
    Url(Arc<Url>),
    Quantity(Arc<Quantity>),
    Ip(IpAddr),
    Cidr(Cidr),
    Semver(Arc<Semver>),
    Format(&'static Format),
    Authorization(Arc<Authorization<'a>>),
    /// A constant pattern, compiled with its expression.
    Pattern(Arc<Pattern>),
}

pub struct Pattern {
    pub text: Arc<str>,
    pub regexp: Regexp,
}

/// Seconds since 1970 and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    pub secs: i64,
    pub nanos: i32,
}

#[derive(Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Owned(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Owned(text) => text,
        }
    }
}

#[derive(Clone)]
pub enum List<'a> {
    Json(&'a [Json], View<'a>),
    Owned(Arc<Vec<Value<'a>>>),
}

#[derive(Clone)]
pub enum Map<'a> {
    Json(&'a serde_json::Map<String, Json>, View<'a>),
    Owned(Arc<Entries<'a>>),
    /// A message that the expression made.
    Object(Arc<Object<'a>>),
}

/// A map that the expression made, in the order it was made in.
#[derive(Clone, Default)]
pub struct Entries<'a> {
    list: Vec<(Value<'a>, Value<'a>)>,
    places: HashMap<Key, usize>,
    /// What is found where there is nothing, in maps that have no end.
    otherwise: Option<Arc<Value<'a>>>,
}

pub struct Object<'a> {
    pub name: Arc<str>,
    pub fields: Vec<(Arc<str>, Value<'a>)>,
}

/// What a map finds its values by: numbers of any type are the same if they are equal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Key {
    Bool(bool),
    Number(i128),
    String(Arc<str>),
}

impl Key {
    pub fn of(value: &Value<'_>) -> Option<Key> {
        match value {
            Value::Bool(value) => Some(Key::Bool(*value)),
            Value::Int(value) => Some(Key::Number((*value).into())),
            Value::Uint(value) => Some(Key::Number((*value).into())),
            Value::Double(value) if value.fract() == 0.0 && value.abs() < 1e19 => {
                Some(Key::Number(*value as i128))
            }
            Value::String(Text::Owned(text)) => Some(Key::String(text.clone())),
            Value::String(text) => Some(Key::String((**text).into())),
            _ => None,
        }
    }
}

impl<'a> Entries<'a> {
    /// Adds an entry; false if its key was there, or can be none.
    pub fn insert(&mut self, key: Value<'a>, value: Value<'a>) -> bool {
        let Some(place) = Key::of(&key) else { return false };
        if self.places.contains_key(&place) {
            return false;
        }
        self.places.insert(place, self.list.len());
        self.list.push((key, value));
        true
    }

    /// Adds an entry or takes the place of the one with its key; false if the key can be none.
    pub fn set(&mut self, key: Value<'a>, value: Value<'a>) -> bool {
        let Some(place) = Key::of(&key) else { return false };
        match self.places.get(&place) {
            Some(at) => self.list[*at].1 = value,
            None => return self.insert(key, value),
        }
        true
    }

    pub fn list(&self) -> &[(Value<'a>, Value<'a>)] {
        &self.list
    }

    /// The same map, in which something is found by every key.
    #[must_use]
    pub fn otherwise(mut self, value: Value<'a>) -> Self {
        self.otherwise = Some(Arc::new(value));
        self
    }

    fn get(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match self.places.get(&Key::of(key)?) {
            Some(place) => Some(self.list[*place].1.clone()),
            None => self.otherwise.as_deref().cloned(),
        }
    }
}

/// What is known of the type of some JSON.
#[derive(Clone, Copy, Default)]
pub enum View<'a> {
    /// Nothing: numbers, texts, lists and maps are what they look like.
    #[default]
    Dyn,
    Typed(TypeRef<'a>),
    /// By the schema of a definition.
    Shaped(Shape<'a>),
}

impl<'a> View<'a> {
    fn element(self) -> View<'a> {
        match self {
            View::Typed(ty) => {
                ty.as_list().map_or(View::Dyn, |list| View::Typed(ty.at(list.element)))
            }
            View::Shaped(shape) => shape.items().map_or(View::Dyn, View::Shaped),
            View::Dyn => View::Dyn,
        }
    }

    fn child(self, name: &str) -> View<'a> {
        match self {
            View::Typed(ty) => ty.child(name).map_or(View::Dyn, View::Typed),
            View::Shaped(shape) => shape.values().map_or(View::Dyn, View::Shaped),
            View::Dyn => View::Dyn,
        }
    }

    fn scalar(self) -> Option<Scalar> {
        match self {
            View::Typed(ty) => match ty.get() {
                SchemaType::Scalar(named) => Some(named.scalar),
                _ => None,
            },
            View::Shaped(_) | View::Dyn => None,
        }
    }
}

/// So many parts a value may have that is written as JSON.
const MOST_WRITTEN: u32 = 1_000_000;

impl<'a> Value<'a> {
    pub fn text(text: impl Into<Arc<str>>) -> Value<'a> {
        Value::String(Text::Owned(text.into()))
    }

    pub fn borrowed(text: &'a str) -> Value<'a> {
        Value::String(Text::Borrowed(text))
    }

    pub fn list(values: Vec<Value<'a>>) -> Value<'a> {
        Value::List(List::Owned(Arc::new(values)))
    }

    pub fn texts<S: Into<Arc<str>>>(texts: impl IntoIterator<Item = S>) -> Value<'a> {
        Value::list(texts.into_iter().map(Value::text).collect())
    }

    pub fn map(entries: Entries<'a>) -> Value<'a> {
        Value::Map(Map::Owned(Arc::new(entries)))
    }

    pub fn some(value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(Arc::new(value)))
    }

    pub fn none() -> Value<'a> {
        Value::Optional(None)
    }

    /// JSON of which nothing is known.
    pub fn json(json: &'a Json) -> Value<'a> {
        Value::viewed(json, View::Dyn)
    }

    pub fn viewed(json: &'a Json, view: View<'a>) -> Value<'a> {
        if let View::Shaped(shape) = view
            && let Some(value) = shaped(json, shape)
        {
            return value;
        }
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(value) if view.scalar() != Some(Scalar::Double) => Value::Int(value),
                _ => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => typed_text(text, view.scalar()),
            Json::Array(items) => Value::List(List::Json(items, view)),
            Json::Object(map) => Value::Map(Map::Json(map, view)),
        }
    }

    /// The name of its type, as `type(x)` gives it and errors say it.
    pub fn type_name(&self) -> &str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) | Value::Pattern(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::List(_) => "list",
            Value::Map(Map::Object(object)) => &object.name,
            Value::Map(_) => "map",
            Value::Type(_) => "type",
            Value::Optional(_) => "optional_type",
            Value::Url(_) => "kubernetes.URL",
            Value::Quantity(_) => "kubernetes.Quantity",
            Value::Ip(_) => "net.IP",
            Value::Cidr(_) => "net.CIDR",
            Value::Semver(_) => "kubernetes.Semver",
            Value::Format(_) => "kubernetes.NamedFormat",
            Value::Authorization(authorization) => authorization.type_name(),
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            Value::Pattern(pattern) => Some(&pattern.text),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = self { Some(*value) } else { None }
    }

    pub fn as_list(&self) -> Option<&List<'a>> {
        if let Value::List(list) = self { Some(list) } else { None }
    }

    pub fn as_map(&self) -> Option<&Map<'a>> {
        if let Value::Map(map) = self { Some(map) } else { None }
    }

    /// How long it is, of what has a length.
    pub fn size(&self) -> Option<u64> {
        Some(match self {
            Value::String(text) => text.chars().count() as u64,
            Value::Pattern(pattern) => pattern.text.chars().count() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(list) => list.len() as u64,
            Value::Map(Map::Object(_)) => return None,
            Value::Map(map) => map.len() as u64,
            // By the bytes of the address.
            Value::Ip(address) => crate::library::net::size(*address),
            Value::Cidr(cidr) => cidr.size(),
            _ => return None,
        })
    }

    /// As JSON, if it can be that. What was built of one part many times may be too large to be
    /// written out.
    pub fn to_json(&self) -> Option<Json> {
        self.written(&mut { MOST_WRITTEN })
    }

    fn written(&self, left: &mut u32) -> Option<Json> {
        *left = left.checked_sub(1)?;
        Some(match self {
            Value::Null => Json::Null,
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Uint(value) => (*value).into(),
            Value::Double(value) => serde_json::Number::from_f64(*value)?.into(),
            Value::String(text) => Json::String((**text).to_owned()),
            Value::Pattern(pattern) => Json::String((*pattern.text).to_owned()),
            Value::Bytes(bytes) => {
                use base64::Engine;
                base64::engine::general_purpose::STANDARD.encode(bytes).into()
            }
            Value::Duration(nanos) => crate::library::time::duration_text(*nanos).into(),
            Value::Timestamp(moment) => crate::library::time::timestamp_text(*moment).into(),
            Value::List(List::Json(items, View::Dyn)) => Json::Array(items.to_vec()),
            Value::Map(Map::Json(map, View::Dyn)) => Json::Object((*map).clone()),
            Value::List(list) => {
                Json::Array(list.iter().map(|item| item.written(left)).collect::<Option<_>>()?)
            }
            Value::Map(map) => {
                let mut object = serde_json::Map::new();
                for (key, value) in map.iter() {
                    let key = match key {
                        Value::String(text) => (*text).to_owned(),
                        Value::Bool(value) => value.to_string(),
                        Value::Int(value) => value.to_string(),
                        Value::Uint(value) => value.to_string(),
                        _ => return None,
                    };
                    object.insert(key, value.written(left)?);
                }
                Json::Object(object)
            }
            Value::Quantity(quantity) => quantity.to_string().into(),
            Value::Optional(Some(value)) => value.written(left)?,
            Value::Optional(None) => Json::Null,
            _ => return None,
        })
    }
}

/// What a schema makes of a number or a text; none if it is what it looks like.
fn shaped<'a>(json: &'a Json, shape: Shape<'a>) -> Option<Value<'a>> {
    if shape.is_int_or_string() {
        return None;
    }
    match (shape.kind(), json) {
        ("number", Json::Number(number)) => Some(Value::Double(number.as_f64()?)),
        ("string", Json::String(text)) => {
            let moment = |text: &str| {
                let (secs, nanos) = api::time::parse(text).ok()?;
                Some(Value::Timestamp(Moment { secs, nanos }))
            };
            match shape.format() {
                "byte" => Some(typed_text(text, Some(Scalar::Bytes))),
                "duration" => api::conform::duration(text).map(Value::Duration),
                "date" => moment(&format!("{text}T00:00:00Z")),
                "date-time" => moment(text),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A text in an object whose type says that it stands for something else.
fn typed_text<'a>(text: &'a str, scalar: Option<Scalar>) -> Value<'a> {
    match scalar {
        Some(Scalar::Bytes) => {
            use base64::Engine;
            match base64::engine::general_purpose::STANDARD.decode(text) {
                Ok(bytes) => Value::Bytes(bytes.into()),
                Err(_) => Value::borrowed(text),
            }
        }
        Some(Scalar::Time | Scalar::MicroTime) => match api::time::parse(text) {
            Ok((secs, nanos)) => Value::Timestamp(Moment { secs, nanos }),
            Err(_) => Value::borrowed(text),
        },
        _ => Value::borrowed(text),
    }
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match self {
            List::Json(items, _) => items.len(),
            List::Owned(items) => items.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, at: usize) -> Option<Value<'a>> {
        match self {
            List::Json(items, view) => {
                items.get(at).map(|item| Value::viewed(item, view.element()))
            }
            List::Owned(items) => items.get(at).cloned(),
        }
    }

    /// What makes its elements the same as those of another list.
    pub fn identity(&self) -> Identity<'a> {
        match self {
            List::Json(_, View::Shaped(shape)) => shape.identity(),
            _ => Identity::Place,
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

impl<'a> Map<'a> {
    pub fn len(&self) -> usize {
        match self {
            Map::Json(map, _) => map.len(),
            Map::Owned(entries) => entries.list.len(),
            Map::Object(object) => object.fields.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        match self {
            Map::Json(map, View::Shaped(shape)) if shape.has_properties() => {
                let name = unescape_field(name)?;
                // A field that is null is not there.
                let json = map.get(&*name).filter(|json| !json.is_null())?;
                Some(Value::viewed(json, View::Shaped(shape.property(&name)?)))
            }
            Map::Json(map, View::Shaped(shape)) => {
                Some(Value::viewed(map.get(name)?, View::Shaped(shape.values()?)))
            }
            Map::Json(map, view) => map.get(name).map(|json| Value::viewed(json, view.child(name))),
            Map::Owned(entries) => entries.get(&Value::borrowed(name)),
            Map::Object(object) => {
                let found = object.fields.iter().find(|(field, _)| **field == *name);
                found.map(|(_, value)| value.clone())
            }
        }
    }

    /// Whether the key is really there: what is found otherwise does not count.
    pub fn contains(&self, key: &Value<'_>) -> bool {
        match self {
            Map::Owned(entries) => Key::of(key).is_some_and(|it| entries.places.contains_key(&it)),
            _ => self.get(key).is_some(),
        }
    }

    pub fn get(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match (self, key.as_str()) {
            (Map::Owned(entries), _) => entries.get(key),
            (_, Some(name)) => self.field(name),
            _ => None,
        }
    }

    pub fn iter(&self) -> Box<dyn Iterator<Item = (Value<'a>, Value<'a>)> + '_> {
        match self {
            Map::Json(map, View::Shaped(shape)) if shape.has_properties() => {
                // What the schema does not name cannot be seen.
                Box::new(map.keys().filter_map(|name| {
                    let name = escape(name)?;
                    let value = self.field(&name)?;
                    Some((Value::text(name), value))
                }))
            }
            Map::Json(map, view) => Box::new(map.iter().map(|(name, json)| {
                (Value::borrowed(name), Value::viewed(json, view.child(name)))
            })),
            Map::Owned(entries) => Box::new(entries.list.iter().cloned()),
            Map::Object(object) => Box::new(
                object
                    .fields
                    .iter()
                    .map(|(name, value)| (Value::text(name.clone()), value.clone())),
            ),
        }
    }
}
