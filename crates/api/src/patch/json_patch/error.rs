//! What can go wrong with a JSON Patch, in upstream's words.

use crate::atoi::AtoiError;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("json: cannot unmarshal {0} into Go value of type jsonpatch.Patch")]
    NotAPatch(&'static str),
    #[error("json: cannot unmarshal {0} into Go value of type jsonpatch.Operation")]
    NotAnOperation(&'static str),
    #[error("The allowed maximum operations in a JSON patch is {limit}, got {actual}")]
    TooMany { limit: usize, actual: usize },
    #[error("Unexpected kind: {0}")]
    Kind(String),
    #[error(
        "{operation} operation failed to decode {field}: {}missing value",
        no_path(operation, field)
    )]
    NoPath { operation: &'static str, field: &'static str },
    #[error(
        "{operation} operation failed to decode {field}: {}",
        bad_path(operation, field, actual)
    )]
    BadPath { operation: &'static str, field: &'static str, actual: &'static str },
    /// The path leads nowhere.
    #[error("{operation} operation does not apply: {what}{path}: missing value")]
    Missing { operation: &'static str, what: &'static str, path: String },
    #[error("error in {operation} for path: '{path}': {source}")]
    At { operation: &'static str, path: String, source: PlaceError },
    #[error("error in copy for from: '{path}': {source}")]
    CopyFrom { path: String, source: PlaceError },
    #[error("error while adding value during copy: {0}")]
    CopyTo(PlaceError),
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {copied}, \
         exceeding the limit {limit}"
    )]
    CopySize { copied: usize, limit: usize },
    /// The end is a slip of upstream's that clients see.
    #[error("replace operation value must be object or array: %!w(<nil>)")]
    ReplaceWithScalar,
    /// The document would be deeper than anyone means it.
    #[error("exceeded max depth")]
    TooDeep,
    #[error(
        "the operations of the patch take too much work together: send them in several patches"
    )]
    TooMuchWork,
    #[error("testing value {0} failed: test failed")]
    TestFailed(String),
}

/// What is wrong with the last part of a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    #[error("Unable to remove nonexistent key: {0}: missing value")]
    Nonexistent(String),
    #[error("Unable to access invalid index: {0}: invalid index referenced")]
    InvalidIndex(i64),
    #[error("value was not a proper array index: '{key}': {source}")]
    NotAnIndex { key: String, source: AtoiError },
    #[error(transparent)]
    Index(#[from] AtoiError),
}

impl Error {
    pub(super) fn missing(
        operation: &'static str,
        what: &'static str,
        path: &str,
        quoted: bool,
    ) -> Self {
        let path = if quoted { format!("\"{path}\"") } else { path.to_owned() };
        Error::Missing { operation, what, path }
    }

    /// True if the patch itself is too long, which is answered with 413 instead of 422.
    pub fn is_too_large(&self) -> bool {
        matches!(self, Error::TooMany { .. })
    }
}

/// Three operations leave the cause out.
fn terse(operation: &str, field: &str) -> bool {
    field == "path" && matches!(operation, "add" | "remove" | "copy")
}

fn no_path(operation: &str, field: &str) -> &'static str {
    match field {
        _ if terse(operation, field) => "",
        "path" => "operation missing path field: ",
        _ => "operation, missing from field: ",
    }
}

fn bad_path(operation: &str, field: &str, actual: &str) -> String {
    if terse(operation, field) {
        return "missing value".to_owned();
    }
    format!("json: cannot unmarshal {actual} into Go value of type string")
}
