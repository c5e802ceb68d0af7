//! Kubernetes' expressions: the Common Expression Language with the libraries of 1.37.
//!
//! ```text
//!  text ─► syntax: tree ─► check: types, names, constants ─► Program ─► evaluate: value and cost
//!                             ▲ Environment: variables, types          ▲ Activation: their values
//! ```
//!
//! The language is cel-go's: grammar, type rules, texts of errors, costs. Objects are JSON by
//! reference ([`Value`]); what their fields are is known from a [`Types`] provider, or seen when they
//! are read. Everything is bounded: length and depth of expressions, sizes of types and values, what
//! an evaluation costs.
//!
//! May not know: any IO, who asks and why, where objects come from.
mod authorizer;
mod check;
mod compare;
mod cost;
mod environment;
mod evaluate;
mod golang;
mod issue;
mod library;
mod node;
mod provider;
mod syntax;
#[cfg(test)]
mod tests;
mod types;
mod value;
mod work;

pub use authorizer::{Authorization, Authorizer, Check, Decision};
pub use cost::{MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, RUNTIME_BUDGET};
pub use environment::{CompileError, Environment};
pub use evaluate::{Activation, Evaluated, Program};
pub use issue::{Issue, Issues};
pub use provider::{SchemaTypes, Types};
pub use types::Type;
pub use value::{Entries, List, Map, Moment, Object, Text, Value, View};
pub use work::Error;
