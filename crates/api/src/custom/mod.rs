//! Custom resources: what a CustomResourceDefinition makes of the objects it defines.
//!
//! ```text
//!  definition ─► accept    which of its names it gets, and the conditions that say so
//!             ─► rows      one row of the registry for each version that is served
//!  object     ─► object    decoded, pruned and defaulted by its version's schema; read from the store
//!             ─► rules     prepared and validated, as a built-in kind is by its own rules
//!             ─► columns   shown in a table
//! ```
//! Everything here is pure. A row of a definition is a [`Resource`](crate::kinds::Resource) like any
//! other; what only such a row has is its [`Definition`].
//!
//! **It may not know** the store, or who converts objects by webhook: [`object::read`] is given a
//! conversion.
pub mod accept;
pub mod approval;
mod columns;
mod lists;
mod object;
mod path;
mod ratchet;
mod rows;
mod rules;
#[cfg(test)]
mod testing;
mod versions;

pub use columns::{Column, definitions as column_definitions};
pub use object::{
    Conversion, coerced, decode, decode_version, patched, prepared, read, renamed, settle,
    without_kind,
};
pub use path::JsonPath;
pub use rows::{Defined, DefinitionError, define};
pub use rules::{scale_of_path, unchecked};
pub use versions::compare;

use crate::schema::CustomSchema;
use serde_json::Value;
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// What a row has from the definition it comes from: one version, and all it belongs to.
#[derive(Debug)]
pub struct Definition {
    pub kind: &'static str,
    pub singular: &'static str,
    pub version: Arc<Version>,
    pub family: Arc<Family>,
}

/// A definition as a whole.
#[derive(Debug)]
pub struct Family {
    /// `widgets.example.com`.
    pub name: String,
    pub uid: String,
    /// What it was when these rows were made of it.
    pub generation: i64,
    pub versions: Vec<Arc<Version>>,
    /// `spec.conversion`, as it was given.
    pub conversion: Value,
    /// It is being deleted: nothing new comes to be.
    pub terminating: bool,
}

/// One version of a definition, compiled.
#[derive(Debug)]
pub struct Version {
    /// Another for each that was ever compiled: what was found out under one says nothing of another.
    pub id: u64,
    pub name: &'static str,
    pub api_version: String,
    pub schema: CustomSchema,
    /// `openAPIV3Schema`, as it was given: what values are held against.
    pub openapi: Arc<Value>,
    pub columns: Vec<Column>,
    /// What field selectors may name, beside name and namespace.
    pub selectable: Vec<Selectable>,
    pub has_status: bool,
    pub scale: Option<Scale>,
    /// What everybody is told who still uses it.
    pub warning: Option<String>,
    /// Whether anything in it has a default.
    pub has_defaults: bool,
    /// Whether objects may be inside of its objects.
    pub has_embedded: bool,
    /// What whoever holds objects against the schema's own rules (`x-kubernetes-validations`) keeps
    /// of them; none if it has none.
    pub rules: Option<Kept>,
}

/// A place for what others compile from a version, once, and what goes when the version goes.
#[derive(Debug, Default)]
pub struct Kept(OnceLock<Box<dyn Any + Send + Sync>>);

impl Kept {
    /// What is kept, made when it is first asked for. It is of one type ever.
    pub fn get<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.0.get_or_init(|| Box::new(make())).downcast_ref()
    }
}

/// A field that objects can be selected by.
#[derive(Debug, Clone)]
pub struct Selectable {
    /// As selectors spell it: `spec.color`.
    pub label: String,
    pub path: JsonPath,
}

/// Where an object keeps what its scale is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    pub spec_replicas: String,
    pub status_replicas: String,
    /// Empty where there is none.
    pub selector: String,
}

impl Family {
    /// The version of an `apiVersion`.
    pub fn version(&self, api_version: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.api_version == api_version)
    }

    /// Whether objects change more than their `apiVersion` from one version to another.
    pub fn converts_by_webhook(&self) -> bool {
        self.conversion["strategy"] == "Webhook"
    }
}
