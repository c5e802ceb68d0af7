//! Kubernetes' expressions: the Common Expression Language with the libraries of 1.37.
//!
//! ```text
//!  text ─► syntax: tree ─► check: types, names, constants ─► Program ─► evaluate: value and cost
//!                             ▲ Environment: variables, types          ▲ Activation: their values
//! ```
//!
//! The language is cel-go's: grammar, type rules, texts of errors, costs. Objects are JSON by
//! reference ([`Value`]); what their fields are is known from a [`Types`] provider, or seen when they
//! are read; [`validations`] are the rules that a custom resource's schema has. Everything is bounded: length and depth of expressions, sizes of types and values, what
//! an evaluation costs.
//!
//! May not know: any IO, who asks and why, where objects come from.
mod authorizer;
mod check;
mod compare;
mod cost;
pub mod device;
mod environment;
mod estimate;
mod evaluate;
mod golang;
mod issue;
mod library;
mod node;
mod provider;
mod shape;
mod syntax;
#[cfg(test)]
mod tests;
mod types;
pub mod validations;
mod value;
mod work;

pub use authorizer::{Authorization, Authorizer, Check, Decision};
pub use cost::{MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, RUNTIME_BUDGET};
pub use environment::{CompileError, Environment};
pub use estimate::Sizes;
pub use evaluate::{Activation, Evaluated, Program};
pub use issue::{Issue, Issues};
pub use provider::{Declared, Fields, SchemaTypes, Types};
pub use shape::{Identity, SELF, Shape, ShapeTypes, Step};
pub use types::Type;
pub use value::{Entries, List, Map, Moment, Object, Text, Value, View};
pub use work::Error;
