//! Services, nodes and endpoints, as both see them: who gives addresses, and who answers for them.
use super::facts::{EndpointFacts, NodeFacts, ServiceFacts};
use api::names::NamespacedName;
use client::source::Collection;
use client::{ApiResource, Change, Informer, Informers};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;

/// Everything that decides about addresses.
#[derive(Debug, Default)]
pub struct World {
    pub services: BTreeMap<NamespacedName, Arc<ServiceFacts>>,
    pub nodes: BTreeMap<String, Arc<NodeFacts>>,
    /// The nodes on which a service has ready endpoints.
    pub endpoints: BTreeMap<NamespacedName, BTreeSet<String>>,
}

pub struct Seen {
    services: Informer<ServiceFacts>,
    nodes: Informer<NodeFacts>,
    slices: Informer<EndpointFacts>,
}

impl Seen {
    /// Whoever waits for `changed` hears of everything that matters.
    pub fn new(informers: &Informers, changed: &Arc<Notify>) -> Seen {
        let seen = Seen {
            services: informers.keep(Collection::all(ApiResource::of::<Service>())),
            nodes: informers.keep(Collection::all(ApiResource::of::<Node>())),
            slices: informers.keep(Collection::all(ApiResource::of::<EndpointSlice>())),
        };
        follow(&seen.services, changed);
        follow(&seen.nodes, changed);
        follow(&seen.slices, changed);
        seen
    }

    pub fn world(&self) -> World {
        let (services, nodes, slices) =
            (self.services.read(), self.nodes.read(), self.slices.read());
        let mut world = World::default();
        world.services.extend(services.iter().map(|(key, facts)| (key.clone(), facts.clone())));
        world.nodes.extend(nodes.iter().map(|(key, facts)| (key.name.to_string(), facts.clone())));
        for (key, slice) in slices.iter() {
            let service = NamespacedName::new(&key.namespace, &slice.service);
            world.endpoints.entry(service).or_default().extend(slice.nodes.iter().cloned());
        }
        world
    }
}

pub fn follow<K: api::object::Keep + PartialEq>(informer: &Informer<K>, changed: &Arc<Notify>) {
    let changed = changed.clone();
    informer.on_change(move |change: &Change<K>| {
        if change.old.as_deref() != change.new.as_deref() {
            changed.notify_one();
        }
    });
}
