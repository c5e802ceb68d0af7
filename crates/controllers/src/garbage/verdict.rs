//! Whether an object still has somebody to live for.
use super::node::{Node, dependents, find, owner_item};
use super::{Item, change_owners, forget_owners};
use crate::action::Action;
use crate::world::World;
use client::Object;
use client::source::{Delete, Patch, Preconditions, Propagation};
use serde_json::json;
use std::sync::Arc;

/// An object's owners, by what became of them.
struct Verdict {
    item: Item,
    node: Arc<Node>,
    solid: usize,
    /// Gone.
    dangling: Vec<Box<str>>,
    /// They wait for this object to go.
    waiting: Vec<Box<str>>,
    has_dependents: bool,
    /// A dependent waits for its own dependents: if this object is one of them, both would wait
    /// for ever.
    may_be_circle: bool,
}

pub fn judge(item: &Item, node: &Arc<Node>, world: &World) -> Vec<Action> {
    let dependents = dependents(world, &node.uid);
    let mut verdict = Verdict {
        item: item.clone(),
        node: node.clone(),
        solid: 0,
        dangling: Vec::new(),
        waiting: Vec::new(),
        has_dependents: !dependents.is_empty(),
        may_be_circle: dependents.iter().any(|(_, it)| it.is_deleting && it.is_foreground),
    };
    let mut absent = Vec::new();
    for owner in &node.owners {
        let Some(its) = owner_item(world, owner, &item.name.namespace) else {
            // A kind that is not known here cannot be said to be gone.
            verdict.solid += 1;
            continue;
        };
        match find(world, &its).filter(|found| *found.uid == *owner.uid) {
            Some(found) => verdict.note(&owner.uid, found.is_deleting && found.is_foreground),
            None => absent.push((its, Box::from(owner.uid.as_str()))),
        }
    }
    verdict.look_for(absent)
}

impl Verdict {
    fn note(&mut self, owner: &str, is_waiting: bool) {
        match is_waiting {
            true => self.waiting.push(owner.into()),
            false => self.solid += 1,
        }
    }

    /// Asks the server for each owner that is not in the caches, one after another.
    fn look_for(mut self, mut absent: Vec<(Item, Box<str>)>) -> Vec<Action> {
        let Some((owner, uid)) = absent.pop() else { return self.decide() };
        let object = owner.target(&uid);
        let then = move |found: Option<Arc<Object>>| {
            match found.filter(|found| *found.uid() == *uid) {
                None => self.dangling.push(uid),
                Some(found) => {
                    let waits = found.metadata().has_finalizer(super::FOREGROUND);
                    self.note(&uid, found.is_deleting() && waits);
                }
            }
            self.look_for(absent)
        };
        vec![Action::Look { object, then: Box::new(then) }]
    }

    fn decide(self) -> Vec<Action> {
        let Verdict { item, node, solid, dangling, waiting, .. } = &self;
        if *solid > 0 {
            let gone: Vec<_> = dangling.iter().chain(waiting).cloned().collect();
            if gone.is_empty() {
                return Vec::new();
            }
            return vec![forget_owners(item, &node.uid, &gone)];
        }
        if !waiting.is_empty() && self.has_dependents {
            let mut actions = Vec::new();
            if self.may_be_circle {
                actions.push(unblock(item, node));
            }
            actions.push(self.delete(Some(Propagation::Foreground)));
            return actions;
        }
        vec![self.delete(None)]
    }

    /// Deletes the object, if it is still the one with these owners.
    fn delete(self, propagation: Option<Propagation>) -> Action {
        let object = self.item.target(&self.node.uid);
        let target = object.clone();
        let then = move |found: Option<Arc<Object>>| {
            let Some(found) = found else { return Vec::new() };
            let metadata = found.metadata();
            let uids = |owners: &[_]| -> Vec<String> {
                owners
                    .iter()
                    .map(|it: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
                        it.uid.clone()
                    })
                    .collect()
            };
            let is_same = *found.uid() == *self.node.uid
                && uids(&metadata.owner_references) == uids(&self.node.owners);
            if !is_same || found.is_deleting() {
                return Vec::new();
            }
            let preconditions = Preconditions {
                uid: Some(found.uid().to_owned()),
                // Unblocking its owners has made it another version.
                resource_version: propagation.is_none().then(|| found.resource_version()),
            };
            let policy =
                propagation.unwrap_or(match (self.node.is_orphaning, self.node.is_foreground) {
                    (true, _) => Propagation::Orphan,
                    (false, true) => Propagation::Foreground,
                    (false, false) => Propagation::Background,
                });
            let options = Delete { preconditions, ..Delete::default().propagating(policy) };
            vec![Action::Delete { object: target, options, tell: None }]
        };
        Action::Look { object, then: Box::new(then) }
    }
}

/// Its owners no longer wait for it.
fn unblock(item: &Item, node: &Node) -> Action {
    if item.resource.row.is_none() {
        return change_owners(item, &node.uid, |owners| {
            let blocking = owners.iter_mut().filter(|it| it.block_owner_deletion == Some(true));
            blocking.for_each(|owner| owner.block_owner_deletion = Some(false));
        });
    }
    let blocking = node.owners.iter().filter(|owner| owner.block_owner_deletion == Some(true));
    let owners: Vec<_> = blocking
        .map(|owner| {
            json!({ "uid": owner.uid, "apiVersion": owner.api_version, "kind": owner.kind,
                "name": owner.name, "blockOwnerDeletion": false })
        })
        .collect();
    let patch = json!({ "metadata": { "uid": node.uid, "ownerReferences": owners } });
    Action::Patch { object: item.target(&node.uid), part: "", patch: Patch::Strategic(patch) }
}
