//! Integers as Go's `strconv.Atoi` reads them, with its words for what it cannot read: error
//! messages of percentages and of patches quote them.

use crate::quote::Quoted;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AtoiError {
    #[error("strconv.Atoi: parsing {}: invalid syntax", Quoted(.0))]
    Syntax(String),
    #[error("strconv.Atoi: parsing {}: value out of range", Quoted(.0))]
    Range(String),
}

pub fn atoi(text: &str) -> Result<i64, AtoiError> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.parse::<i64>().map_err(|error| match error.kind() {
        PosOverflow | NegOverflow => AtoiError::Range(text.to_owned()),
        _ => AtoiError::Syntax(text.to_owned()),
    })
}
