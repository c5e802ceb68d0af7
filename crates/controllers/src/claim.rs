//! Whose an object is: what a controller's selector matches and nobody controls is adopted, what
//! it controls and its selector no longer matches is released.
use crate::action::{Action, Target};
use crate::pods::controller_ref;
use crate::world::World;
use api::rules::Form;
use api::selector::label::Selector;
use client::source::Patch;
use serde_json::{Value, json};
use std::sync::Arc;

/// What an owner has, and what makes it so.
pub struct Claimed<T> {
    pub objects: Vec<Arc<T>>,
    pub actions: Vec<Action>,
}

/// `is_wanted` says which orphans are worth to be adopted: pods that have ended are not.
pub fn claim<O: Form, T: Form>(
    owner: &O,
    selector: &Selector,
    world: &World,
    is_wanted: fn(&T) -> bool,
) -> Claimed<T> {
    claim_with(owner, selector, world, is_wanted, None)
}

/// The same for an owner that keeps its objects by a finalizer: they have it as long as they are its.
pub fn claim_with<O: Form, T: Form>(
    owner: &O,
    selector: &Selector,
    world: &World,
    is_wanted: fn(&T) -> bool,
    finalizer: Option<&str>,
) -> Claimed<T> {
    let metadata = owner.metadata();
    let uid = metadata.uid.as_deref().unwrap_or_default();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let is_deleting = metadata.deletion_timestamp.is_some();
    let (mut objects, mut actions, mut adopted) = (Vec::new(), Vec::new(), Vec::new());
    for object in world.controlled::<T>(uid) {
        if selector.matches(&object.metadata().labels) {
            objects.push(object);
        } else if !is_deleting && object.metadata().deletion_timestamp.is_none() {
            actions.push(release(&*object, uid, finalizer));
        }
    }
    for object in world.orphans::<T>(namespace) {
        let is_free = object.metadata().deletion_timestamp.is_none() && !is_deleting;
        if is_free && is_wanted(&object) && selector.matches(&object.metadata().labels) {
            adopted.push(adopt(owner, &*object, finalizer));
            objects.push(object);
        }
    }
    if !adopted.is_empty() {
        actions.push(if_still_there(owner, adopted));
    }
    Claimed { objects, actions }
}

/// An owner that was deleted in the meantime must adopt nothing: the garbage collector would
/// take it away.
fn if_still_there<O: Form>(owner: &O, adoptions: Vec<Action>) -> Action {
    let object = Target::of(owner);
    let uid = object.uid.clone();
    let then = Box::new(move |found: Option<Arc<client::Object>>| {
        let is_there = found.is_some_and(|found| found.uid() == uid && !found.is_deleting());
        if is_there { adoptions } else { Vec::new() }
    });
    Action::Look { object, then }
}

fn adopt<O: Form, T: Form>(owner: &O, object: &T, finalizer: Option<&str>) -> Action {
    let owners = [controller_ref(owner)];
    let mut metadata = json!({ "uid": object.metadata().uid, "ownerReferences": owners });
    if let Some(finalizer) = finalizer {
        metadata["finalizers"] = json!([finalizer]);
    }
    patched(object, metadata)
}

fn release<T: Form>(object: &T, owner: &str, finalizer: Option<&str>) -> Action {
    let owners = [json!({ "$patch": "delete", "uid": owner })];
    let mut metadata = json!({ "uid": object.metadata().uid, "ownerReferences": owners });
    if let Some(finalizer) = finalizer {
        metadata["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
    }
    patched(object, metadata)
}

fn patched<T: Form>(object: &T, metadata: Value) -> Action {
    let patch = Patch::Strategic(json!({ "metadata": metadata }));
    Action::Patch { object: Target::of(object), part: "", patch }
}
