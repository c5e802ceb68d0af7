//! What a request may say besides what it is about.
use api::codec::FieldValidation;
use serde_json::{Value, json};

/// How new a list has to be: `resourceVersion` and `resourceVersionMatch`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum At {
    /// As new as anything that was written before the question.
    #[default]
    Latest,
    /// Whatever the server has at hand.
    Any,
    NotOlderThan(u64),
    Exactly(u64),
}

/// Options of a write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Write {
    pub dry_run: bool,
    /// Empty: the server makes one of the user agent. Server-side apply needs one.
    pub field_manager: String,
    pub field_validation: Option<FieldValidation>,
    /// Take fields from other managers (server-side apply).
    pub force: bool,
}

impl Write {
    pub fn managed_by(field_manager: &str) -> Write {
        Write { field_manager: field_manager.to_owned(), ..Write::default() }
    }
}

/// A change to what there is.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// RFC 6902, a list of operations.
    Json(Value),
    /// RFC 7386.
    Merge(Value),
    /// Lists are merged by their keys; built-in kinds only.
    Strategic(Value),
    /// Server-side apply: what its manager wants, and no more.
    Apply(Value),
}

impl Patch {
    pub const fn content_type(&self) -> &'static str {
        match self {
            Patch::Json(_) => "application/json-patch+json",
            Patch::Merge(_) => "application/merge-patch+json",
            Patch::Strategic(_) => "application/strategic-merge-patch+json",
            Patch::Apply(_) => "application/apply-patch+yaml",
        }
    }

    pub const fn value(&self) -> &Value {
        match self {
            Patch::Json(value)
            | Patch::Merge(value)
            | Patch::Strategic(value)
            | Patch::Apply(value) => value,
        }
    }
}

/// `DeleteOptions`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delete {
    pub grace_period_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    pub preconditions: Preconditions,
    pub dry_run: bool,
    pub ignore_store_read_error: bool,
}

/// What becomes of the objects that it owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// Delete only what is still this.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

impl Propagation {
    pub const fn as_str(self) -> &'static str {
        match self {
            Propagation::Orphan => "Orphan",
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
        }
    }
}

impl Delete {
    /// This very object, not another of its name.
    pub fn uid(uid: &str) -> Delete {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        Delete { preconditions, ..Delete::default() }
    }

    #[must_use]
    pub fn after(self, grace_period_seconds: i64) -> Delete {
        Delete { grace_period_seconds: Some(grace_period_seconds), ..self }
    }

    #[must_use]
    pub fn propagating(self, propagation: Propagation) -> Delete {
        Delete { propagation: Some(propagation), ..self }
    }

    /// The `DeleteOptions` object.
    pub fn tree(&self) -> Value {
        let mut tree = json!({ "kind": "DeleteOptions", "apiVersion": "v1" });
        if let Some(seconds) = self.grace_period_seconds {
            tree["gracePeriodSeconds"] = seconds.into();
        }
        if let Some(propagation) = self.propagation {
            tree["propagationPolicy"] = propagation.as_str().into();
        }
        if self.dry_run {
            tree["dryRun"] = json!(["All"]);
        }
        if self.ignore_store_read_error {
            tree["ignoreStoreReadErrorWithClusterBreakingPotential"] = true.into();
        }
        let Preconditions { uid, resource_version } = &self.preconditions;
        if let Some(uid) = uid {
            tree["preconditions"]["uid"] = uid.as_str().into();
        }
        if let Some(version) = resource_version {
            tree["preconditions"]["resourceVersion"] = version.as_str().into();
        }
        tree
    }
}
