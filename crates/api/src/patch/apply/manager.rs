//! The field manager of one endpoint: what the API server calls on every write.
use super::cap::cap_update_managers;
use super::conflict::Conflicts;
use super::fieldset::Set;
use super::filter::Filter;
use super::last_applied;
use super::managed_fields::{self, Entry, ManagedFields, Manager, Operation};
use super::typed::{self, Comparison, ValidationErrors, View};
use super::updater::{Change, ConvertError, Failure, Updater};
use crate::depth;
use crate::schema::TypeRef;
use crate::status::{Cause, Status};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What must be known of an endpoint to track who owns the fields of its objects. Objects passed
/// to it are trees in `api_version`.
pub struct FieldManager<'a, 's> {
    pub api_version: &'a str,
    pub kind: &'a str,
    /// `status`, `scale`; empty for the object itself.
    pub subresource: &'a str,
    /// The kind's schema in a version that is served.
    pub types: &'a dyn Fn(&str) -> Option<TypeRef<'s>>,
    /// An object from one version to another.
    pub convert: &'a dyn Fn(&Value, &str, &str) -> Result<Value, ConvertError>,
    /// By version, the fields that this endpoint ignores.
    pub reset: &'a BTreeMap<String, Filter>,
    pub view: View,
    /// Nobody has held the objects against their type yet: those of definitions. Nothing is known of who
    /// owns what in one that is of another type.
    pub unchecked: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Conflicts(Conflicts),
    #[error("invalid object type: {0}")]
    WrongKind(String),
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsGiven,
    #[error("failed to create typed patch object ({object}): {errors}")]
    Invalid { object: String, errors: ValidationErrors },
    #[error("failed to decode managed fields: {0}")]
    ManagedFields(#[from] managed_fields::Error),
    #[error("{0}")]
    Convert(String),
    #[error("the object is nested too deeply")]
    TooDeep,
}

/// What upstream's server answers.
impl From<Error> for Status {
    fn from(error: Error) -> Status {
        let message = error.to_string();
        match error {
            Error::Conflicts(conflicts) => {
                let causes = conflicts.0.iter().map(|conflict| Cause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {}", conflict.manager),
                    field: conflict.path.to_string(),
                });
                Status::apply_conflict(causes.collect(), message)
            }
            Error::WrongKind(_) | Error::ManagedFieldsGiven | Error::TooDeep => {
                Status::bad_request(message)
            }
            _ => Status { code: 500, message, ..Status::default() },
        }
    }
}

