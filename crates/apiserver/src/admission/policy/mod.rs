//! Policies of the cluster's users: rules in CEL that refuse or change what is written.
//!
//! ```text
//!  store ─► in_force: policies and bindings ─► Policies: compiled once a version
//!  Attributes ─► matching ─► parameters ─► conditions ─► validating: Deny, Warn, Audit
//!                                                    └─► mutating: patches, defaults, once again
//! ```
//! A policy counts where a binding says so. Whatever goes wrong with one is settled by its own
//! `failurePolicy`. Policies and bindings are never intercepted by policies that are stored, so that none can
//! lock out who would mend it; those of manifests see them. Expressions that do not compile are refused when they are
//! written ([`faults`]).
mod compiled;
mod conditions;
mod configured;
pub mod counts;
mod environment;
mod faults;
mod in_force;
mod input;
mod matching;
mod mutating;
mod mutation;
mod parameters;
#[cfg(test)]
#[path = "served/tests.rs"]
mod served;
#[cfg(test)]
mod tests;
pub mod type_checking;
mod validating;

pub use conditions::{MatchConditions, Met};
pub use configured::{configure_mutating, configure_validating};
pub use faults::faults;
pub use in_force::{Policies, start, take_manifests};
pub use mutating::admit;
pub use validating::validate;
