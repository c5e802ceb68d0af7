//! What a pipeline yields: JSON by reference, as Go's decoder would have made it, and the strings
//! and numbers that functions make.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// A value as Go's reflection sees it.
#[derive(Clone, Debug)]
pub struct Val<'a> {
    pub data: Data<'a>,
    /// It was taken out of a map or list and nobody has looked inside yet: messages then call its
    /// type `interface {}`.
    pub wrapped: bool,
}

#[derive(Clone, Debug)]
pub enum Data<'a> {
    /// No value at all: a field that is not there.
    Missing,
    /// JSON's null.
    Nil,
    Bool(bool),
    /// Go's `int`: numbers in templates, lengths, positions.
    Int(i64),
    /// Numbers of JSON without a fraction.
    Int64(i64),
    Float(f64),
    /// A character of a string.
    Byte(u8),
    /// Bytes, since what was decoded from base64 need not be text.
    Str(Cow<'a, [u8]>),
    List(&'a [Value]),
    Map(&'a Map<String, Value>),
}

impl<'a> Val<'a> {
    pub const MISSING: Val<'static> = Val { data: Data::Missing, wrapped: false };

    pub fn new(data: Data<'a>) -> Self {
        Val { data, wrapped: false }
    }

    pub fn of(value: &'a Value) -> Self {
        Val::new(match value {
            Value::Null => Data::Nil,
            Value::Bool(value) => Data::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(int) => Data::Int64(int),
                None => Data::Float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => Data::Str(Cow::Borrowed(text.as_bytes())),
            Value::Array(items) => Data::List(items),
            Value::Object(fields) => Data::Map(fields),
        })
    }

    /// As an element of a map or a list.
    pub fn element(value: &'a Value) -> Self {
        Val { wrapped: true, ..Val::of(value) }
    }

    pub fn text(text: impl Into<String>) -> Self {
        Val::new(Data::Str(Cow::Owned(text.into().into_bytes())))
    }

    pub fn borrowed(text: &'a str) -> Self {
        Val::new(Data::Str(Cow::Borrowed(text.as_bytes())))
    }

    /// What a pipeline makes of its result: it looks inside, and finds nothing in a null.
    pub fn unwrapped(self) -> Self {
        match self.data {
            Data::Nil => Val::MISSING,
            data => Val::new(data),
        }
    }

    pub fn is_nothing(&self) -> bool {
        matches!(self.data, Data::Missing | Data::Nil)
    }

    pub fn is_true(&self) -> bool {
        match &self.data {
            Data::Missing | Data::Nil => false,
            Data::Bool(value) => *value,
            Data::Int(n) | Data::Int64(n) => *n != 0,
            Data::Float(n) => *n != 0.0,
            Data::Byte(n) => *n != 0,
            Data::Str(text) => !text.is_empty(),
            Data::List(items) => !items.is_empty(),
            Data::Map(fields) => !fields.is_empty(),
        }
    }

    /// The type of what is inside, in Go's words.
    pub fn type_name(&self) -> &'static str {
        match &self.data {
            Data::Missing | Data::Nil => "interface {}",
            Data::Bool(_) => "bool",
            Data::Int(_) => "int",
            Data::Int64(_) => "int64",
            Data::Float(_) => "float64",
            Data::Byte(_) => "uint8",
            Data::Str(_) => "string",
            Data::List(_) => "[]interface {}",
            Data::Map(_) => "map[string]interface {}",
        }
    }

    /// The type as it is seen from outside.
    pub fn seen_type(&self) -> &'static str {
        if self.wrapped { "interface {}" } else { self.type_name() }
    }
}
