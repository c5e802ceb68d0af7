//! Strict JSON decoding: bytes (or a tree) and a type in, the canonical tree and every unknown or
//! duplicate field out.
//!
//! One pass does all of it: the type is walked along with the input, and a path is a list on the
//! stack that becomes text only when there is something to report.
mod reader;
#[cfg(test)]
mod tests;
mod walk;

pub(super) use reader::{Reader, SyntaxError, integer, repair};

use super::DecodeError;
use crate::quote::Quoted;
use crate::schema::TypeRef;
use serde::Deserializer;
use serde_json::Value;
use std::fmt;
use walk::Walk;

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

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Warn => "Warn",
            Self::Strict => "Strict",
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
    /// In a JSON patch, not in the object that it makes.
    InPatch(Box<Problem>),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::UnknownField(path) => write!(f, "unknown field {}", Quoted(path)),
            Problem::DuplicateField(path) => write!(f, "duplicate field {}", Quoted(path)),
            Problem::Yaml(text) => f.write_str(text),
            Problem::InPatch(problem) => write!(f, "json patch {problem}"),
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
    decode_bytes(bytes, Some(ty), Walk::default())
}

/// The same, with the lists and maps that were given empty: see [`given`](super::given).
pub fn decode_given(bytes: &[u8], ty: TypeRef<'_>) -> Result<Decoded, DecodeError> {
    decode_bytes(bytes, Some(ty), Walk::keeping_empty())
}

/// Decodes any JSON; only duplicate keys can be wrong with it.
pub fn decode_untyped(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    decode_bytes(bytes, None, Walk::default())
}

/// Brings a tree into the canonical form of a type: after a patch, or for a stored object.
pub fn canonicalize(value: Value, ty: TypeRef<'_>) -> Result<Decoded, DecodeError> {
    settle(value, ty, Walk::default())
}

/// The same, with the lists and maps that were given empty.
pub fn canonicalize_given(value: Value, ty: TypeRef<'_>) -> Result<Decoded, DecodeError> {
    settle(value, ty, Walk::keeping_empty())
}

/// The same of a tree that never was a text: its unknown fields are named otherwise.
pub fn convert_given(value: Value, ty: TypeRef<'_>) -> Result<Decoded, DecodeError> {
    settle(value, ty, Walk::converting())
}

fn settle(value: Value, ty: TypeRef<'_>, mut walk: Walk) -> Result<Decoded, DecodeError> {
    let result = walk.start(Some(ty), value);
    walk.finish(result).unwrap_or_else(|error| Err(DecodeError::Syntax(error.to_string())))
}

/// Reads any JSON-like input through its own deserializer. The outer error is the input's, the
/// inner one ours.
pub(super) fn decode_with<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Result<Decoded, DecodeError>, D::Error> {
    let mut walk = Walk::default();
    let result = walk.start(None, deserializer);
    walk.finish(result)
}

fn decode_bytes(
    bytes: &[u8],
    ty: Option<TypeRef<'_>>,
    mut walk: Walk,
) -> Result<Decoded, DecodeError> {
    let mut reader = Reader::new(bytes);
    let result = walk.start(ty, &mut reader).and_then(|value| reader.end().map(|()| value));
    let syntax = |SyntaxError(text)| DecodeError::Syntax(text);
    match walk.finish(result) {
        // Upstream looks for syntax errors first, anywhere in the input.
        Ok(Err(error)) => Err(Reader::check(bytes).map_or_else(syntax, |()| error)),
        Ok(decoded) => decoded,
        Err(error) => Err(syntax(error)),
    }
}
