//! The two algorithms: who owns what after an update, and after an apply.
use super::conflict::Conflicts;
use super::fieldset::Set;
use super::filter::Filter;
use super::managed_fields::{Entry, ManagedFields, Manager};
use super::typed::{self, Comparison, Emptied, View};
use crate::schema::TypeRef;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// An object of one kind in several versions; a manager's fields are named in the version it used.
pub(super) struct Updater<'a, 's> {
    /// The version of the objects passed in.
    pub api_version: &'a str,
    pub types: &'a dyn Fn(&str) -> Option<TypeRef<'s>>,
    pub convert: &'a dyn Fn(&Value, &str, &str) -> Result<Value, ConvertError>,
    pub reset: &'a BTreeMap<String, Filter>,
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

    /// Takes what changed between `live` and `new` (and only that is `own`) from its owners.
    pub(super) fn update(
        &self,
        live: &Value,
        new: &Value,
        own: &Comparison,
        managed: &mut ManagedFields<'_>,
        view: View,
    ) -> Result<(), Failure> {
        self.forget_missing_versions(managed);
        self.take_over(live, new, own, managed, None, true, view)
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
            !last.fields().is_empty() && !(same_version && last.fields().is_subset(&set))
        };
        let object = match last.as_ref().filter(gives_up) {
            Some(last) => {
                let version = &last.manager.api_version;
                self.prune(merged, managed, version, last.fields())?
            }
            None => merged,
        };
        let own = self.compare(live, &object, view)?;
        self.take_over(live, &object, &own, managed, Some(manager), force, view)?;
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
    fn at<'o>(
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

    /// Takes what differs between the objects (`own`, in their version) from every manager but
    /// `acting`; unless `force`, what they own and would see changed is a conflict.
    #[expect(clippy::too_many_arguments, reason = "one algorithm, called from two places")]
    fn take_over(
        &self,
        live: &Value,
        new: &Value,
        own: &Comparison,
        managed: &mut ManagedFields<'_>,
        acting: Option<&Manager>,
        force: bool,
        view: View,
    ) -> Result<(), Failure> {
        let mut versions: BTreeMap<String, Option<Comparison>> = BTreeMap::new();
        let mut changed: Vec<(Manager, Set)> = Vec::new();
        let is_acting = |entry: &Entry<'_>| acting.is_some_and(|acting| entry.manager.is(acting));
        for entry in managed.entries.iter_mut().filter(|entry| !is_acting(entry)) {
            let version = &entry.manager.api_version;
            if version != self.api_version && !versions.contains_key(version) {
                versions.insert(version.clone(), self.compare_at(live, new, version, view)?);
            }
            let Some(comparison) = self.comparison(&versions, version, own) else { continue };
            let Comparison { removed, modified, added } = comparison;
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
        live: &Value,
        new: &Value,
        version: &str,
        view: View,
    ) -> Result<Option<Comparison>, Failure> {
        let live = self.at(live, self.api_version, version)?;
        let new = self.at(new, self.api_version, version)?;
        let (Some((live, ty)), Some((new, _))) = (live, new) else { return Ok(None) };
        let comparison = typed::compare(&live, &new, ty, view);
        Ok(Some(comparison.map(|set| self.filtered(version, set))))
    }

    /// Removes from `merged` what is in `last`, the applier's former set, and owned by nobody now.
    fn prune(
        &self,
        merged: Value,
        managed: &ManagedFields<'_>,
        version: &str,
        last: &Set,
    ) -> Result<Value, Failure> {
        let Some((converted, ty)) = self.at(&merged, self.api_version, version)? else {
            return Ok(merged);
        };
        let last = typed::with_named_fields(last, ty);
        let pruned = typed::remove_items(&converted, &last, ty, Emptied::Null);
        let pruned = self.add_back_owned(&converted, pruned, managed, version)?;
        // Of what is gone now, give back what the applier never had.
        let pruned = typed::with_named_fields(&typed::field_set(&pruned, ty), ty);
        let before = typed::with_named_fields(&typed::field_set(&converted, ty), ty);
        let lost = before.difference(&pruned).intersection(&last);
        if lost.is_empty() {
            return Ok(merged);
        }
        // A map that lost its last entry but is somebody's as such stays, empty.
        let kept = typed::remove_items(&converted, &lost, ty, Emptied::Empty);
        match self.at(&kept, version, self.api_version)? {
            Some((back, _)) => Ok(back.into_owned()),
            None => Err(Failure::Convert(format!("no such version {}", self.api_version))),
        }
    }

    /// Gives `pruned`, in that version, what of `merged` some manager owns.
    fn add_back_owned(
        &self,
        merged: &Value,
        pruned: Value,
        managed: &ManagedFields<'_>,
        version: &str,
    ) -> Result<Value, Failure> {
        let mut owned: BTreeMap<&str, Set> = BTreeMap::new();
        for entry in &managed.entries {
            let set = owned.entry(&entry.manager.api_version).or_default();
            let fields = (self.types)(&entry.manager.api_version)
                .and_then(|ty| typed::reconcile(entry.fields(), ty))
                .unwrap_or_else(|| entry.fields().clone());
            *set = std::mem::take(set).union(fields);
        }
        // Its own version first: what is missing might be needed to convert to the others.
        let own = owned.remove(version).map(|set| (version, set));
        let mut pruned = pruned;
        for (other, set) in own.into_iter().chain(owned) {
            let there = self.at(merged, version, other)?;
            let pruned_there = self.at(&pruned, version, other)?;
            let (Some((there, ty)), Some((pruned_there, _))) = (there, pruned_there) else {
                continue;
            };
            let kept = typed::with_named_fields(&typed::field_set(&pruned_there, ty), ty)
                .union(typed::with_named_fields(&set, ty));
            let all = typed::with_named_fields(&typed::field_set(&there, ty), ty);
            let with_owned = typed::remove_items(&there, &all.difference(&kept), ty, Emptied::Null);
            pruned = match self.at(&with_owned, other, version)? {
                Some((back, _)) => back.into_owned(),
                None => pruned,
            };
        }
        Ok(pruned)
    }
}
