//! CustomResourceDefinitions at work: rows of the registry that come and go while the server runs.
//!
//! ```text
//!  store ─► follow ─┬─► names accepted? rows made ─► registry swapped ─► Established written
//!                   └─► being deleted? ─► cleanup: objects deleted, then the finalizer
//!  objects ─► convert   from the version that is stored to the one that is asked for, and back
//!     └─► memo  what webhooks made of them, for lists and watches
//! ```
//! What a definition means is `api::custom`'s; this is what happens when one changes.
mod convert;
mod follow;
mod memo;
mod rules;
#[cfg(test)]
mod tests;

pub use convert::{
    converted, converted_item, converted_one, current, for_storage, in_version, read_back,
    stored_back,
};
pub use follow::start;
pub use memo::Memo;
pub use rules::{faults, said};

use api::custom::accept::{CLEANUP, Condition};
use api::kinds::{Resource, find_kind};
use jiff::Timestamp;
use serde_json::{Value, json};

pub fn definitions() -> &'static Resource {
    find_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        .expect("definitions are in the registry")
}

/// Whether objects of the resource are definitions.
pub fn are(resource: &Resource) -> bool {
    resource.is("apiextensions.k8s.io", "CustomResourceDefinition")
}

/// A definition that is asked to go: it stays until its objects are gone.
pub fn mark(definition: &mut Value, now: Timestamp) {
    let metadata = &mut definition["metadata"];
    metadata["deletionTimestamp"] = api::time::format(now.as_second()).into();
    match metadata["finalizers"].as_array_mut() {
        Some(all) if all.iter().any(|finalizer| finalizer == CLEANUP) => {}
        Some(all) => all.push(CLEANUP.into()),
        None => metadata["finalizers"] = json!([CLEANUP]),
    }
    let message =
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    Condition::terminating(true, "InstanceDeletionPending", message).put(definition, now);
}

#[cfg(test)]
mod together {
    mod tests;
}
