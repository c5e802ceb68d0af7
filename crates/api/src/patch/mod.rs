//! Ways of changing an object: each takes the current one and a description of the change.

pub mod json_patch;
pub mod merge;
