//! Where in an object something is wrong, and what: the words of every validation message.
//!
//! Validation walks an object with a [`Path`] and collects [`Error`]s; `Status::invalid` turns
//! the list into the answer a client sees. Texts, types and the printing of values are those of
//! upstream's `k8s.io/apimachinery/pkg/util/validation/field`.

mod bad_value;
mod error;
mod path;
#[cfg(test)]
mod tests;

pub use bad_value::BadValue;
pub use error::{Error, ErrorList, ErrorType, aggregate};
pub use path::Path;
