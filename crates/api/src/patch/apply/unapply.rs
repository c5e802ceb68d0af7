//! What is removed because its applier no longer wants it.
//!
//! Removal is by subtraction in three steps, each judged by the fields that are left: take away all
//! that the applier had; give back what anybody owns now, the applier included; then, of what is
//! still gone, really remove only what the applier had. The detour is needed because a field may
//! be part of something that somebody else owns, in another version under another name.
use super::fieldset::Set;
use super::managed_fields::ManagedFields;
use super::typed::{self, Emptied};
use super::updater::{Failure, Updater};
use serde_json::Value;
use std::collections::BTreeMap;

impl Updater<'_, '_> {
    /// Removes from `merged` what is in `last`, the applier's former set, and owned by nobody now.
    pub(super) fn prune(
        &self,
        merged: Value,
        managed: &ManagedFields<'_>,
        version: &str,
        last: &Set,
    ) -> Result<Value, Failure> {
        let converted = self.at(&merged, self.api_version, version).map_err(|failure| {
            failure.during("failed to convert merged object to last applied version")
        })?;
        let Some((converted, ty)) = converted else { return Ok(merged) };
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
