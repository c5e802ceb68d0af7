//! Managers of the `scale` subresource. A `Scale` is another object with another schema, but its
//! `spec.replicas` is a field of the scaled object: who owns one owns the other.
use super::fieldset::{PathElement, Set};
use super::managed_fields::{Error, ManagedFields};
use serde_json::Value;
use std::collections::BTreeMap;

const SCALE_VERSION: &str = "autoscaling/v1";

/// Translates between the managers of an object and those of its `Scale`.
pub struct ScaleHandler<'a> {
    /// The object's `metadata.managedFields`.
    pub parent: Option<&'a Value>,
    /// The object's version.
    pub api_version: &'a str,
    /// Where each version of the object has its replicas; `None` for a version without a scale.
    pub replicas: &'a BTreeMap<String, Option<Vec<PathElement>>>,
}

impl ScaleHandler<'_> {
    /// The managers of the replicas, as managers of a `Scale`.
    pub fn to_subresource(&self) -> Result<Option<Value>, Error> {
        let parent = ManagedFields::stored(self.parent)?;
        let mut scale = ManagedFields::default();
        for entry in parent.entries {
            if let Some(path) = self.path(&entry.manager.api_version)
                && entry.fields().has(path)
            {
                let mut manager = entry.manager;
                // An updater's version is part of who it is; here it is only what its entry says.
                manager.api_version = SCALE_VERSION.to_owned();
                scale.set(&manager, replicas_in_scale(), entry.time);
            }
        }
        Ok(scale.encode())
    }

    /// The object's managers after a change of its `Scale`, whose managers are `scale` now.
    pub fn to_parent(&self, scale: Option<&Value>) -> Result<Option<Value>, Error> {
        let parent = ManagedFields::stored(self.parent)?;
        let mut scale = ManagedFields::decode(scale)?;
        let mut result = ManagedFields::default();
        for mut entry in parent.entries {
            let Some(path) = self.replicas.get(&entry.manager.api_version) else { continue };
            if let Some(path) = path
                && entry.fields().has(path)
            {
                let mut as_scaler = entry.manager.clone();
                as_scaler.api_version = SCALE_VERSION.to_owned();
                if scale.remove(&as_scaler).is_none() {
                    // Taken over by another.
                    let mut taken = Set::new();
                    taken.insert(path);
                    entry.subtract(&taken);
                }
            }
            if !entry.fields().is_empty() {
                result.entries.push(entry);
            }
        }
        let replicas = replicas_in_scale();
        for entry in scale.entries {
            let Some(path) = self.path(self.api_version) else { continue };
            if entry.fields().intersection(&replicas).is_empty() {
                continue;
            }
            let mut set = Set::new();
            set.insert(path);
            let mut manager = entry.manager;
            manager.api_version = self.api_version.to_owned();
            result.set(&manager, set, entry.time);
        }
        Ok(result.encode())
    }

    fn path(&self, version: &str) -> Option<&[PathElement]> {
        self.replicas.get(version)?.as_deref()
    }
}

fn replicas_in_scale() -> Set {
    Set::of_names(&[&["spec", "replicas"]])
}
