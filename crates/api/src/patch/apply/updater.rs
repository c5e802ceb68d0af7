//! The two algorithms: who owns what after an update, and after an apply.
use super::conflict::Conflicts;
use super::fieldset::Set;
use super::filter::Filter;
use super::managed_fields::{Entry, ManagedFields, Manager};
use super::typed::{self, Comparison, View};
use crate::schema::TypeRef;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// An object of one kind in several versions; a manager's fields are named in the version it used.
pub(super) struct Updater<'a, 's> {
    /// The version of the objects passed in.
    pub api_version: &'a str,
    pub types: &'a dyn Fn(&str) -> Option<TypeRef<'s>>,
    pub convert: &'a dyn Fn(&Value, &str, &str) -> Result<Value, ConvertError>,
    pub reset: &'a BTreeMap<String, Filter>,
}

/// Two states of an object, and what differs between them in the version they are in.
pub(super) struct Change<'c> {
    pub live: &'c Value,
    pub new: &'c Value,
    pub own: &'c Comparison,
    pub view: View,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// The version is no longer served: managers that used it are forgotten.
    #[error("no such version")]
    MissingVersion,
    #[error("{0}")]
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    Conflicts(Conflicts),
    Convert(String),
}

impl Failure {
    /// What could not be converted, and for what it was.
    pub(super) fn during(self, what: &str) -> Failure {
        match self {
            Failure::Convert(cause) => Failure::Convert(format!("{what}: {cause}")),
            conflicts @ Failure::Conflicts(_) => conflicts,
        }
    }
}

impl From<String> for Failure {
    fn from(error: String) -> Failure {
        Failure::Convert(error)
    }
}

