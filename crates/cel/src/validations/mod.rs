//! The rules that a definition gives its objects itself: `x-kubernetes-validations`
//! (`apiextensions-apiserver/pkg/apiserver/schema/cel`).
//!
//! ```text
//!  schema ─► rules      every rule compiled, on the level of the schema it stands on
//!         ─► definition what is wrong with the rules, told when the definition is written
//!  object ─► evaluate   the object held against them, level by level
//!                ▲ correlation: what of it is as it was before
//! ```
mod correlation;
mod definition;
mod evaluate;
mod rules;
#[cfg(test)]
mod tests;

pub use definition::faults as definition_faults;
pub use evaluate::{Said, Update};
pub use rules::Rules;
