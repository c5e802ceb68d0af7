//! The walk along type and input together: values take their canonical form, and what strict
//! decoding objects to is noted.
//!
//! Go goes on after a value of the wrong type, and reports the first of them at the end; an error
//! of a type that decodes itself (a quantity, a time) ends the decoding at once. So which of two
//! errors a user sees depends on their kind, not only on their order.
use super::super::given::{is_empty_collection, is_neither};
use super::super::path::{Path, go_type};
use super::super::presence::{complete, is_written, zero};
use super::super::scalar::{self, Input, Refusal};
use super::super::{DecodeError, MAX_DEPTH};
use super::{Decoded, Problem};
use crate::schema::{Either, Named, Scalar, Struct, Type, TypeRef};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;

/// Upstream stops collecting here.
const MAX_PROBLEMS: usize = 100;

/// What the walk has found so far.
#[derive(Default)]
pub(super) struct Walk {
    problems: Vec<Problem>,
    /// The first value of the wrong type: what the decoding ends with unless `error` is set.
    wrong_type: Option<String>,
    /// Ends the decoding at once.
    error: Option<DecodeError>,
    /// Inside a value that upstream decodes with a lenient decoder of its own.
    lenient: bool,
    /// Optional lists and maps are kept even if nothing is in them.
    keeps_empty: bool,
    /// A tree is converted, not a text decoded: upstream has two pieces of code for that.
    converts: bool,
}

impl Walk {
    pub fn converting() -> Walk {
        Walk { converts: true, ..Walk::keeping_empty() }
    }

    pub fn keeping_empty() -> Walk {
        Walk { keeps_empty: true, ..Walk::default() }
    }

    pub fn start<'de, D: Deserializer<'de>>(
        &mut self,
        ty: Option<TypeRef<'_>>,
        deserializer: D,
    ) -> Result<Value, D::Error> {
        let seed = Seed { ty, path: &Path::Root, walk: self, depth: 0, onto: None };
        let value = seed.deserialize(deserializer)?;
        Ok(match (&value, ty) {
            (Value::Null, Some(ty)) => zero(ty),
            _ => value,
        })
    }

    /// The outer error is the input's, the inner one ours.
    pub fn finish<E>(self, result: Result<Value, E>) -> Result<Result<Decoded, DecodeError>, E> {
        match (result, self.error, self.wrong_type) {
            (_, Some(error), _) => Ok(Err(error)),
            (Err(error), None, _) => Err(error),
            (Ok(_), None, Some(text)) => Ok(Err(DecodeError::Type(text))),
            (Ok(value), None, None) => Ok(Ok(Decoded { value, problems: self.problems })),
        }
    }

