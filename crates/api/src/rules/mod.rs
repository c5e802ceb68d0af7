//! The rules of each kind: its defaults, what it refuses, what a write keeps or wipes, how it is
//! printed.
//!
//! A kind implements [`Kind`] on its typed form, one module per kind or family; the registry's row
//! carries the same behind one signature ([`Rules`]), so that the server runs every kind through
//! one path and no row can exist without rules:
//!
//! ```text
//!  decode ─► defaults ─► prepare ─► validate ─► store ─► row of a table
//!  (tree)     (tree)      (tree)     (tree)                (tree)
//! ```
//!
//! - **Defaults** ([`defaults`]) belong to types, not to kinds: a container is defaulted alike in a
//!   Pod and in a Deployment's template. They are a table keyed by type, run by one walk.
//! - **Preparing** is what upstream calls the strategy: which parts of a request count at all.
//! - **Validation** ([`verdict`]) walks the tree with a [`Field`], value and path in one, and collects errors with
//!   upstream's paths, words and order. What every object shares is in [`metadata`].
//! - **Tables** are what `kubectl get` prints.
//!
//! **They may not know** the store, other objects or who is asking: what needs state (allocating an
//! address, counting a quota) is the server's.
mod access;
mod admission;
mod api_service;
mod autoscaling;
mod batch;
mod certificates;
pub mod check;
mod claim;
mod component;
mod config;
pub mod defaults;
pub mod definition;
mod device;
pub mod embedded;
mod endpoints;
mod event;
mod flow;
mod forms;
mod ingress;
pub mod metadata;
mod namespace;
mod network;
mod node;
mod pod;
mod priority_class;
mod quota;
mod review;
mod runtime_class;
mod scheduling;
mod service;
mod shown;
mod storage;
mod table;
#[cfg(test)]
mod tests;
mod verdict;
mod volume;
mod volume_source;
mod workload;

pub use admission::{RESERVED_NAMES, REVIEWS};
pub use batch::cron;
pub use check::Field;
pub use forms::Form;
pub use metadata::{Metadata, NameRule};
pub use pod::qos_class;
pub use scheduling::toleration_faults;
pub use service::{families, keep_ports};
pub use table::{Column, Row, elapsed};
pub use verdict::Verdict;

use crate::codec::{given, json};
use crate::field::Error;
use crate::kinds::Resource;
use crate::meta::TableRowCondition;
use crate::names;
use crate::schema::{TypeRef, builtin};
use jiff::Timestamp;
use serde_json::{Map, Value};
use verdict::{asked_by_kind, named_anew, validate_create, validate_update};

/// What is peculiar to one kind. The defaults of this trait are what most kinds do.
///
/// Rules read the tree through [`Field`]; the typed form only names the kind.
pub trait Kind: Form {
    const STRATEGY: Strategy = Strategy::USUAL;

    /// What the names of its objects must be.
    const NAME: NameRule = names::name_is_dns_subdomain;

    /// Which rules of metadata it has.
    const METADATA: Metadata = Metadata::Usual;

    /// Whether an update asks again what the name must be, and what it was made from.
    const NAMED_ANEW: Anew = Anew::Never;

    /// The servers that upstream keeps apart for extensions ask some things more than once, and say
    /// what they find as often.
    const REPEATS: bool = false;

    /// What a name must be, where that depends on the object.
    fn name_faults(_object: &Value, name: &str, prefix: bool) -> names::Faults {
        (Self::NAME)(name, prefix)
    }

    /// What a creation keeps of the request. The server has already set identity and times.
    fn prepare_create(object: &mut Value) {
        prepare::create(object, &Self::STRATEGY);
    }

