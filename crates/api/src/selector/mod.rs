//! Which objects are meant: by their [`label`]s, or by their [`field`]s.

pub mod field;
pub mod label;
