//! Any object in any encoding: what kind it says it is, and its canonical tree.
use super::json::{Decoded, FieldValidation};
use super::{DecodeError, json, protobuf, yaml};
use crate::schema::TypeRef;
use serde_json::Value;

pub use super::type_meta::TypeMeta;
pub use crate::content::Encoding;

/// Looks at no more than it must to say what kind of object the bytes hold.
pub fn type_meta(bytes: &[u8], encoding: Encoding) -> Result<TypeMeta, DecodeError> {
    match encoding {
        Encoding::Json => TypeMeta::from_json(bytes),
        Encoding::Yaml => TypeMeta::from_tree(yaml::decode_untyped(bytes)?.value),
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

/// The same as it was given: see [`given`](super::given). Protobuf has no empty lists.
pub fn decode_given(
    bytes: &[u8],
    encoding: Encoding,
    ty: TypeRef<'_>,
) -> Result<Decoded, DecodeError> {
    match encoding {
        Encoding::Json => json::decode_given(bytes, ty),
        Encoding::Yaml => yaml::decode_given(bytes, ty),
        Encoding::Protobuf => decode(bytes, encoding, ty),
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