    /// What a write keeps of the request, beside the old object.
    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        prepare::update(new, old, part, &Self::STRATEGY);
    }

    /// A new object, beside its metadata.
    fn validate(object: &Field<'_, '_>);

    /// A changed one, beside its metadata.
    fn validate_update(new: &Field<'_, '_>, _old: &Field<'_, '_>, _part: Part<'_>) {
        Self::validate(new);
    }

    /// What is allowed and yet worth a word.
    fn warnings(_new: &Field<'_, '_>, _old: Option<&Field<'_, '_>>) -> Vec<String> {
        Vec::new()
    }

    /// What `kubectl get` prints of it.
    const COLUMNS: &[Column] = table::USUAL;

    /// Marks on its row.
    fn conditions(_object: &Field<'_, '_>) -> Vec<TableRowCondition> {
        Vec::new()
    }
}

/// When an update asks again for the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anew {
    Never,
    /// Before the finalizers: the kind asks everything of a changed object that it asks of a new one.
    First,
    /// After everything else about metadata.
    Last,
    /// When the kind itself asks for it: [`verdict::named_anew`].
    ByKind,
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
    /// To that count, a list or map given empty is another than none.
    pub counts_given_empty: bool,
    /// To that count, fields of features that are off are fields like any other.
    pub counts_disabled: bool,
    /// The metadata that a write to the status cannot change.
    pub status_resets: &'static [&'static str],
}

impl Strategy {
    pub const USUAL: Strategy = Strategy {
        allow_create_on_update: false,
        allow_unconditional_update: true,
        separate_status: true,
        counts_generations: true,
        counts_given_empty: false,
        counts_disabled: false,
        status_resets: &[],
    };

    pub const fn creates_on_update(self) -> Strategy {
        Strategy { allow_create_on_update: true, ..self }
    }

    /// An update must name the version it is about.
    pub const fn conditional(self) -> Strategy {
        Strategy { allow_unconditional_update: false, ..self }
    }

    pub const fn without_status(self) -> Strategy {
        Strategy { separate_status: false, ..self }
    }

    pub const fn without_generation(self) -> Strategy {
        Strategy { counts_generations: false, ..self }
    }

    pub const fn counting_given_empty(self) -> Strategy {
        Strategy { counts_given_empty: true, ..self }
    }

    pub const fn counting_disabled(self) -> Strategy {
        Strategy { counts_disabled: true, ..self }
    }

    /// Writes to the status leave the metadata alone.
    pub const fn status_only(self) -> Strategy {
        let status_resets =
            &["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"];
        Strategy { status_resets, ..self }
    }
}

/// The rules of a kind behind one signature: what the registry's row carries.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub strategy: Strategy,
    pub prepare_create: fn(&Resource, &mut Value),
    pub prepare_update: fn(&Resource, &mut Value, &Value, Part<'_>),
    /// Of a new object.
    pub validate_create: fn(&Resource, &Value) -> Result<Verdict, serde_json::Error>,
    /// Of the new object and the old.
    pub validate_update:
        fn(&Resource, &Value, &Value, Part<'_>) -> Result<Verdict, serde_json::Error>,
    pub columns: &'static [Column],
    pub row: fn(&Resource, &Value, Timestamp) -> Result<Row, serde_json::Error>,
}

impl Rules {
    pub const fn of<T: Kind>() -> Rules {
        Rules {
            strategy: T::STRATEGY,
            prepare_create: prepare_create::<T>,
            prepare_update: prepare_update::<T>,
            validate_create: validate_create::<T>,
            validate_update: validate_update::<T>,
            columns: T::COLUMNS,
            row: row::<T>,
        }
    }
}

fn type_of<T: Kind>() -> TypeRef<'static> {
    builtin().kind(T::GROUP, T::VERSION, T::KIND).expect("every row's kind is in the facts")
}

fn row<T: Kind>(_: &Resource, object: &Value, now: Timestamp) -> Result<Row, serde_json::Error> {
    let mut row = Row::default();
    check::collect(object, type_of::<T>(), |object| {
        row.cells = T::COLUMNS.iter().map(|column| column.cell(object, now)).collect();
        row.conditions = T::conditions(object);
    });
    Ok(row)
}

fn prepare_create<T: Kind>(_: &Resource, object: &mut Value) {
    defaults::forget_disabled(object, type_of::<T>());
    T::prepare_create(object);
    settle_status(object, type_of::<T>());
}

