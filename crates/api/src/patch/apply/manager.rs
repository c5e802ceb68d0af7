//! The field manager of one endpoint: what the API server calls on every write.
use super::cap::cap_update_managers;
use super::conflict::Conflicts;
use super::fieldset::Set;
use super::filter::Filter;
use super::last_applied;
use super::managed_fields::{self, ManagedFields, Manager, Operation};
use super::typed::{self, ValidationErrors, View};
use super::updater::{ConvertError, Failure, Updater};
use crate::depth;
use crate::schema::TypeRef;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What must be known of an endpoint to track who owns the fields of its objects. Objects passed
/// to it are trees in `api_version`.
pub struct FieldManager<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    /// `status`, `scale`; empty for the object itself.
    pub subresource: &'a str,
    /// The kind's schema in a version that is served.
    pub types: &'a dyn Fn(&str) -> Option<TypeRef<'a>>,
    /// An object from one version to another.
    pub convert: &'a dyn Fn(&Value, &str, &str) -> Result<Value, ConvertError>,
    /// By version, the fields that this endpoint ignores.
    pub reset: &'a BTreeMap<String, Filter>,
    pub view: View,
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

impl Error {
    /// The HTTP status upstream's server answers with.
    pub fn code(&self) -> u16 {
        match self {
            Error::Conflicts(_) => 409,
            Error::WrongKind(_) | Error::ManagedFieldsGiven | Error::TooDeep => 400,
            _ => 500,
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

impl<'a> FieldManager<'a> {
    /// `new`, about to replace `live`, with the managed fields it gets from that. For an object
    /// being created, `live` is empty.
    pub fn update(
        &self,
        live: &Value,
        mut new: Value,
        manager: &str,
        now: Timestamp,
    ) -> Result<Value, Error> {
        self.check_depth(&[live, &new])?;
        let given = managed_fields::take(&mut new);
        let mut managed = self.current(live, given.as_ref());
        let creating =
            live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default() == "";
        // An object whose managers were dropped on purpose stays untracked until it is applied to.
        if !managed.is_empty() || creating {
            self.track_update(live, &new, &mut managed, manager, now)?;
        }
        let encoded = managed.encode();
        managed_fields::put(&mut new, encoded);
        Ok(new)
    }

    /// As [`update`](FieldManager::update), but never fails: then `live`'s managers are kept.
    pub fn update_or_keep(&self, live: &Value, new: Value, manager: &str, now: Timestamp) -> Value {
        let mut kept = new.clone();
        self.update(live, new, manager, now).unwrap_or_else(|_| {
            managed_fields::put(&mut kept, managed_fields::of(live).cloned());
            kept
        })
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
        let mut managed = ManagedFields::decode(managed_fields::of(live))?;
        let ty = self.check_config(config)?;
        if managed.is_empty() {
            let nothing = Value::Null;
            self.track_update(&nothing, live, &mut managed, BEFORE_FIRST_APPLY, now)?;
        }
        let manager = self.manager(manager, Operation::Apply);
        let mut outcome = self.apply_once(live, config, managed.clone(), &manager, force);
        if let Err(Failure::Conflicts(conflicts)) = outcome {
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
            outcome = self.apply_once(live, config, managed, &manager, true);
        }
        let (mut object, mut managed) = outcome?;
        self.strip(&mut managed, &manager);
        if !typed::compare_equal(live, &object)
            && let Some(entry) = managed.remove(&manager)
        {
            managed.set(&manager, entry.fields, Some(now));
        }
        let encoded = managed.encode();
        managed_fields::put(&mut object, encoded);
        if manager.name == "kubectl" {
            last_applied::refresh(&mut object, config);
        }
        Ok(object)
    }

    fn apply_once<'t>(
        &self,
        live: &Value,
        config: &Value,
        mut managed: ManagedFields<'t>,
        manager: &Manager,
        force: bool,
    ) -> Result<(Value, ManagedFields<'t>), Failure> {
        let object = self.updater().apply(live, config, &mut managed, manager, force)?;
        Ok((object, managed))
    }

    fn track_update(
        &self,
        live: &Value,
        new: &Value,
        managed: &mut ManagedFields<'_>,
        manager: &str,
        now: Timestamp,
    ) -> Result<(), Error> {
        let changed = self.updater().update(live, new, managed, self.view)?;
        let changed = changed.difference(&NEVER_OWNED);
        if !changed.is_empty() {
            let manager = self.manager(manager, Operation::Update);
            let before =
                managed.get(&manager).map(|entry| entry.fields.clone()).unwrap_or_default();
            managed.set(&manager, changed.union(before), Some(now));
        }
        cap_update_managers(managed);
        Ok(())
    }

    /// The managers to go on from: those the client sent if it sent any (they may be edited), but
    /// not through a subresource; else those of the live object.
    fn current<'t>(&self, live: &'t Value, given: Option<&'t Value>) -> ManagedFields<'t> {
        if self.subresource.is_empty() {
            if managed_fields::is_reset(given) {
                return ManagedFields::default();
            }
            // A client that knows nothing of managed fields must not lose them.
            if let Ok(given) = ManagedFields::decode(given)
                && !given.is_empty()
            {
                return given;
            }
        }
        ManagedFields::decode(managed_fields::of(live)).unwrap_or_default()
    }

    fn check_config(&self, config: &Value) -> Result<TypeRef<'a>, Error> {
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

    fn check_depth(&self, objects: &[&Value]) -> Result<(), Error> {
        match objects.iter().all(|object| depth::within_limit(object)) {
            true => Ok(()),
            false => Err(Error::TooDeep),
        }
    }

    fn strip(&self, managed: &mut ManagedFields<'_>, manager: &Manager) {
        if let Some(at) = managed.position(manager) {
            managed.entries[at].subtract(&NEVER_OWNED);
            if managed.entries[at].fields.is_empty() {
                managed.entries.remove(at);
            }
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

    fn updater(&self) -> Updater<'a> {
        let FieldManager { api_version, types, convert, reset, .. } = *self;
        Updater { api_version, types, convert, reset }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Conflicts(conflicts) => Error::Conflicts(conflicts),
            Failure::Convert(error) => Error::Convert(error),
        }
    }
}
