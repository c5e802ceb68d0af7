//! The rules of each kind: its defaults, what it refuses, what a write keeps or wipes, how it is
//! printed.
//!
//! A kind implements [`Kind`] on its typed form, one module per kind or family; the registry's row
//! carries the same behind one signature ([`Rules`]), so that the server runs every kind through
//! one path and no row can exist without rules:
//!
//! ```text
//!  decode ─► defaults ─► prepare ─► validate ─► store ─► row of a table
//!  (tree)     (tree)      (tree)     (typed)               (typed)
//! ```
//!
//! - **Defaults** ([`defaults`]) belong to types, not to kinds: a container is defaulted alike in a
//!   Pod and in a Deployment's template. They are a table keyed by type, run by one walk.
//! - **Preparing** is what upstream calls the strategy: which parts of a request count at all.
//! - **Validation** reads the typed form and collects `field::Error`s with upstream's paths, words
//!   and order. What every object shares (names, labels, owners) is in [`metadata`].
//! - **Tables** are what `kubectl get` prints.
//!
//! **They may not know** the store, other objects or who is asking: what needs state (allocating an
//! address, counting a quota) is the server's.
pub mod defaults;
mod generic;
pub mod metadata;
mod namespace;
mod table;

pub use metadata::NameRule;
pub use table::{Column, Row, age};

use crate::field::{ErrorList, Path};
use crate::kinds::Resource;
use crate::names;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::any::Any;

/// What a typed form has to be able to do.
pub trait Form:
    k8s_openapi::Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + Any + Send + Sync
{
}

impl<T> Form for T where
    T: k8s_openapi::Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + Any + Send + Sync
{
}

/// What is peculiar to one kind. The defaults of this trait are what most kinds do.
pub trait Kind: Form {
    const STRATEGY: Strategy = Strategy::USUAL;

    /// What the names of its objects must be.
    const NAME: NameRule = names::name_is_dns_subdomain;

    /// What a creation keeps of the request. The server has already set identity and times.
    fn prepare_create(object: &mut Value) {
        prepare::create(object, &Self::STRATEGY);
    }

    /// What a write keeps of the request, beside the old object.
    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        prepare::update(new, old, part, &Self::STRATEGY);
    }

    /// A new object, beside its metadata.
    fn validate(&self) -> ErrorList;

    /// A changed one, beside its metadata.
    fn validate_update(&self, _old: &Self, _part: Part<'_>) -> ErrorList {
        self.validate()
    }

    /// What is allowed and yet worth a word.
    fn warnings(&self, _old: Option<&Self>) -> Vec<String> {
        Vec::new()
    }

    /// What `kubectl get` prints of it.
    const COLUMNS: &[Column] = table::USUAL;

    /// One cell for each column.
    fn row(&self, object: &Value, _now: Timestamp) -> Row {
        table::usual(object)
    }
}

/// Which part of an object a write is about: the main resource, or a subresource's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    Main,
    Sub(&'a str),
}

/// What writes to a kind may do, in upstream's words.
#[derive(Debug, Clone, Copy)]
pub struct Strategy {
    /// A PUT to a name that is free creates the object.
    pub allow_create_on_update: bool,
    /// An update may leave the resource version out.
    pub allow_unconditional_update: bool,
    /// The status is written through its own subresource only.
    pub separate_status: bool,
    /// `metadata.generation` counts the changes of the spec.
    pub counts_generations: bool,
}

impl Strategy {
    pub const USUAL: Strategy = Strategy {
        allow_create_on_update: false,
        allow_unconditional_update: true,
        separate_status: true,
        counts_generations: true,
    };
}

/// What validation says of a request.
#[derive(Debug, Default)]
pub struct Verdict {
    pub errors: ErrorList,
    pub warnings: Vec<String>,
}

