//! What the collector keeps of an object, and how it finds what belongs together.
use super::{FOREGROUND, Item, ORPHAN, collectable};
use crate::definitions;
use crate::world::World;
use api::codec::DecodeError;
use api::kinds;
use api::names::NamespacedName;
use api::object::{Keep, Object};
use client::informer::Index;
use client::source::Collection;
use client::{ApiResource, Informer};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::sync::Arc;

#[derive(Debug)]
pub struct Node {
    pub uid: Box<str>,
    pub owners: Box<[OwnerReference]>,
    pub is_deleting: bool,
    /// It goes when its dependents have forgotten it.
    pub is_orphaning: bool,
    /// It goes after its dependents.
    pub is_foreground: bool,
}

impl Keep for Node {
    fn keep(object: &Arc<Object>) -> Result<Arc<Node>, DecodeError> {
        let metadata = object.metadata();
        Ok(Arc::new(Node {
            uid: metadata.uid.clone(),
            owners: metadata.owner_references.clone(),
            is_deleting: object.is_deleting(),
            is_orphaning: metadata.has_finalizer(ORPHAN),
            is_foreground: metadata.has_finalizer(FOREGROUND),
        }))
    }
}

impl Node {
    /// Nothing of it is the collector's business.
    pub fn is_plain(&self) -> bool {
        self.owners.is_empty() && !self.is_deleting
    }

    /// Its owner may not go before it.
    pub fn blocks(&self, owner: &str) -> bool {
        let mut owners = self.owners.iter();
        owners.any(|other| other.uid == owner && other.block_owner_deletion == Some(true))
    }
}

fn informer(world: &World, resource: ApiResource) -> (Informer<Node>, Index) {
    let informer = world.keep::<Node>(Collection::all(resource));
    let index = informer.index("owner", |_, node: &Node| {
        node.owners.iter().map(|owner| owner.uid.clone()).collect()
    });
    (informer, index)
}

pub fn find(world: &World, item: &Item) -> Option<Arc<Node>> {
    informer(world, item.resource.clone()).0.get(&item.name)
}

/// All objects that name this owner.
pub fn dependents(world: &World, uid: &str) -> Vec<(Item, Arc<Node>)> {
    let mut all = Vec::new();
    let custom = definitions::resources(world);
    for resource in collectable().map(ApiResource::from).chain(custom) {
        let (informer, index) = informer(world, resource.clone());
        let read = informer.read();
        all.extend(read.by(index, uid).map(|(name, node)| {
            (Item { resource: resource.clone(), name: name.clone() }, node.clone())
        }));
    }
    all
}

/// The object that a reference names; `None` if its kind is not one of ours, or if it could not
/// be in the dependent's namespace.
pub fn owner_item(world: &World, owner: &OwnerReference, namespace: &str) -> Option<Item> {
    let resource = match kinds::find_kind(&owner.api_version, &owner.kind) {
        Some(row) => {
            let row = match row.stored_as {
                Some(home) => kinds::find_kind(home, &owner.kind)?,
                None => row,
            };
            collectable().find(|other| std::ptr::eq(*other, row))?.into()
        }
        // Whatever version the owner is named in.
        None => {
            let (group, _) = owner.api_version.split_once('/')?;
            let is_it = |it: &ApiResource| it.group == group && it.kind == owner.kind;
            definitions::resources(world).into_iter().find(is_it)?
        }
    };
    let namespace = if resource.is_namespaced() { namespace } else { "" };
    if resource.is_namespaced() && namespace.is_empty() {
        return None;
    }
    Some(Item { resource, name: NamespacedName::new(namespace, &owner.name) })
}
