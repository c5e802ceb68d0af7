//! Where a Service's traffic may go: its pods' addresses, in slices of a hundred.
pub mod endpoint;
#[cfg(test)]
mod tests;

use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use api::selector::label::Selector;
use client::Change;
use endpoint::Group;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const CONTROLLER: Controller = Controller {
    name: "endpointslice-controller",
    account: "endpointslice-controller",
    workers: 5,
    watch,
    reconcile,
};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// Endpoints in one slice: upstream's `--max-endpoints-per-slice`.
const SLICE: usize = 100;

fn watch(on: &Watching) {
    on.objects::<Service>();
    on.reads::<Node>();
    on.each::<EndpointSlice>(|_, change| {
        let slices = change.old.iter().chain(&change.new);
        let mut keys: Vec<_> = slices.filter_map(|slice| service_of(slice)).collect();
        keys.dedup();
        keys
    });
    on.each::<Pod>(services_of);
}

/// The services that select a pod, or did.
pub fn services_of(world: &World, change: &Change<Pod>) -> Vec<NamespacedName> {
    let services = world.informer::<Service>();
    let read = services.read();
    let selects = |service: &Service| {
        let selector = selector(service);
        let mut pods = change.old.iter().chain(&change.new);
        pods.any(|pod| selector.matches(&pod.metadata.labels))
    };
    let found = read.in_namespace(&change.key.namespace);
    found.filter(|(_, service)| selects(service)).map(|(key, _)| key.clone()).collect()
}

fn service_of(slice: &EndpointSlice) -> Option<NamespacedName> {
    let labels = slice.metadata.labels.as_ref()?;
    let is_ours = labels.get(MANAGED_BY).is_some_and(|manager| manager == MANAGER);
    let name = labels.get(SERVICE_NAME).filter(|_| is_ours)?;
    Some(NamespacedName::new(slice.metadata.namespace.as_deref()?, name))
}

/// A service without a selector is somebody else's to fill.
pub fn selector(service: &Service) -> Selector {
    let spec = service.spec.as_ref();
    let is_external = spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName");
    let labels = spec.and_then(|spec| spec.selector.as_ref()).filter(|labels| !labels.is_empty());
    labels.filter(|_| !is_external).map_or_else(Selector::nothing, Selector::from_set)
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    // Slices of a service that is gone belong to the garbage collector.
    let Some(service) = world.get::<Service>(key) else { return Vec::new() };
    let selector = selector(&service);
    if selector.is_nothing() || service.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let pods = world.in_namespace::<Pod>(&key.namespace);
    let selected =
        pods.iter().filter(|pod| selector.matches(&pod.metadata.labels) && !pods::is_finished(pod));
    let mut wanted: BTreeMap<Group, Vec<Endpoint>> = BTreeMap::new();
    for family in endpoint::families(&service) {
        for pod in selected.clone() {
            let node = world.find::<Node>("", pods::node(pod));
            if let Some(endpoint) = endpoint::of(pod, node.as_deref(), &service, &family) {
                let group = Group::of(&service, pod, &family);
                wanted.entry(group).or_default().push(endpoint);
            }
        }
        // One slice says that there is nothing.
        if !wanted.keys().any(|group| group.family == family) {
            wanted.insert(Group { family, ports: Vec::new() }, Vec::new());
        }
    }
    let slices = world.in_namespace::<EndpointSlice>(&key.namespace);
    let mine = slices.into_iter().filter(|slice| service_of(slice).as_ref() == Some(key));
    fit(&service, wanted, mine.collect())
}

/// Endpoints stay in the slice they are in; new ones go where there is room.
fn fit(
    service: &Service,
    wanted: BTreeMap<Group, Vec<Endpoint>>,
    slices: Vec<Arc<EndpointSlice>>,
) -> Vec<Action> {
    let labels = labels(service);
    let mut kept: Vec<(Arc<EndpointSlice>, EndpointSlice)> = Vec::new();
    let (mut made, mut actions) = (Vec::new(), Vec::new());
    for (group, mut endpoints) in wanted {
        let is_empty = endpoints.is_empty();
        let same = slices.iter().filter(|slice| group.is_of(slice));
        let mut own: Vec<_> = same.map(|slice| (slice.clone(), (**slice).clone())).collect();
        for (_, slice) in &mut own {
            slice.metadata.labels = Some(labels.clone());
            let stay = slice.endpoints.iter().flatten().filter_map(|old| {
                let at = endpoints.iter().position(|new| endpoint::is_same(new, old))?;
                Some(endpoints.remove(at))
            });
            slice.endpoints = Some(stay.collect());
        }
        for (_, slice) in &mut own {
            let inside = slice.endpoints.get_or_insert_default();
            let room = SLICE.saturating_sub(inside.len()).min(endpoints.len());
            inside.extend(endpoints.drain(..room));
        }
        made.extend(endpoints.chunks(SLICE).map(|some| group.slice(service, &labels, some)));
        // The one that says that there is nothing, if there is none yet.
        match (is_empty, own.first_mut()) {
            (true, None) => made.push(group.slice(service, &labels, &[])),
            (true, Some(_)) => kept.push(own.remove(0)),
            _ => {}
        }
        kept.extend(own.into_iter().filter(|(_, slice)| {
            slice.endpoints.as_ref().is_some_and(|inside| !inside.is_empty())
        }));
    }
    actions.extend(made.iter().map(Action::create));
    let changed = kept.iter().filter(|(old, new)| !is_equal(old, new));
    actions.extend(changed.map(|(_, new)| Action::update(new)));
    let is_kept =
        |slice: &EndpointSlice| kept.iter().any(|(old, _)| old.metadata.uid == slice.metadata.uid);
    let gone = slices.iter().filter(|slice| !is_kept(slice));
    actions.extend(gone.map(|slice| Action::delete(&**slice)));
    actions
}

/// An empty list is as good as none.
fn is_equal(old: &EndpointSlice, new: &EndpointSlice) -> bool {
    let endpoints = |slice: &EndpointSlice| slice.endpoints.clone().unwrap_or_default();
    old.metadata == new.metadata && endpoints(old) == endpoints(new)
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    let cluster_ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    match cluster_ip.unwrap_or_default() {
        "" | "None" => labels.insert(HEADLESS.to_owned(), String::new()),
        _ => labels.remove(HEADLESS),
    };
    let name = service.metadata.name.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name);
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

impl Group {
    fn slice(
        &self,
        service: &Service,
        labels: &BTreeMap<String, String>,
        endpoints: &[Endpoint],
    ) -> EndpointSlice {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        EndpointSlice {
            address_type: self.family.clone(),
            endpoints: Some(endpoints.to_vec()),
            ports: Some(self.ports()),
            metadata: ObjectMeta {
                generate_name: Some(format!("{name}-")),
                namespace: service.metadata.namespace.clone(),
                labels: Some(labels.clone()),
                owner_references: Some(vec![pods::controller_ref(service)]),
                ..ObjectMeta::default()
            },
        }
    }
}