    fn report(&mut self, problem: Problem) {
        let full = self.lenient || self.problems.len() >= MAX_PROBLEMS;
        if !full && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

struct Seed<'a, 's> {
    ty: Option<TypeRef<'s>>,
    path: &'a Path<'a>,
    walk: &'a mut Walk,
    depth: usize,
    /// What the same field held before, when it is there twice: Go decodes on top of it.
    onto: Option<Value>,
}

impl<'s> Seed<'_, 's> {
    /// Ends the decoding.
    fn fail<E: serde::de::Error>(&mut self, error: DecodeError) -> E {
        self.walk.error.get_or_insert(error);
        E::custom("")
    }

    fn mismatch(&self, found: &str, wanted: &str) -> String {
        match self.path.go_field() {
            Some(field) => {
                format!(
                    "json: cannot unmarshal {found} into Go struct field {field} of type {wanted}"
                )
            }
            None => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
        }
    }

    /// A scalar, or an error with upstream's text.
    fn read<E: serde::de::Error>(mut self, input: Input<'_>) -> Result<Value, E> {
        let refusal = match self.ty.map(TypeRef::get) {
            None | Some(Type::Any) => scalar::any(input),
            Some(Type::Scalar(named)) => scalar::read(named.scalar, input),
            Some(Type::Either(Either::SchemaOrBool, _)) => match input {
                Input::Bool(value) => Ok(value.into()),
                _ => Err(Refusal::Fatal("boolean or JSON schema expected".to_owned())),
            },
            // Neither of the two: there, and yet nothing.
            Some(Type::Either(Either::SchemaOrList, _)) if self.walk.keeps_empty => {
                Ok(Value::Array(Vec::new()))
            }
            Some(Type::Either(..)) => Ok(Value::Null),
            Some(_) => Err(Refusal::WrongType(input.found().to_owned())),
        };
        let text = match refusal {
            Ok(value) => return Ok(value),
            Err(Refusal::WrongType(found)) => {
                self.mismatch(&found, &self.ty.map_or_else(String::new, go_type))
            }
            Err(Refusal::Corrupt(text)) => text,
            Err(Refusal::FatalType { found, wanted }) => {
                let text = self.mismatch(&found, wanted);
                return Err(self.fail(DecodeError::Type(text)));
            }
            Err(Refusal::Fatal(text)) => return Err(self.fail(DecodeError::Type(text))),
        };
        self.walk.wrong_type.get_or_insert(text);
        Ok(Value::Null)
    }

    fn scalar(&self) -> Option<Scalar> {
        match self.ty?.get() {
            Type::Scalar(Named { scalar, .. }) => Some(*scalar),
            _ => None,
        }
    }

    fn is_either(&self) -> bool {
        matches!(self.ty.map(TypeRef::get), Some(Type::Either(..)))
    }

    /// Anything goes here, and is kept as it is.
    fn is_opaque(&self) -> bool {
        match self.ty.map(TypeRef::get) {
            None | Some(Type::Any) => true,
            Some(Type::Scalar(named)) => scalar::is_raw(named.scalar),
            _ => false,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<Value, D::Error> {
        if self.depth > MAX_DEPTH {
            return Err(self.fail(DecodeError::TooDeep));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.read(Input::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.read(Input::Integer(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        match i64::try_from(value) {
            Ok(value) => self.read(Input::Integer(value)),
            Err(_) => self.read(Input::Number(&value.to_string())),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.read(Input::Number(&value.to_string()))
    }

    /// A number as it is spelled: see [`super::Reader`].
    fn visit_bytes<E: serde::de::Error>(self, number: &[u8]) -> Result<Value, E> {
        self.read(Input::Number(&String::from_utf8_lossy(number)))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.read(Input::Text(value))
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        if self.scalar() == Some(Scalar::String) || self.is_opaque() {
            return Ok(Value::String(value));
        }
        self.read(Input::Text(&value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let element = match self.ty.map(TypeRef::get) {
            Some(Type::List(list)) => self.ty.map(|ty| ty.at(list.element)),
            Some(Type::Either(Either::SchemaOrList, props)) => self.ty.map(|ty| ty.at(*props)),
            Some(Type::Either(Either::SchemaOrStrings, _)) => {
                self.ty.and_then(|ty| ty.schema.named("string"))
            }
            Some(Type::Scalar(Named { scalar: Scalar::Bytes, .. })) => None,
            _ if self.is_opaque() => None,
            _ => {
                while access.next_element::<IgnoredAny>()?.is_some() {}
                return self.read(Input::List(&[]));
            }
        };
        let mut elements = Vec::new();
        loop {
            let path = &Path::Index { parent: self.path, index: elements.len() };
            let depth = self.depth + 1;
            let seed = Seed { ty: element, path, walk: &mut *self.walk, depth, onto: None };
            match access.next_element_seed(seed)? {
                // Go reads null as the element's zero value.
                Some(Value::Null) => elements.push(element.map_or(Value::Null, zero)),
                Some(value) => elements.push(value),
                None if self.scalar() == Some(Scalar::Bytes) => {
                    return self.read(Input::List(&elements));
                }
                None if elements.is_empty() && self.is_either() && !self.walk.keeps_empty => {
                    return Ok(Value::Null);
                }
                None => return Ok(Value::Array(elements)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let lenient = self.walk.lenient;
        match self.ty.map(TypeRef::get) {
            Some(Type::Struct(s)) => self.visit_struct(s, access),
            Some(Type::Map(map)) => {
                let value = self.ty.map(|ty| ty.at(map.value));
                self.visit_entries(value, access)
            }
            Some(Type::Either(_, props)) => {
                let ty = self.ty.map(|ty| ty.at(*props));
                self.walk.lenient = true;
                let seed = Seed { ty, walk: &mut *self.walk, onto: None, ..self };
                let result = seed.visit_map(access);
                self.walk.lenient = lenient;
                result
            }
            None => self.visit_entries(None, access),
            _ if self.is_opaque() => {
                self.walk.lenient = true;
                let seed = Seed { ty: None, walk: &mut *self.walk, onto: None, ..self };
                let result = seed.visit_entries(None, access);
                self.walk.lenient = lenient;
                result
            }
            _ => {
                while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                self.onto = None;
                self.read(Input::Object)
            }
        }
    }
}

impl<'s> Seed<'_, 's> {
    fn visit_struct<'de, A: MapAccess<'de>>(
        self,
        structure: &'s Struct,
        mut access: A,
    ) -> Result<Value, A::Error> {
        let Some(ty) = self.ty else { return Err(A::Error::custom("a struct has a type")) };
        let mut object = match self.onto {
            Some(Value::Object(object)) => object,
            _ => Map::new(),
        };
        // Almost never: then nothing has to be looked up in what is only being made.
        let on_top = !object.is_empty();
        let mut seen = Seen::default();
        while let Some(key) = access.next_key_seed(Key)? {
            let Some(position) = structure.position(&key) else {
                let place = match self.walk.converts {
                    true => self.path.join_without_keys(&key),
                    false => self.path.join(&key),
                };
                self.walk.report(Problem::UnknownField(place));
                access.next_value::<IgnoredAny>()?;
                continue;
            };
            let field = &structure.fields[position];
            let duplicate = seen.insert(position);
            if duplicate {
                self.walk.report(Problem::DuplicateField(self.path.join(&key)));
            }
            let again = duplicate || on_top;
            let path = &Path::Field { parent: self.path, name: &field.name, owner: ty };
            let field_ty = ty.at(field.ty);
            // A struct decodes on top of what it held, be it the struct around it that is repeated.
            let onto = match field_ty.get() {
                Type::Struct(_) | Type::Map(_) if again => object.remove(&key),
                _ => None,
            };
            let kept = onto.clone().filter(|_| !field.pointer && field_ty.as_struct().is_some());
            let walk = &mut *self.walk;
            let seed = Seed { ty: Some(field_ty), path, walk, depth: self.depth + 1, onto };
            let mut value = access.next_value_seed(seed)?;
            if value.is_null() && !field.pointer {
                // Go leaves what is not a pointer, list or map alone.
                value = match kept {
                    Some(kept) => kept,
                    None if is_plain(field_ty) && object.contains_key(&key) => continue,
                    None => zero(field_ty),
                };
            }
            let kept = self.walk.keeps_empty
                && (is_empty_collection(&value, field_ty) || is_neither(&value, field_ty));
            if kept || is_written(&value, field, field_ty) {
                object.insert(key, value);
            } else if again {
                object.remove(&key);
            }
        }
        complete(&mut object, structure, ty);
        Ok(Value::Object(object))
    }

    fn visit_entries<'de, A: MapAccess<'de>>(
        self,
        ty: Option<TypeRef<'s>>,
        mut access: A,
    ) -> Result<Value, A::Error> {
        let mut object = match self.onto {
            Some(Value::Object(object)) => object,
            _ => Map::new(),
        };
        let mut older: BTreeSet<String> = object.keys().cloned().collect();
        while let Some(key) = access.next_key_seed(Key)? {
            if object.contains_key(&key) && !older.remove(&key) {
                self.walk.report(Problem::DuplicateField(self.path.join(&key)));
            }
            let path = &Path::Key { parent: self.path, key: &key };
            let walk = &mut *self.walk;
            let seed = Seed { ty, path, walk, depth: self.depth + 1, onto: None };
            let mut value = access.next_value_seed(seed)?;
            if let (Value::Null, Some(ty)) = (&value, ty) {
                value = zero(ty);
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// A scalar that Go has a type for, which null does not change.
fn is_plain(ty: TypeRef<'_>) -> bool {
    let Type::Scalar(named) = ty.get() else { return false };
    matches!(
        named.scalar,
        Scalar::String | Scalar::Bool | Scalar::Int32 | Scalar::Int64 | Scalar::Double
    )
}

/// Which fields of a struct were met already: a bit each, since no struct of the API is wide.
#[derive(Default)]
struct Seen([u64; 2]);

impl Seen {
    fn insert(&mut self, index: usize) -> bool {
        let Some(word) = self.0.get_mut(index / 64) else { return false };
        let bit = 1 << (index % 64);
        let seen = *word & bit != 0;
        *word |= bit;
        seen
    }
}

/// An object's key. YAML may write it as a number or a boolean; JSON cannot.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Key {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<String, E> {
        Ok(key.to_owned())
    }

    fn visit_string<E>(self, key: String) -> Result<String, E> {
        Ok(key)
    }

    fn visit_bool<E>(self, key: bool) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_i64<E>(self, key: i64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_u64<E>(self, key: u64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_f64<E>(self, key: f64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_unit<E>(self) -> Result<String, E> {
        Ok("null".to_owned())
    }
}