/// The manager of what was there before an object was first applied to.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Fields that identify an object or belong to the server: nobody owns them.
static NEVER_OWNED: LazyLock<Set> = LazyLock::new(|| {
    Set::of_names(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

impl<'a, 's> FieldManager<'a, 's> {
    /// `new`, about to replace `live`, with the managed fields it gets from that. For an object
    /// being created, `live` is empty.
    pub fn update(
        &self,
        live: &Value,
        mut new: Value,
        manager: &str,
        now: Timestamp,
    ) -> Result<Value, Error> {
        let managers = self.managers_after(live, &mut new, manager, now)?;
        managed_fields::put(&mut new, managers);
        Ok(new)
    }

    /// The managed fields of an object that replaces `live`; those it came with are taken away.
    fn managers_after(
        &self,
        live: &Value,
        new: &mut Value,
        manager: &str,
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        self.check_depth(&[live, new])?;
        let given = managed_fields::take(new);
        self.check_types(&[live, new])?;
        let stored = managed_fields::of(live);
        let change = self.change(live, new)?;
        let edited = self.subresource.is_empty() && given.is_some() && given.as_ref() != stored;
        if change.is_same() && !edited {
            return Ok(given.filter(|given| Some(given) == stored).or_else(|| stored.cloned()));
        }
        let mut managed = self.current(stored, given.as_ref().filter(|_| edited));
        let creating =
            live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default() == "";
        // An object whose managers were dropped on purpose stays untracked until it is applied to.
        // A scale is such an object if nobody owns the replicas.
        let tracked = match self.subresource {
            "scale" => managed.entries().iter().any(|entry| touches(entry, &change)),
            _ => !managed.is_empty(),
        };
        if tracked || creating {
            self.track_update(live, new, change, &mut managed, manager, now)?;
        }
        Ok(managed.encode())
    }

    /// What an update changes that may have an owner.
    fn change(&self, live: &Value, new: &Value) -> Result<Comparison, Error> {
        let change = self.updater().compare(live, new, self.view)?;
        if change.keyless {
            return Err(Error::Convert("an element of a list omits its keys".to_owned()));
        }
        Ok(change.map(|set| set.difference(&NEVER_OWNED)))
    }

    /// As [`update`](FieldManager::update), but never fails: then `live`'s managers are kept.
    pub fn update_or_keep(
        &self,
        live: &Value,
        mut new: Value,
        manager: &str,
        now: Timestamp,
    ) -> Value {
        let managers = self
            .managers_after(live, &mut new, manager, now)
            .unwrap_or_else(|_| managed_fields::of(live).cloned());
        managed_fields::put(&mut new, managers);
        new
    }

    /// `config` applied to `live` by `manager`. The outcome still wants defaulting and validation;
    /// then [`keep_timestamps_if_unchanged`](super::keep_timestamps_if_unchanged).
    pub fn apply(
        &self,
        live: &Value,
        config: &Value,
        manager: &str,
        force: bool,
        now: Timestamp,
    ) -> Result<Value, Error> {
        self.check_depth(&[live, config])?;
        let ty = self.check_config(config)?;
        let manager = self.manager(manager, Operation::Apply);
        let mut outcome = self.apply_once(live, config, &manager, force, now);
        if let Err(Error::Conflicts(conflicts)) = outcome {
            let allowed = match manager.name.as_str() {
                "kubectl" => last_applied::allowed_conflicts(live, self.api_version, ty),
                _ => None,
            };
            let left = match &allowed {
                Some(allowed) => conflicts.outside(allowed),
                None => conflicts,
            };
            if !left.0.is_empty() {
                return Err(Error::Conflicts(left));
            }
            outcome = self.apply_once(live, config, &manager, true, now);
        }
        let mut object = outcome?;
        if manager.name == "kubectl" {
            last_applied::refresh(&mut object, config);
        }
        Ok(object)
    }

    fn apply_once(
        &self,
        live: &Value,
        config: &Value,
        manager: &Manager,
        force: bool,
        now: Timestamp,
    ) -> Result<Value, Error> {
        let mut managed = ManagedFields::stored(managed_fields::of(live))?;
        if managed.is_empty() {
            let change = self.change(&Value::Null, live)?;
            let nothing = Value::Null;
            self.track_update(&nothing, live, change, &mut managed, BEFORE_FIRST_APPLY, now)?;
        }
        let (mut object, last) =
            self.updater().apply(live, config, &mut managed, manager, force, self.view)?;
        let changed = !typed::same(live, &object);
        if let Some(mut entry) = managed.remove(manager) {
            entry.subtract(&NEVER_OWNED);
            match last {
                // What has not changed is not written anew.
                Some(last) if !changed && last.says_the_same(&entry) => managed.restore(last),
                _ if entry.fields().is_empty() => {}
                _ => {
                    let time = if changed { Some(now) } else { entry.time };
                    managed.set(manager, entry.into_fields(), time);
                }
            }
        }
        let encoded = managed.encode();
        managed_fields::put(&mut object, encoded);
        Ok(object)
    }

    fn track_update(
        &self,
        live: &Value,
        new: &Value,
        change: Comparison,
        managed: &mut ManagedFields<'_>,
        manager: &str,
        now: Timestamp,
    ) -> Result<(), Error> {
        let step = Change { live, new, own: &change, view: self.view };
        self.updater().update(&step, managed)?;
        let changed = change.modified.union(change.added);
        if !changed.is_empty() {
            let manager = self.manager(manager, Operation::Update);
            let before = managed.remove(&manager);
            // Upstream looks for the time of whoever scales among those who were there before
            // (`managedfields/scalehandler.go`).
            let time = match self.subresource {
                "scale" => before.as_ref().and_then(|entry| entry.time),
                _ => Some(now),
            };
            let before = before.map(Entry::into_fields).unwrap_or_default();
            managed.set(&manager, changed.union(before), time);
        }
        cap_update_managers(managed);
        Ok(())
    }

    /// The managers to go on from: those the client sent if it sent others than it had got; else
    /// those of the live object.
    fn current<'t>(&self, stored: Option<&'t Value>, edited: Option<&Value>) -> ManagedFields<'t> {
        if managed_fields::is_reset(edited) {
            return ManagedFields::default();
        }
        // A client that knows nothing of managed fields must not lose them.
        match ManagedFields::decode(edited) {
            Ok(edited) if !edited.is_empty() => edited,
            _ => ManagedFields::stored(stored).unwrap_or_default(),
        }
    }

    fn check_config(&self, config: &Value) -> Result<TypeRef<'s>, Error> {
        let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let shown = format!("{group}/{version}, Kind={kind}");
        if api_version != self.api_version || kind != self.kind {
            return Err(Error::WrongKind(shown));
        }
        if managed_fields::of(config).is_some_and(|list| !list.is_null()) {
            return Err(Error::ManagedFieldsGiven);
        }
        let ty = (self.types)(self.api_version)
            .ok_or_else(|| Error::Convert(format!("no corresponding type for {shown}")))?;
        typed::validate(config, ty, false).map_err(|errors| {
            let meta = |key: &str| {
                config
                    .get("metadata")
                    .and_then(|m| m.get(key))
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            let object = format!("{}/{}; {shown}", meta("namespace"), meta("name"));
            Error::Invalid { object, errors }
        })?;
        Ok(ty)
    }

    fn check_types(&self, objects: &[&Value]) -> Result<(), Error> {
        let Some(ty) = (self.types)(self.api_version).filter(|_| self.unchecked) else {
            return Ok(());
        };
        let fits = |object: &&Value| object.is_null() || typed::validate(object, ty, true).is_ok();
        match objects.iter().all(fits) {
            true => Ok(()),
            false => Err(Error::Convert("the object is not of its type".to_owned())),
        }
    }

    fn check_depth(&self, objects: &[&Value]) -> Result<(), Error> {
        match objects.iter().all(|object| depth::within_limit(object)) {
            true => Ok(()),
            false => Err(Error::TooDeep),
        }
    }

    fn manager(&self, name: &str, operation: Operation) -> Manager {
        Manager {
            name: if name.is_empty() { "unknown" } else { name }.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }

    fn updater(&self) -> Updater<'a, 's> {
        let FieldManager { api_version, types, convert, reset, .. } = *self;
        Updater { api_version, types, convert, reset }
    }
}

/// Whether somebody owns anything that changes.
fn touches(entry: &Entry<'_>, change: &Comparison) -> bool {
    [&change.modified, &change.added, &change.removed]
        .into_iter()
        .any(|set| !set.is_empty() && !entry.fields().intersection(set).is_empty())
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Conflicts(conflicts) => Error::Conflicts(conflicts),
            Failure::Convert(error) => Error::Convert(error),
        }
    }
}
