//! Server-side apply: merging a configuration into an object while remembering, field by field,
//! who set it.
//!
//! `metadata.managedFields` lists the managers of an object, each with the set of fields it owns.
//! [`FieldManager`] keeps that list true through the two ways of changing an object:
//!
//! - **Update** (create, replace, any other patch): the client sends the whole object. What differs
//!   from the live one now belongs to the client, and to nobody else.
//! - **Apply**: the client sends only what it cares for. It owns exactly that from now on; changing
//!   what another manager owns is a conflict unless forced; what it owned before and no longer
//!   mentions is removed, if nobody else owns it.
//!
//! Below it: [`fieldset`] is the algebra of field sets, [`typed`] walks objects by their schema,
//! [`managed_fields`] is the list in its written form, `updater` the two algorithms. The behaviour
//! is that of `sigs.k8s.io/structured-merge-diff` and `apimachinery/pkg/util/managedfields`.
mod cap;
mod conflict;
pub mod csa_upgrade;
mod extract;
pub mod fieldset;
mod filter;
mod last_applied;
pub mod managed_fields;
mod manager;
mod scale;
#[cfg(test)]
mod tests;
mod timestamps;
pub mod typed;
mod unapply;
mod updater;

pub use conflict::{Conflict, Conflicts};
pub use extract::extract;
pub use filter::Filter;
pub use managed_fields::ManagedFields;
pub use manager::{Error, FieldManager};
pub use scale::ScaleHandler;
pub use timestamps::keep_timestamps_if_unchanged;
pub use updater::ConvertError;
