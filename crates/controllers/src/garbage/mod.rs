//! Objects whose owners are gone go too.
//!
//! Of every object of every kind that can be deleted, a small [`Node`] is kept. An object is
//! looked at when it, or an owner of it, changes; that an owner is gone is believed only from the
//! server itself, as informers of different kinds are not equally far.
mod node;
#[cfg(test)]
mod tests;
mod verdict;

use crate::action::{Action, Target};
use crate::definitions::{self, Defined};
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::kinds::{RESOURCES, Resource, Verb};
use api::names::NamespacedName;
use client::source::{Collection, Patch};
use client::{ApiResource, Change};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
pub use node::Node as Kept;
use node::{Node, dependents, owner_item};
use serde_json::json;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

pub const CONTROLLER: Controller<Item> = Controller {
    name: "garbage-collector-controller",
    account: "generic-garbage-collector",
    workers: 20,
    watch,
    reconcile,
};

pub const ORPHAN: &str = "orphan";
pub const FOREGROUND: &str = "foregroundDeletion";

/// One object of any kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Item {
    pub resource: ApiResource,
    pub name: NamespacedName,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource, self.name)
    }
}

impl Item {
    pub fn target(&self, uid: &str) -> Target {
        Target {
            resource: self.resource.clone(),
            namespace: self.name.namespace.to_string(),
            name: self.name.name.to_string(),
            uid: uid.to_owned(),
        }
    }
}

/// Kinds that can own and be owned: all that can be deleted, but for events, of which there are
/// many and which own nothing.
pub fn collectable() -> impl Iterator<Item = &'static Resource> {
    let has = |row: &Resource, verb| row.verbs.contains(verb);
    RESOURCES.iter().filter(move |row| {
        row.is_stored()
            && row.stored_as.is_none()
            && row.kind != "Event"
            && [Verb::Delete, Verb::List, Verb::Watch].iter().all(|verb| has(row, *verb))
    })
}

fn watch(on: &Watching<Item>) {
    for row in collectable() {
        each(on, row.into());
    }
    // Custom resources come and go.
    let (watching, known) = (on.clone(), Mutex::new(HashSet::new()));
    on.each_of::<Defined>(definitions::collection(), move |world, change| {
        let resource = |defined: &Option<Arc<Defined>>| defined.as_ref()?.resource.clone();
        let (old, new) = (resource(&change.old), resource(&change.new));
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = old.filter(|old| Some(old) != new.as_ref())
            && known.remove(&old)
        {
            world.forget(&old);
        }
        if let Some(new) = new.filter(|new| known.insert(new.clone())) {
            each(&watching, new);
        }
        Vec::new()
    });
}

fn each(on: &Watching<Item>, resource: ApiResource) {
    on.each_of::<Node>(Collection::all(resource.clone()), move |world, change| {
        woken(&resource, world, change)
    });
}

fn woken(resource: &ApiResource, world: &World, change: &Change<Node>) -> Vec<Item> {
    let item = Item { resource: resource.clone(), name: change.key.clone() };
    let owners_of = |node: &Node| -> Vec<Item> {
        let namespace = &change.key.namespace;
        node.owners.iter().filter_map(|owner| owner_item(world, owner, namespace)).collect()
    };
    match (&change.old, &change.new) {
        (None, Some(new)) if new.is_plain() => Vec::new(),
        (old, Some(new)) => {
            let mut items = vec![item];
            // Its dependents have to go before it can.
            if new.is_deleting && new.is_foreground {
                items.extend(dependents(world, &new.uid).into_iter().map(|(item, _)| item));
            }
            // An owner that waited for this object may no longer have to.
            if let Some(old) = old
                && old.owners != new.owners
            {
                items.extend(owners_of(old));
            }
            items
        }
        (Some(old), None) => {
            let mut items: Vec<_> =
                dependents(world, &old.uid).into_iter().map(|(item, _)| item).collect();
            items.extend(owners_of(old));
            items
        }
        (None, None) => Vec::new(),
    }
}