fn prepare_update<T: Kind>(_: &Resource, new: &mut Value, old: &Value, part: Part<'_>) {
    let ty = type_of::<T>();
    let counts = T::STRATEGY.counts_disabled && part == Part::Main;
    let changed = counts && prepare::changed(new, &given::aligned(old, new, ty));
    defaults::forget_disabled(new, ty);
    let aligned = given::aligned(old, new, ty);
    // Through a subresource most of the new object is the old one, as it is.
    let exact = T::STRATEGY.counts_given_empty || part != Part::Main;
    let old = if exact { old } else { &aligned };
    T::prepare_update(new, old, part);
    if changed {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        new["metadata"]["generation"] = (generation + 1).into();
    }
    settle_status(new, ty);
}

/// A status that was wiped is not absent: it is the zero value.
fn settle_status(object: &mut Value, ty: TypeRef<'static>) {
    let Some(status) =
        ty.child("status").filter(|_| !ty.field("status").is_some_and(|f| f.pointer))
    else {
        return;
    };
    let given = object.get_mut("status").map_or_else(|| Map::new().into(), Value::take);
    if let Ok(decoded) = json::canonicalize_given(given, status) {
        object["status"] = decoded.value;
    }
}

/// Conditions of the usual form, in a status.
fn conditions(conditions: &Field<'_, '_>) {
    let mut seen = Vec::new();
    for condition in conditions.items() {
        let (kind, status, reason) =
            (condition.at("type"), condition.at("status"), condition.at("reason"));
        if kind.require_for("is required") {
            kind.faults(names::qualified_name(kind.text()));
        }
        if status.require() {
            status.one_of(&["False", "True", "Unknown"]);
        }
        let generation = condition.at("observedGeneration");
        if generation.int() < 0 {
            generation.invalid("must be greater than or equal to zero");
        }
        if !condition.at("lastTransitionTime").exists() {
            condition.at("lastTransitionTime").required("");
        }
        if reason.require() {
            condition_reason(&reason);
        }
        if condition.at("message").text().len() > 32 * 1024 {
            condition.at("message").too_long(32 * 1024);
        }
        if seen.contains(&kind.text()) {
            let twice = Error::duplicate(condition.path(), kind.text());
            condition.declared().push(twice);
        }
        seen.push(kind.text());
    }
}

/// A word, or several with commas and colons.
fn condition_reason(reason: &Field<'_, '_>) {
    let text = reason.text().as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"_,:".contains(byte);
    let ends = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let sound = text.first().is_some_and(u8::is_ascii_alphabetic)
        && text.last().is_some_and(ends)
        && text.iter().all(inner);
    if !sound {
        reason.invalid("a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')");
    }
    if text.len() > 1024 {
        reason.too_long(1024);
    }
}

/// What most kinds keep and wipe.
pub mod prepare {
    use super::{Part, Strategy};
    use serde_json::Value;

    pub fn create(object: &mut Value, strategy: &Strategy) {
        if strategy.separate_status {
            put(object, "status", None);
        }
        if strategy.counts_generations {
            object["metadata"]["generation"] = 1.into();
        }
    }

    pub fn update(new: &mut Value, old: &Value, part: Part<'_>, strategy: &Strategy) {
        match part {
            Part::Main if strategy.separate_status => put(new, "status", old.get("status")),
            Part::Main => {}
            Part::Sub(_) => status(new, old, strategy.status_resets),
        }
        put(&mut new["metadata"], "generation", old["metadata"].get("generation"));
        if strategy.counts_generations && changed(new, old) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
            new["metadata"]["generation"] = (generation + 1).into();
        }
    }

    /// Of the request only the status counts, and the metadata that is not reset.
    pub fn status(new: &mut Value, old: &Value, resets: &[&str]) {
        let (status, mut metadata) = (new.get("status").cloned(), new["metadata"].take());
        for field in resets {
            put(&mut metadata, field, old["metadata"].get(*field));
        }
        *new = old.clone();
        new["metadata"] = metadata;
        put(new, "status", status.as_ref());
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
