//! The annotation in which `kubectl apply` without `--server-side` keeps the last applied
//! configuration.
//!
//! An object that was managed in that way must be adoptable by `kubectl apply --server-side`
//! without conflicts over what the same user had applied before, and must stay manageable in the
//! old way. Both hold only for the manager called `kubectl`.
use super::fieldset::Set;
use super::typed::{self, View};
use crate::patch::golang;
use crate::schema::TypeRef;
use serde_json::Value;

pub const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

const MAX_ANNOTATIONS_SIZE: usize = 256 << 10;

/// The fields over which `kubectl` may not conflict: those it last applied which still are as
/// they were applied.
pub(super) fn allowed_conflicts(live: &Value, api_version: &str, ty: TypeRef<'_>) -> Option<Set> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last.get("apiVersion")?.as_str()? != api_version {
        return None;
    }
    typed::validate(&last, ty, false).ok()?;
    let difference = typed::compare(&last, live, ty, View::Tree);
    let set = typed::field_set(&last, ty);
    let set = set.difference(&difference.modified).difference(&difference.added);
    Some(set.difference(&difference.removed))
}

/// Brings the annotation, if there is one, up to date with what has just been applied.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = annotations_mut(&mut config) {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = annotations_mut(object) else { return };
    // Upstream's encoder ends a document with a newline.
    annotations.insert(ANNOTATION.to_owned(), format!("{}\n", golang::json(&config)).into());
    let size: usize =
        annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS_SIZE {
        annotations.remove(ANNOTATION);
    }
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

fn annotations_mut(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
