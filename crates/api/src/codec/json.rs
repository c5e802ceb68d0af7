//! Strict JSON decoding: bytes (or a tree) and a type in, the canonical tree and every unknown or
//! duplicate field out.
//!
//! One pass does all of it: the type is walked along with the input, and a path is a list on the
//! stack that becomes text only when there is something to report.
use super::path::{Path, go_type};
use super::presence::{complete, is_written, zero};
use super::{DecodeError, MAX_DEPTH, scalar};
use crate::schema::{Either, Named, Scalar, Struct, Type, TypeRef};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// `fieldValidation`: what a server does about [`Problem`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    Ignore,
    Warn,
    #[default]
    Strict,
}

impl FieldValidation {
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "Ignore" => Some(Self::Ignore),
            "Warn" => Some(Self::Warn),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// Something strict decoding objects to, printed as upstream prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    UnknownField(String),
    DuplicateField(String),
    /// A key set twice in YAML: found before there is a path.
    Yaml(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::UnknownField(path) => write!(f, "unknown field {path:?}"),
            Problem::DuplicateField(path) => write!(f, "duplicate field {path:?}"),
            Problem::Yaml(text) => f.write_str(text),
        }
    }
}

/// A decoded object, and what strict decoding found wrong with it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decoded {
    pub value: Value,
    pub problems: Vec<Problem>,
}

/// Decodes an object of a known type into its canonical tree.
pub fn decode(bytes: &[u8], ty: TypeRef<'_>) -> Result<Decoded, DecodeError> {
    decode_bytes(bytes, Some(ty))
}

/// Decodes any JSON; only duplicate keys can be wrong with it.
pub fn decode_untyped(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    decode_bytes(bytes, None)
}

/// Brings a tree into the canonical form of a type: after a patch, or for a stored object.
pub fn canonicalize(value: Value, ty: TypeRef<'_>) -> Result<Decoded, DecodeError> {
    let mut context = Context::default();
    match Seed::root(Some(ty), &mut context).deserialize(value) {
        Ok(value) => Ok(Decoded { value, problems: context.problems }),
        Err(error) => Err(context.error.unwrap_or_else(|| DecodeError::Syntax(error.to_string()))),
    }
}

/// Reads any JSON-like input through its own deserializer. The outer error is the input's, the
/// inner one ours.
pub(super) fn decode_with<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Result<Decoded, DecodeError>, D::Error> {
    let mut context = Context::default();
    match (Seed::root(None, &mut context).deserialize(deserializer), context.error) {
        (Ok(value), _) => Ok(Ok(Decoded { value, problems: context.problems })),
        (Err(_), Some(error)) => Ok(Err(error)),
        (Err(error), None) => Err(error),
    }
}

fn decode_bytes(bytes: &[u8], ty: Option<TypeRef<'_>>) -> Result<Decoded, DecodeError> {
    let mut context = Context::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    // Our own depth counts instead: a CRD's schema is deeper than serde_json's limit.
    deserializer.disable_recursion_limit();
    let result = Seed::root(ty, &mut context)
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    match (result, context.error) {
        (Ok(value), _) => Ok(Decoded { value, problems: context.problems }),
        // Upstream looks for syntax errors first, anywhere in the input.
        (Err(_), Some(error @ DecodeError::Type(_))) => {
            Err(serde_json::from_slice::<IgnoredAny>(bytes).map_or_else(syntax, |_| error))
        }
        (Err(_), Some(error)) => Err(error),
        (Err(error), None) => Err(syntax(error)),
    }
}

fn syntax(error: serde_json::Error) -> DecodeError {
    DecodeError::Syntax(error.to_string())
}

/// Upstream stops collecting here.
const MAX_PROBLEMS: usize = 100;

#[derive(Default)]
struct Context {
    problems: Vec<Problem>,
    error: Option<DecodeError>,
    /// Inside a value that upstream decodes with a lenient decoder of its own.
    lenient: bool,
}

impl Context {
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
    context: &'a mut Context,
    depth: usize,
}

impl<'a, 's> Seed<'a, 's> {
    fn root(ty: Option<TypeRef<'s>>, context: &'a mut Context) -> Self {
        Seed { ty, path: &Path::Root, context, depth: 0 }
    }

    fn fail<E: serde::de::Error>(&mut self, error: DecodeError) -> E {
        self.context.error.get_or_insert(error);
        E::custom("")
    }

    fn mismatch<E: serde::de::Error>(mut self, found: &str) -> E {
        let wanted = self.ty.map_or_else(String::new, go_type);
        let text = match self.path.go_field() {
            Some(field) => {
                format!(
                    "json: cannot unmarshal {found} into Go struct field {field} of type {wanted}"
                )
            }
            None => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
        };
        self.fail(DecodeError::Type(text))
    }

    fn scalar(&self) -> Option<Scalar> {
        match self.ty?.get() {
            Type::Scalar(Named { scalar, .. }) => Some(*scalar),
            _ => None,
        }
    }