fn reconcile(item: &Item, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(node) = node::find(world, item) else { return Vec::new() };
    match (node.is_deleting, node.is_orphaning, node.is_foreground) {
        (true, true, _) => orphan(item, &node, world),
        (true, false, true) => let_go(item, &node, world),
        // It is on its way; its dependents are looked at when it is gone.
        (true, false, false) => Vec::new(),
        (false, _, _) if node.owners.is_empty() => Vec::new(),
        (false, _, _) => verdict::judge(item, &node, world),
    }
}

/// The dependents forget their owner, then the owner may go.
fn orphan(item: &Item, node: &Node, world: &World) -> Vec<Action> {
    let dependents = dependents(world, &node.uid);
    let forget = dependents.iter().map(|(dependent, other)| {
        forget_owners(dependent, &other.uid, std::slice::from_ref(&node.uid))
    });
    let mut actions: Vec<_> = forget.collect();
    actions.push(remove_finalizer(item, &node.uid, ORPHAN));
    actions
}

/// An object that waits for its dependents goes when the last that blocks it is gone.
fn let_go(item: &Item, node: &Node, world: &World) -> Vec<Action> {
    let dependents = dependents(world, &node.uid);
    let is_blocked = dependents.iter().any(|(_, dependent)| dependent.blocks(&node.uid));
    if is_blocked { Vec::new() } else { vec![remove_finalizer(item, &node.uid, FOREGROUND)] }
}

pub fn forget_owners(item: &Item, uid: &str, owners: &[Box<str>]) -> Action {
    if item.resource.row.is_none() {
        let gone = owners.to_vec();
        let stays = move |owner: &OwnerReference| !gone.iter().any(|uid| **uid == owner.uid);
        return change_owners(item, uid, move |owners| owners.retain(&stays));
    }
    let owners: Vec<_> =
        owners.iter().map(|owner| json!({ "$patch": "delete", "uid": owner })).collect();
    let patch = json!({ "metadata": { "uid": uid, "ownerReferences": owners } });
    Action::Patch { object: item.target(uid), part: "", patch: Patch::Strategic(patch) }
}

/// Owners of a custom object, of which the server merges no lists: all of them, read before they are
/// written.
pub fn change_owners(
    item: &Item,
    uid: &str,
    change: impl FnOnce(&mut Vec<OwnerReference>) + Send + 'static,
) -> Action {
    let object = item.target(uid);
    let patched = object.clone();
    let then = move |found: Option<Arc<client::Object>>| {
        let Some(found) = found.filter(|found| found.uid() == patched.uid) else {
            return Vec::new();
        };
        let mut owners = found.metadata().owner_references.to_vec();
        change(&mut owners);
        let version = found.resource_version();
        let patch =
            json!({ "metadata": { "resourceVersion": version, "ownerReferences": owners } });
        vec![Action::Patch { object: patched, part: "", patch: Patch::Merge(patch) }]
    };
    Action::Look { object, then: Box::new(then) }
}

/// Reads the object first: others have finalizers on it too.
fn remove_finalizer(item: &Item, uid: &str, finalizer: &'static str) -> Action {
    let object = item.target(uid);
    let patched = object.clone();
    let then = move |found: Option<Arc<client::Object>>| {
        let Some(found) = found.filter(|found| found.uid() == patched.uid) else {
            return Vec::new();
        };
        let all = &found.metadata().finalizers;
        let rest: Vec<&str> =
            all.iter().map(|name| &**name).filter(|name| *name != finalizer).collect();
        if rest.len() == all.len() {
            return Vec::new();
        }
        let version = found.resource_version();
        let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": rest } });
        vec![Action::Patch { object: patched, part: "", patch: Patch::Merge(patch) }]
    };
    Action::Look { object, then: Box::new(then) }
}
