//! Any object in any encoding: what kind it says it is, and its canonical tree.
use super::json::{Decoded, FieldValidation};
use super::{DecodeError, json, protobuf, yaml};
pub use crate::content::Encoding;
use crate::schema::{Schema, TypeRef};
use serde::Deserialize;
use serde_json::Value;

/// `apiVersion` and `kind`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
pub struct TypeMeta {
    #[serde(rename = "apiVersion", default)]
    pub api_version: String,
    #[serde(default)]
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
}

/// Looks at no more than it must to say what kind of object the bytes hold.
pub fn type_meta(bytes: &[u8], encoding: Encoding) -> Result<TypeMeta, DecodeError> {
    match encoding {
        Encoding::Json => serde_json::from_slice(bytes).map_err(|error| {
            DecodeError::Syntax(format!("couldn't get version/kind; json parse error: {error}"))
        }),
        Encoding::Yaml => Ok(TypeMeta::of(&yaml::decode_untyped(bytes)?.value)),
        Encoding::Protobuf => protobuf::type_meta(bytes),
    }
}

/// Decodes an object of a known type.
pub fn decode(bytes: &[u8], encoding: Encoding, ty: TypeRef<'_>) -> Result<Decoded, DecodeError> {
    match encoding {
        Encoding::Json => json::decode(bytes, ty),
        Encoding::Yaml => yaml::decode(bytes, ty),
        Encoding::Protobuf => {
            protobuf::decode(bytes, ty).map(|value| Decoded { value, ..Decoded::default() })
        }
    }
}

/// Encodes a canonical tree.
pub fn encode(value: &Value, encoding: Encoding, ty: TypeRef<'_>) -> Vec<u8> {
    match encoding {
        Encoding::Json => {
            serde_json::to_vec(value).expect("a tree's keys are strings and its numbers finite")
        }
        Encoding::Yaml => yaml::encode(value).into_bytes(),
        Encoding::Protobuf => protobuf::encode(value, ty),
    }
}

impl Decoded {
    /// What `fieldValidation` makes of the problems: the object with its warnings, or one error
    /// that names them all.
    pub fn validate(
        self,
        validation: FieldValidation,
    ) -> Result<(Value, Vec<String>), DecodeError> {
        let problems: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        match validation {
            FieldValidation::Ignore => Ok((self.value, Vec::new())),
            FieldValidation::Warn => Ok((self.value, problems)),
            FieldValidation::Strict if problems.is_empty() => Ok((self.value, problems)),
            FieldValidation::Strict => {
                Err(DecodeError::Type(format!("strict decoding error: {}", problems.join(", "))))
            }
        }
    }
}