/// The rules of a kind behind one signature: what the registry's row carries.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub strategy: Strategy,
    pub prepare_create: fn(&mut Value),
    pub prepare_update: fn(&mut Value, &Value, Part<'_>),
    /// Of a new object.
    pub validate_create: fn(&Resource, &Value) -> Result<Verdict, serde_json::Error>,
    /// Of the new object and the old.
    pub validate_update:
        fn(&Resource, &Value, &Value, Part<'_>) -> Result<Verdict, serde_json::Error>,
    pub columns: &'static [Column],
    pub row: fn(&Value, Timestamp) -> Result<Row, serde_json::Error>,
}

impl Rules {
    pub const fn of<T: Kind>() -> Rules {
        Rules {
            strategy: T::STRATEGY,
            prepare_create: T::prepare_create,
            prepare_update: T::prepare_update,
            validate_create: validate_create::<T>,
            validate_update: validate_update::<T>,
            columns: T::COLUMNS,
            row: |object, now| Ok(T::deserialize(object)?.row(object, now)),
        }
    }
}

fn validate_create<T: Kind>(
    resource: &Resource,
    object: &Value,
) -> Result<Verdict, serde_json::Error> {
    let new = T::deserialize(object)?;
    let path = Path::new("metadata");
    let mut errors = metadata::validate(new.metadata(), resource.is_namespaced(), T::NAME, &path);
    errors.extend(new.validate());
    Ok(Verdict { errors, warnings: new.warnings(None) })
}

fn validate_update<T: Kind>(
    resource: &Resource,
    object: &Value,
    old: &Value,
    part: Part<'_>,
) -> Result<Verdict, serde_json::Error> {
    let (new, previous) = (T::deserialize(object)?, T::deserialize(old)?);
    let path = Path::new("metadata");
    let rule = metadata::path_segment;
    let mut errors = metadata::validate(new.metadata(), resource.is_namespaced(), rule, &path);
    errors.extend(metadata::validate_update(new.metadata(), previous.metadata(), &path));
    errors.extend(new.validate_update(&previous, part));
    Ok(Verdict { errors, warnings: new.warnings(Some(&previous)) })
}

/// What most kinds keep and wipe.
pub mod prepare {
    use super::{Part, Strategy};
    use serde_json::Value;

    pub fn create(object: &mut Value, strategy: &Strategy) {
        if strategy.separate_status {
            put(object, "status", None);
        }
        if strategy.counts_generations && object.get("spec").is_some() {
            object["metadata"]["generation"] = 1.into();
        }
    }

    pub fn update(new: &mut Value, old: &Value, part: Part<'_>, strategy: &Strategy) {
        match part {
            Part::Main if strategy.separate_status => put(new, "status", old.get("status")),
            Part::Main => {}
            // Only the status counts, and who owns it.
            Part::Sub(_) => {
                let status = new.get("status").cloned();
                let managed = new["metadata"].get("managedFields").cloned();
                *new = old.clone();
                put(new, "status", status.as_ref());
                put(&mut new["metadata"], "managedFields", managed.as_ref());
            }
        }
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        if strategy.counts_generations && generation > 0 && changed(new, old) {
            new["metadata"]["generation"] = (generation + 1).into();
        }
    }

    /// Whether anything differs beside the metadata and the status.
    pub fn changed(new: &Value, old: &Value) -> bool {
        let (Value::Object(new), Value::Object(old)) = (new, old) else { return false };
        let rest = |name: &str| !matches!(name, "metadata" | "status");
        new.iter().filter(|(name, _)| rest(name)).any(|(name, value)| old.get(name) != Some(value))
            || old.keys().filter(|name| rest(name)).any(|name| !new.contains_key(name))
    }

    /// A field as it shall be, or gone.
    pub fn put(object: &mut Value, field: &str, value: Option<&Value>) {
        if let Value::Object(fields) = object {
            match value {
                Some(value) => fields.insert(field.into(), value.clone()),
                None => fields.remove(field),
            };
        }
    }
}
