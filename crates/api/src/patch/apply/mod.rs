//! Server-side apply: merging a configuration into an object while remembering, field by field,
//! who set it.
pub mod fieldset;
