//! What the API has, kept up to date.
mod gateway;

pub use gateway::resource;
#[cfg(test)]
pub use gateway::resources;

use crate::facts::{
    ClassFacts, IngressFacts, NamespaceFacts, NodeFacts, SecretFacts, ServiceFacts, SliceFacts,
};
use crate::plan::World;
use crate::table::{Destination, Protocol};
use api::selector::field::Selector;
use client::informer::Index;
use client::source::{Collection, Source};
use client::{ApiResource, Context, Informer, Informers, NamespacedName};
use k8s_openapi::api::core::v1::{Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// What is followed from the start: whoever might want something of us.
pub struct Seen {
    informers: Informers,
    classes: Informer<ClassFacts>,
    ingresses: Informer<IngressFacts>,
    gateways: gateway::Gateways,
    /// From the moment that somebody does.
    rest: OnceLock<Rest>,
    changes: Arc<Changes>,
}

/// What is known only where it is needed.
struct Rest {
    informers: Informers,
    services: Informer<ServiceFacts>,
    slices: Informer<SliceFacts>,
    by_service: Index,
    secrets: Informer<SecretFacts>,
    nodes: Informer<NodeFacts>,
    namespaces: Informer<NamespaceFacts>,
}

/// What is different since somebody last looked.
#[derive(Default)]
pub struct Changes {
    told: Notify,
    new: Mutex<New>,
}

#[derive(Debug, Default)]
pub struct New {
    /// More than endpoints.
    pub plan: bool,
    /// Services whose endpoints are others.
    pub services: BTreeSet<NamespacedName>,
}

impl Changes {
    /// Until something is different.
    pub async fn next(&self) -> New {
        loop {
            let new = std::mem::take(&mut *self.new.lock());
            if new.plan || !new.services.is_empty() {
                return new;
            }
            self.told.notified().await;
        }
    }

    fn plan(&self) {
        self.new.lock().plan = true;
        self.told.notify_one();
    }

    fn endpoints(&self, service: NamespacedName) {
        self.new.lock().services.insert(service);
        self.told.notify_one();
    }
}

impl Seen {
    pub fn new(context: &Context, source: Arc<dyn Source>) -> Seen {
        let changes = Arc::new(Changes::default());
        let gateways = gateway::Gateways::new(context, source.clone(), &changes);
        let informers = Informers::new(context, source);
        let classes = informers.keep(Collection::all(ApiResource::of::<IngressClass>()));
        let ingresses = informers.keep(Collection::all(ApiResource::of::<Ingress>()));
        follow(&classes, &changes);
        follow(&ingresses, &changes);
        changes.plan();
        Seen { informers, classes, ingresses, gateways, rest: OnceLock::new(), changes }
    }

    pub fn changes(&self) -> Arc<Changes> {
        self.changes.clone()
    }

    /// Until all is known that matters now.
    pub async fn synced(&self) {
        self.informers.synced().await;
        self.gateways.synced().await;
        if self.is_wanted() {
            let rest = self.rest.get_or_init(|| Rest::new(&self.informers, &self.changes));
            rest.informers.synced().await;
        }
    }

    /// Somebody wants something of us, or did.
    fn is_wanted(&self) -> bool {
        let has_ingress = || self.ingresses.read().iter().next().is_some();
        self.rest.get().is_some() || has_ingress() || self.gateways.is_wanted()
    }

    pub fn world(&self) -> World {
        let mut world = World {
            classes: by_name(&self.classes),
            ingresses: by_key(&self.ingresses),
            gateway: self.gateways.world(),
            ..World::default()
        };
        if let Some(rest) = self.rest.get() {
            world.services = by_key(&rest.services);
            world.secrets = by_key(&rest.secrets);
            world.nodes = by_name(&rest.nodes);
            world.namespaces = by_name(&rest.namespaces);
        }
        world
    }

    /// Where the pods behind a port of a service are.
    pub fn addresses(&self, to: &Destination) -> Vec<SocketAddr> {
        let Some(rest) = self.rest.get() else { return Vec::new() };
        let Some(facts) = rest.services.get(&to.service) else { return Vec::new() };
        let (read, whole) = (rest.slices.read(), to.service.to_string());
        let slices = read.by(rest.by_service, &whole).map(|(_, slice)| slice);
        let port = (to.port, to.protocol == Protocol::Datagrams);
        crate::plan::addresses(&facts, port, slices)
    }

    /// All addresses of a node.
    pub fn addresses_of_node(&self, name: &str) -> Vec<IpAddr> {
        let rest = self.rest.get();
        let node = rest.and_then(|rest| rest.nodes.get(&NamespacedName::new("", name)));
        node.map(|node| node.all.clone()).unwrap_or_default()
    }
}

impl Rest {
    fn new(informers: &Informers, changes: &Arc<Changes>) -> Rest {
        let informers = informers.clone();
        let services = informers.keep(Collection::all(ApiResource::of::<Service>()));
        let slices: Informer<SliceFacts> =
            informers.keep(Collection::all(ApiResource::of::<EndpointSlice>()));
        // Others are nobody's certificates, and none of our business.
        let of_tls = Selector::equals("type", "kubernetes.io/tls");
        let secrets = Collection::all(ApiResource::of::<Secret>()).with_fields(of_tls);
        let secrets = informers.keep(secrets);
        let nodes = informers.keep(Collection::all(ApiResource::of::<Node>()));
        let namespaces = informers.keep(Collection::all(ApiResource::of::<Namespace>()));
        let by_service = slices.index("service", |key, slice: &SliceFacts| {
            vec![NamespacedName::new(&key.namespace, &slice.service).to_string()]
        });
        follow_facts(&services, changes);
        follow(&secrets, changes);
        follow_facts(&nodes, changes);
        follow_facts(&namespaces, changes);
        slices.on_change({
            let changes = changes.clone();
            move |change| {
                for slice in change.old.iter().chain(&change.new) {
                    let service = NamespacedName::new(&change.key.namespace, &slice.service);
                    changes.endpoints(service);
                }
            }
        });
        Rest { informers, services, slices, by_service, secrets, nodes, namespaces }
    }
}

fn follow<K: Send + Sync + 'static>(informer: &Informer<K>, changes: &Arc<Changes>) {
    let changes = changes.clone();
    informer.on_change(move |_| changes.plan());
}

/// The same for what is written all the time and says the same.
fn follow_facts<K: PartialEq + Send + Sync + 'static>(
    informer: &Informer<K>,
    changes: &Arc<Changes>,
) {
    let changes = changes.clone();
    informer.on_change(move |change| {
        if change.old != change.new {
            changes.plan();
        }
    });
}

fn by_key<K: Send + Sync + 'static>(informer: &Informer<K>) -> BTreeMap<NamespacedName, Arc<K>> {
    informer.read().iter().map(|(key, facts)| (key.clone(), facts.clone())).collect()
}

fn by_name<K: Send + Sync + 'static>(informer: &Informer<K>) -> BTreeMap<String, Arc<K>> {
    informer.read().iter().map(|(key, facts)| (key.name.to_string(), facts.clone())).collect()
}
