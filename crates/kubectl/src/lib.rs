//! kubectl.
#![forbid(unsafe_code)]

pub mod template;
