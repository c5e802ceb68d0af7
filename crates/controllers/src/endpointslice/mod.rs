//! Where a Service's traffic may go: its pods' addresses, in slices of a hundred.
pub mod endpoint;
mod fit;
#[cfg(test)]
mod tests;
mod topology;

use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::pods;
use crate::world::{Memo, World};
use api::names::NamespacedName;
use api::selector::label::Selector;
use api::status::Status;
use client::Change;
use client::events::{Happening, reference};
use endpoint::Group;
use fit::{Fitted, fit};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

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

fn watch(on: &Watching) {
    on.objects::<Service>();
    on.each::<Node>(|world, change| {
        let standing = |node: &Option<std::sync::Arc<Node>>| {
            node.as_ref().map(|node| {
                let (is_ready, zone) = topology::standing(node);
                (is_ready, zone.map(str::to_owned))
            })
        };
        if change.initial || standing(&change.old) == standing(&change.new) {
            return Vec::new();
        }
        let services = world.informer::<Service>();
        let read = services.read();
        let asking = read.iter().filter(|(_, service)| topology::is_auto(service));
        asking.map(|(key, _)| key.clone()).collect()
    });
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
    let is_auto = topology::is_auto(&service);
    let is_published =
        service.spec.as_ref().is_some_and(|it| it.publish_not_ready_addresses == Some(true));
    let pods = world.in_namespace::<Pod>(&key.namespace);
    let selected =
        pods.iter().filter(|pod| selector.matches(&pod.metadata.labels) && !pods::is_finished(pod));
    let mut wanted: BTreeMap<Group, Vec<Endpoint>> = BTreeMap::new();
    let mut lost = None;
    for family in endpoint::families(&service) {
        for pod in selected.clone() {
            let node = world.find::<Node>("", pods::node(pod));
            let Some(mut endpoint) = endpoint::of(pod, node.as_deref(), &service, &family) else {
                continue;
            };
            // Its node may be on its way to us, or gone for good: the others are published meanwhile.
            if node.is_none() && !is_published && !pods::node(pod).is_empty() {
                lost = Some(pod);
                continue;
            }
            if is_auto {
                endpoint.hints = None;
            }
            let group = Group::of(&service, pod, &family);
            wanted.entry(group).or_default().push(endpoint);
        }
        // One slice says that there is nothing.
        if !wanted.keys().any(|group| group.family == family) {
            wanted.insert(Group { family, ports: Vec::new() }, Vec::new());
        }
    }
    let slices = world.in_namespace::<EndpointSlice>(&key.namespace);
    let mine = slices.into_iter().filter(|slice| service_of(slice).as_ref() == Some(key));
    let (mut fitted, gone) = fit(&service, wanted, mine.collect());
    let told = hints(key, &service, world, is_auto, &mut fitted);
    let (made, kept): (Vec<_>, Vec<_>) = fitted.iter().partition(|it| it.old.is_none());
    let made = made.iter().map(|it| Action::create(&it.new));
    let changed = kept.iter().filter(|it| !it.is_equal()).map(|it| Action::update(&it.new));
    let mut actions: Vec<_> = Action::at_once(made.chain(changed)).into_iter().collect();
    // What has moved to another slice is there by now.
    actions.extend(Action::at_once(gone.iter().map(|slice| Action::delete(&**slice))));
    actions.extend(told);
    if let Some(pod) = lost {
        let (name, node) = (pod.metadata.name.as_deref().unwrap_or_default(), pods::node(pod));
        let text = format!("skipping Pod {name} for Service {key}: Node {node} Not Found");
        actions.push(Action::Fail(Status::internal_error(text)));
    }
    actions
}

/// The service's endpoints have had hints by zone, as it asked for.
#[derive(Debug)]
struct Hinted;

/// Hints of slices where the service asks for those by zone; events say what became of that.
fn hints(
    key: &NamespacedName,
    service: &Service,
    world: &World,
    is_auto: bool,
    fitted: &mut [Fitted],
) -> Vec<Action> {
    let memory = key.to_string();
    let was_hinted = world.recall::<Hinted>(&memory).is_some();
    let tell = |type_: &str, reason: &str, text: &str, family: &str| {
        let (about, note) = (reference(service), format!("{text}, addressType: {family}"));
        Action::Record(match type_ {
            "Normal" => Happening::normal(about, reason, note),
            _ => Happening::warning(about, reason, note),
        })
    };
    const ENABLED: &str = "TopologyAwareHintsEnabled";
    const DISABLED: &str = "TopologyAwareHintsDisabled";
    let mut actions = Vec::new();
    if !is_auto {
        if was_hinted {
            let families = endpoint::families(service);
            let text = "Topology Aware Hints has been disabled";
            actions.extend(families.iter().map(|family| tell("Warning", DISABLED, text, family)));
            actions.push(Action::Remember(Memo::nothing::<Hinted>(&memory)));
        }
        return actions;
    }
    let ratios = topology::ratios(&world.all::<Node>());
    let mut is_hinted = was_hinted;
    for family in endpoint::families(service) {
        let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
        for it in fitted.iter_mut().filter(|it| it.new.address_type == family) {
            match (it.is_changed(), &it.old) {
                (false, Some(old)) => {
                    it.new.endpoints.clone_from(&old.endpoints);
                    unchanged.push(&mut it.new);
                }
                _ => changed.push(&mut it.new),
            }
        }
        match topology::assign(ratios.as_ref(), changed, unchanged) {
            Ok(()) if !is_hinted => {
                let text = "Topology Aware Hints has been enabled";
                actions.push(tell("Normal", ENABLED, text, &family));
                is_hinted = true;
            }
            Ok(()) => {}
            Err(reason) => {
                actions.push(tell("Warning", DISABLED, &reason, &family));
                is_hinted = false;
            }
        }
    }
    match (was_hinted, is_hinted) {
        (false, true) => actions.push(Action::Remember(Memo::new(&memory, Hinted))),
        (true, false) => actions.push(Action::Remember(Memo::nothing::<Hinted>(&memory))),
        _ => {}
    }
    actions
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
