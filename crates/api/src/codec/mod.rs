//! Objects in and out of their encodings, all driven by the schema.
//!
//! Whatever the encoding, a decoded tree is in one **canonical form**: what upstream's typed
//! object would be written as in JSON. Unknown fields are gone, `null`s are gone, an optional
//! zero value is left out, a required one is there, quantities, times and durations are written
//! one way only ([`presence`] and [`scalar`] hold those rules). So what is stored compares equal
//! to what upstream stores, and protobuf and JSON clients see the same object.
//!
//! Where we differ from upstream on purpose:
//! - objects nest 200 levels deep, not 10,000: a bound that any stack can bear;
//! - raw JSON inside an object is kept as a tree, so its keys are sorted and its numbers respelled;
//! - empty optional bytes count as absent;
//! - broken UTF-8 in protobuf is repaired when it is read, not when it is written as JSON.
mod base64;
pub mod given;
pub mod json;
pub mod object;
mod path;
mod presence;
pub mod protobuf;
mod scalar;
mod type_meta;
pub mod yaml;

pub use json::{FieldValidation, Problem};
pub(crate) use presence::{is_struct_in_go, is_written};

/// Why bytes are not the object they should be; the text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON, YAML or protobuf at all.
    #[error("{0}")]
    Syntax(String),
    /// A value of the wrong type, or one that its type cannot read.
    #[error("{0}")]
    Type(String),
    /// Nested deeper than anyone means it.
    #[error("exceeded max depth")]
    TooDeep,
}

pub(crate) use crate::depth::LIMIT as MAX_DEPTH;