    /// Anything goes here, and is kept as it is.
    fn is_opaque(&self) -> bool {
        match self.ty.map(TypeRef::get) {
            None | Some(Type::Any) => true,
            Some(Type::Scalar(named)) => {
                matches!(named.scalar, Scalar::RawExtension | Scalar::FieldsV1 | Scalar::Json)
            }
            _ => false,
        }
    }

    /// A parsed scalar, or its error with upstream's text.
    fn read<E: serde::de::Error>(
        mut self,
        read: impl FnOnce(Scalar) -> Result<Option<Value>, String>,
        found: &str,
    ) -> Result<Value, E> {
        let Some(kind) = self.scalar() else { return Err(self.mismatch(found)) };
        match read(kind) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(self.mismatch(found)),
            Err(text) => Err(self.fail(DecodeError::Type(text))),
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
        if self.is_opaque() {
            return Ok(value.into());
        }
        match self.ty.map(TypeRef::get) {
            Some(Type::Either(Either::SchemaOrBool, _)) => Ok(value.into()),
            _ => self.read(|kind| Ok((kind == Scalar::Bool).then(|| value.into())), "bool"),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        if self.is_opaque() {
            return Ok(value.into());
        }
        let found = match self.scalar() {
            Some(Scalar::Int32) => format!("number {value}"),
            _ => "number".into(),
        };
        self.read(|kind| scalar::from_integer(kind, value), &found)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            // Too large for any integer of the API: upstream reads it as a float where it may.
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        if self.is_opaque() {
            return Ok(scalar::number(value));
        }
        let found = match self.scalar() {
            Some(Scalar::Int32 | Scalar::Int64) => format!("number {value}"),
            _ => "number".into(),
        };
        self.read(|kind| scalar::from_float(kind, value), &found)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        if self.scalar() == Some(Scalar::String) || self.is_opaque() {
            return Ok(value.into());
        }
        self.read(|kind| scalar::from_text(kind, value), "string")
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        if self.scalar() == Some(Scalar::String) || self.is_opaque() {
            return Ok(Value::String(value));
        }
        self.visit_str(&value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let element = match self.ty.map(TypeRef::get) {
            Some(Type::List(list)) => self.ty.map(|ty| ty.at(list.element)),
            Some(Type::Either(Either::SchemaOrList, props)) => self.ty.map(|ty| ty.at(*props)),
            Some(Type::Either(Either::SchemaOrStrings, _)) => None,
            _ if self.is_opaque() => None,
            _ => return Err(self.mismatch("array")),
        };
        let mut elements = Vec::new();
        loop {
            let path = &Path::Index { parent: self.path, index: elements.len() };
            let depth = self.depth + 1;
            let seed = Seed { ty: element, path, context: &mut *self.context, depth };
            match access.next_element_seed(seed)? {
                // Go reads null as the element's zero value.
                Some(Value::Null) => elements.push(element.map_or(Value::Null, zero)),
                Some(value) => elements.push(value),
                None => return Ok(Value::Array(elements)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Value, A::Error> {
        let lenient = self.context.lenient;
        match self.ty.map(TypeRef::get) {
            Some(Type::Struct(s)) => self.visit_struct(s, access),
            Some(Type::Map(map)) => {
                let value = self.ty.map(|ty| ty.at(map.value));
                self.visit_entries(value, access)
            }
            Some(Type::Either(_, props)) => {
                let ty = self.ty.map(|ty| ty.at(*props));
                self.context.lenient = true;
                let context = &mut *self.context;
                let result = Seed { ty, context, ..self }.visit_map(access);
                self.context.lenient = lenient;
                result
            }
            None => self.visit_entries(None, access),
            _ if self.is_opaque() => {
                self.context.lenient = true;
                let seed = Seed { ty: None, context: &mut *self.context, ..self };
                let result = seed.visit_entries(None, access);
                self.context.lenient = lenient;
                result
            }
            _ => Err(self.mismatch("object")),
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
        let mut object = Map::new();
        let mut seen = Seen::default();
        while let Some(key) = access.next_key_seed(Key)? {
            let Some(position) = structure.position(&key) else {
                self.context.report(Problem::UnknownField(self.path.join(&key)));
                access.next_value::<IgnoredAny>()?;
                continue;
            };
            let field = &structure.fields[position];
            if seen.insert(position) {
                self.context.report(Problem::DuplicateField(self.path.join(&key)));
            }
            let path = &Path::Field { parent: self.path, name: &field.name, owner: ty };
            let field_ty = ty.at(field.ty);
            let seed = Seed {
                ty: Some(field_ty),
                path,
                context: &mut *self.context,
                depth: self.depth + 1,
            };
            let mut value = access.next_value_seed(seed)?;
            if value.is_null() && !field.pointer {
                value = zero(field_ty);
            }
            if is_written(&value, field, field_ty) {
                object.insert(key, value);
            } else {
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
        let mut object = Map::new();
        while let Some(key) = access.next_key_seed(Key)? {
            if object.contains_key(&key) {
                self.context.report(Problem::DuplicateField(self.path.join(&key)));
            }
            let path = &Path::Key { parent: self.path, key: &key };
            let seed = Seed { ty, path, context: &mut *self.context, depth: self.depth + 1 };
            let mut value = access.next_value_seed(seed)?;
            if let (Value::Null, Some(ty)) = (&value, ty) {
                value = zero(ty);
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;
    use expect_test::{Expect, expect};

    /// Decodes `json` as a kind of core/v1 or apps/v1 and shows all that came of it.
    fn check(kind: &str, json: &str, expected: Expect) {
        let ty =
            builtin().kind("", "v1", kind).or_else(|| builtin().kind("apps", "v1", kind)).unwrap();
        let shown = match decode(json.as_bytes(), ty) {
            Ok(decoded) => {
                let problems: String = decoded.problems.iter().map(|p| format!("\n{p}")).collect();
                format!("{}{problems}", decoded.value)
            }
            Err(error) => format!("error: {error}"),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn unknown_and_duplicate_fields_are_found_with_their_paths() {
        check(
            "Pod",
            r#"{"spec":{"containers":[{"name":"a","imagee":"b","name":"c"}],"x":{"deep":1}},
                "metadata":{"labels":{"l":"1","l":"2"}},"extra":0,"extra":1}"#,
            expect![[r#"
                {"metadata":{"labels":{"l":"2"}},"spec":{"containers":[{"name":"c","resources":{}}]},"status":{}}
                unknown field "spec.containers[0].imagee"
                duplicate field "spec.containers[0].name"
                unknown field "spec.x"
                duplicate field "metadata.labels.l"
                unknown field "extra""#]],
        );
    }

    #[test]
    fn empty_optional_values_go_and_required_ones_appear() {
        check(
            "Deployment",
            r#"{"metadata":{"name":"","labels":{},"creationTimestamp":null},
                "spec":{"replicas":0,"paused":false,"template":{"spec":{"hostNetwork":false,"nodeSelector":null}}}}"#,
            expect![[
                r#"{"metadata":{},"spec":{"replicas":0,"selector":null,"strategy":{},"template":{"metadata":{},"spec":{"containers":null}}},"status":{}}"#
            ]],
        );
    }

    #[test]
    fn scalars_take_their_one_spelling() {
        check(
            "Pod",
            r#"{"metadata":{"creationTimestamp":"2020-01-01T02:00:00.5+02:00"},
                "spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":0.1,"memory":"1024Mi"}},
                "livenessProbe":{"httpGet":{"port":"http"}}}]}}"#,
            expect![[
                r#"{"metadata":{"creationTimestamp":"2020-01-01T00:00:00Z"},"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":"http"}},"name":"a","resources":{"limits":{"cpu":"100m","memory":"1Gi"}}}]},"status":{}}"#
            ]],
        );
    }

    #[test]
    fn a_wrong_type_is_named_as_go_names_it() {
        check(
            "Pod",
            r#"{"spec":{"containers":{"name":"a"}}}"#,
            expect![
                "error: json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container"
            ],
        );
        check(
            "Pod",
            r#"{"spec":{"containers":[{"imagePullPolicy":1}]}}"#,
            expect![
                "error: json: cannot unmarshal number into Go struct field Container.spec.containers.imagePullPolicy of type v1.PullPolicy"
            ],
        );
        check(
            "Pod",
            r#"{"spec":{"volumes":[{"emptyDir":"x"}]}}"#,
            expect![
                "error: json: cannot unmarshal string into Go struct field Volume.spec.volumes.VolumeSource.emptyDir of type v1.EmptyDirVolumeSource"
            ],
        );
        check(
            "Deployment",
            r#"{"spec":{"replicas":3000000000}}"#,
            expect![
                "error: json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32"
            ],
        );
        check(
            "Pod",
            "[]",
            expect!["error: json: cannot unmarshal array into Go value of type v1.Pod"],
        );
    }

    #[test]
    fn a_syntax_error_anywhere_comes_first() {
        check(
            "Pod",
            r#"{"spec":{"containers":{}}, oops}"#,
            expect!["error: key must be a string at line 1 column 28"],
        );
    }

    #[test]
    fn raw_content_is_kept_and_not_looked_into() {
        check(
            "ControllerRevision",
            r#"{"data":{"a":null,"b":{"a":1,"a":2}},"revision":1}"#,
            expect![[r#"{"data":{"a":null,"b":{"a":2}},"metadata":{},"revision":1}"#]],
        );
    }

    #[test]
    fn nesting_has_a_limit() {
        let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
        assert_eq!(decode_untyped(deep.as_bytes()), Err(DecodeError::TooDeep));
    }
}