impl<'s> Updater<'_, 's> {
    /// What differs between the objects, of what this endpoint does not ignore.
    pub(super) fn compare(
        &self,
        live: &Value,
        new: &Value,
        view: View,
    ) -> Result<Comparison, Failure> {
        let comparison = typed::compare(live, new, self.type_of(self.api_version)?, view);
        Ok(comparison.map(|set| self.filtered(self.api_version, set)))
    }

    /// Takes what changed from its owners.
    pub(super) fn update(
        &self,
        change: &Change<'_>,
        managed: &mut ManagedFields<'_>,
    ) -> Result<(), Failure> {
        self.forget_missing_versions(managed);
        self.take_over(change, managed, None, true)
    }

    /// `config` merged into `live` by `manager`, less what that manager owned before and does not
    /// mention any more; and the manager's former entry.
    pub(super) fn apply<'t>(
        &self,
        live: &Value,
        config: &Value,
        managed: &mut ManagedFields<'t>,
        manager: &Manager,
        force: bool,
        view: View,
    ) -> Result<(Value, Option<Entry<'t>>), Failure> {
        let view = if view == View::Typed { View::Merged } else { view };
        self.forget_missing_versions(managed);
        // Whoever owns something of the object must be able to see it.
        let versions = managed.entries.iter().map(|entry| &entry.manager.api_version);
        for version in versions.collect::<BTreeSet<_>>() {
            self.at(live, self.api_version, version)?;
        }
        let ty = self.type_of(self.api_version)?;
        let merged = typed::merge(live, config, ty);
        let set = self.filtered(self.api_version, typed::field_set(config, ty));
        let last = managed.remove(manager).map(|mut entry| {
            self.reconcile(&mut entry);
            entry
        });
        managed.set(manager, set.clone(), last.as_ref().and_then(|last| last.time));
        // Who mentions all that it owned gives up nothing.
        let gives_up = |last: &&Entry<'_>| {
            let same_version = last.manager.api_version == self.api_version;
            !(last.fields().is_empty() || (same_version && last.fields().is_subset(&set)))
        };
        let object = match last.as_ref().filter(gives_up) {
            Some(last) => {
                let version = &last.manager.api_version;
                let pruned = self.prune(merged, managed, version, last.fields());
                pruned.map_err(|failure| failure.during("failed to prune fields"))?
            }
            None => merged,
        };
        let own = self.compare(live, &object, view)?;
        let change = Change { live, new: &object, own: &own, view };
        self.take_over(&change, managed, Some(manager), force)?;
        Ok((object, last))
    }

    fn type_of(&self, version: &str) -> Result<TypeRef<'s>, Failure> {
        let missing = || format!("no corresponding type for version {version}");
        (self.types)(version).ok_or_else(|| missing().into())
    }

    fn filtered(&self, version: &str, set: Set) -> Set {
        match self.reset.get(version) {
            Some(filter) => filter.apply(set),
            None => set,
        }
    }

    /// `object`, given in version `from`, in version `to`; `None` if that is no longer served.
    pub(super) fn at<'o>(
        &self,
        object: &'o Value,
        from: &str,
        to: &str,
    ) -> Result<Option<(Cow<'o, Value>, TypeRef<'s>)>, Failure> {
        let Some(ty) = (self.types)(to) else { return Ok(None) };
        if from == to {
            return Ok(Some((Cow::Borrowed(object), ty)));
        }
        match (self.convert)(object, from, to) {
            Ok(converted) => Ok(Some((Cow::Owned(converted), ty))),
            Err(ConvertError::MissingVersion) => Ok(None),
            Err(ConvertError::Failed(error)) => Err(Failure::Convert(error)),
        }
    }

    fn forget_missing_versions(&self, managed: &mut ManagedFields<'_>) {
        managed.entries.retain(|entry| (self.types)(&entry.manager.api_version).is_some());
    }

    /// Brings a set that was written under an older schema up to date.
    fn reconcile(&self, entry: &mut Entry<'_>) {
        if let Some(ty) = (self.types)(&entry.manager.api_version)
            && let Some(fields) = typed::reconcile(entry.fields(), ty)
        {
            entry.set_fields(fields);
        }
    }

    /// Takes what changed from every manager but `acting`; unless `force`, what they own and would
    /// see changed is a conflict.
    fn take_over(
        &self,
        change: &Change<'_>,
        managed: &mut ManagedFields<'_>,
        acting: Option<&Manager>,
        force: bool,
    ) -> Result<(), Failure> {
        let own = change.own;
        let mut versions: BTreeMap<String, Option<Comparison>> = BTreeMap::new();
        let mut changed: Vec<(Manager, Set)> = Vec::new();
        let is_acting = |entry: &Entry<'_>| acting.is_some_and(|acting| entry.manager.is(acting));
        for entry in managed.entries.iter_mut().filter(|entry| !is_acting(entry)) {
            let version = &entry.manager.api_version;
            if version != self.api_version && !versions.contains_key(version) {
                versions.insert(version.clone(), self.compare_at(change, version)?);
            }
            let Some(comparison) = self.comparison(&versions, version, own) else { continue };
            let Comparison { removed, modified, added, .. } = comparison;
            if ![removed, modified, added].into_iter().any(|set| entry.may_touch(set)) {
                continue;
            }
            self.reconcile(entry);
            let conflict =
                entry.fields().intersection(modified).union(entry.fields().intersection(added));
            if !conflict.is_empty() {
                changed.push((entry.manager.clone(), conflict));
            }
        }
        if !force && !changed.is_empty() {
            return Err(Failure::Conflicts(Conflicts::new(changed)));
        }
        for (manager, set) in &changed {
            if let Some(at) = managed.position(manager) {
                managed.entries[at].subtract(set);
            }
        }
        managed.entries.retain_mut(|entry| {
            if !is_acting(entry) {
                match self.comparison(&versions, &entry.manager.api_version, own) {
                    Some(comparison) if entry.may_touch(&comparison.removed) => {
                        entry.subtract(&comparison.removed);
                    }
                    Some(_) => return true,
                    None => return false,
                }
            }
            !entry.fields().is_empty()
        });
        Ok(())
    }

    fn comparison<'c>(
        &self,
        versions: &'c BTreeMap<String, Option<Comparison>>,
        version: &str,
        own: &'c Comparison,
    ) -> Option<&'c Comparison> {
        match version == self.api_version {
            true => Some(own),
            false => versions.get(version).and_then(Option::as_ref),
        }
    }

    fn compare_at(
        &self,
        change: &Change<'_>,
        version: &str,
    ) -> Result<Option<Comparison>, Failure> {
        let live = self.at(change.live, self.api_version, version)?;
        let new = self.at(change.new, self.api_version, version);
        let new = new.map_err(|failure| failure.during("failed to convert new object"))?;
        let (Some((live, ty)), Some((new, _))) = (live, new) else { return Ok(None) };
        let comparison = typed::compare(&live, &new, ty, change.view);
        Ok(Some(comparison.map(|set| self.filtered(version, set))))
    }
}
