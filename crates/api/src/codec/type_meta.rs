//! What an object says it is, read ahead of all the rest.
use super::DecodeError;
use super::json::Reader;
use crate::schema::{Schema, TypeRef};
use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// `apiVersion` and `kind`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TypeMeta {
    pub api_version: String,
    pub kind: String,
}

impl TypeMeta {
    pub fn of(value: &Value) -> TypeMeta {
        let text =
            |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        TypeMeta { api_version: text("apiVersion"), kind: text("kind") }
    }

    /// `apps/v1` → (`apps`, `v1`); `v1` → (``, `v1`).
    pub fn group_version(&self) -> (&str, &str) {
        self.api_version.split_once('/').unwrap_or(("", &self.api_version))
    }

    /// What an object of this type is; nothing for a type that several groups share.
    pub fn of_type(ty: TypeRef<'_>) -> TypeMeta {
        let name = ty.as_struct().map_or("", |s| &*s.name);
        let (package, kind) = name.rsplit_once('.').unwrap_or_default();
        let package = ty.schema.packages().iter().find(|p| p.name == package);
        let Some((package, group)) = package.and_then(|p| Some((p, p.group.as_deref()?))) else {
            return TypeMeta::default();
        };
        let api_version = match group {
            "" => package.version().to_owned(),
            group => format!("{group}/{}", package.version()),
        };
        TypeMeta { api_version, kind: kind.to_owned() }
    }

    /// Names the kind in an object; what is not known is left out.
    pub fn write_into(&self, value: &mut Value) {
        let Value::Object(object) = value else { return };
        for (name, text) in [("apiVersion", &self.api_version), ("kind", &self.kind)] {
            if !text.is_empty() {
                object.insert(name.to_owned(), text.as_str().into());
            }
        }
    }

    pub fn type_in<'s>(&self, schema: &'s Schema) -> Option<TypeRef<'s>> {
        let (group, version) = self.group_version();
        schema.kind(group, version, &self.kind)
    }

    /// What a JSON object says it is. The whole input is read: a syntax error shows here first.
    pub fn from_json(bytes: &[u8]) -> Result<TypeMeta, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut reading = Reading::default();
        let seed = Part { reading: &mut reading, field: None };
        let read = seed.deserialize(&mut reader).and_then(|()| reader.end());
        reading.finish(read.err().map(|error| error.to_string()))
    }

    /// The same of a tree that is not yet canonical.
    pub fn from_tree(tree: Value) -> Result<TypeMeta, DecodeError> {
        let mut reading = Reading::default();
        let read = Part { reading: &mut reading, field: None }.deserialize(tree);
        reading.finish(read.err().map(|error| error.to_string()))
    }
}

/// Upstream reads the two fields with Go's own decoder: keys in any case, the last one counts, and
/// the first value that is not text is reported at the end.
#[derive(Default)]
struct Reading {
    meta: TypeMeta,
    error: Option<String>,
}

const STRUCT: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

impl Reading {
    fn finish(self, syntax: Option<String>) -> Result<TypeMeta, DecodeError> {
        if let Some(error) = syntax.or(self.error) {
            let text = format!("couldn't get version/kind; json parse error: {error}");
            return Err(DecodeError::Syntax(text));
        }
        if self.meta.api_version.matches('/').count() > 1 {
            let text = format!("unexpected GroupVersion string: {}", self.meta.api_version);
            return Err(DecodeError::Type(text));
        }
        Ok(self.meta)
    }
}

/// Any value: of the whole object, or of one of its two fields.
struct Part<'a> {
    reading: &'a mut Reading,
    field: Option<&'static str>,
}

impl Part<'_> {
    fn wrong(self, found: &str) {
        self.reading.error.get_or_insert_with(|| match self.field {
            Some(name) => {
                format!(
                    "json: cannot unmarshal {found} into Go struct field .{name} of type string"
                )
            }
            None => format!("json: cannot unmarshal {found} into Go value of type {STRUCT}"),
        });
    }
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.wrong("bool");
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.wrong("number");
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.wrong("number");
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.wrong("number");
        Ok(())
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<(), E> {
        self.wrong("number");
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        match self.field {
            Some("kind") => self.reading.meta.kind = text.to_owned(),
            Some(_) => self.reading.meta.api_version = text.to_owned(),
            None => self.wrong("string"),
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while access.next_element::<IgnoredAny>()?.is_some() {}
        self.wrong("array");
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while let Some(key) = access.next_key::<String>()? {
            let names = ["kind", "apiVersion"];
            let field = names.into_iter().find(|name| name.eq_ignore_ascii_case(&key));
            match field.filter(|_| self.field.is_none()) {
                Some(name) => {
                    access.next_value_seed(Part { reading: self.reading, field: Some(name) })?
                }
                None => drop(access.next_value::<IgnoredAny>()?),
            }
        }
        if self.field.is_some() {
            self.wrong("object");
        }
        Ok(())
    }
}
