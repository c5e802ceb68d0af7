//! Services of type LoadBalancer, by a cloud's own balancers: upstream's `service-lb-controller`, which
//! its clouds' controller managers run.
//!
//! What a balancer is, is behind [`LoadBalancers`]; who starts the loops brings one
//! ([`crate::Settings::load_balancers`]), and without one this row does nothing. `skiff up` brings none:
//! its services get addresses of the nodes from `proxy::balancer`, which `--disable servicelb` switches
//! off where a cloud's manager is to do it instead.
//!
//! A finalizer keeps a service until its balancer is gone. What was last asked of the balancer is
//! remembered, so that it is asked again only when something changed that matters to it; a process that
//! starts asks once for each.
mod nodes;
mod provider;
#[cfg(test)]
mod tests;

pub use provider::{Failure, LoadBalancers, Provider};

use crate::action::{Action, Balance, Target};
use crate::driver::{Controller, Watching};
use crate::world::{Memo, World};
use api::names::NamespacedName;
use client::events::{Happening, reference};
use client::source::Patch;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, Service};
use nodes::Hosts;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "service-lb-controller",
    account: "service-controller",
    workers: 1,
    watch,
    reconcile,
};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// How long a balancer that failed is left alone: upstream's.
const RETRY: Duration = Duration::from_secs(5);

fn watch(on: &Watching) {
    // Nothing is kept for nobody.
    if on.world.settings.load_balancers.is_none() {
        return;
    }
    on.each::<Service>(|_, change| {
        let matters = match (&change.old, &change.new) {
            (Some(old), Some(new)) => {
                is_wanted(old) != is_wanted(new) || is_changed(old, new) || has_to_go(new)
            }
            _ => true,
        };
        if matters { vec![change.key.clone()] } else { Vec::new() }
    });
    on.each::<Node>(|world, change| {
        let part = |node: &Option<Arc<Node>>| node.as_ref().and_then(|node| nodes::host(node));
        if part(&change.old) == part(&change.new) {
            return Vec::new();
        }
        let services = world.informer::<Service>();
        let read = services.read();
        let balanced = read.iter().filter(|(_, service)| is_wanted(service));
        balanced.map(|(key, _)| key.clone()).collect()
    });
}

/// A class is somebody else's.
fn is_wanted(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| {
        spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none()
    })
}

fn is_held(service: &Service) -> bool {
    service.metadata.finalizers.iter().flatten().any(|it| it == FINALIZER)
}

fn has_to_go(service: &Service) -> bool {
    let type_ = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
    is_held(service)
        && (service.metadata.deletion_timestamp.is_some() || type_ != Some("LoadBalancer"))
}

/// What the balancer of a service was last asked for.
#[derive(Debug)]
struct Balanced {
    service: Arc<Service>,
    hosts: Hosts,
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(provider) = &world.settings.load_balancers else { return Vec::new() };
    let memory = key.to_string();
    let before = world.recall::<Balanced>(&memory);
    let Some(service) = world.get::<Service>(key) else {
        // One that went without our finalizer left its balancer behind.
        return before.map_or_else(Vec::new, |before| leave(provider, &before.service, &memory));
    };
    if !is_wanted(&service) || has_to_go(&service) {
        let is_ours = is_held(&service) || before.is_some();
        return if is_ours { remove(provider, &service, &memory) } else { Vec::new() };
    }
    let nodes = nodes::hosts(&world.all::<Node>());
    match before {
        Some(before) if before.service.metadata.uid != service.metadata.uid => {
            let mut actions = leave(provider, &before.service, &memory);
            actions.extend(ensure(provider, service, nodes, memory));
            actions
        }
        Some(before) if !is_changed(&before.service, &service) => {
            if before.hosts == nodes.names() {
                Vec::new()
            } else {
                update(provider, service, nodes, memory)
            }
        }
        _ => ensure(provider, service, nodes, memory),
    }
}

/// Something that a balancer may have to know.
fn is_changed(old: &Service, new: &Service) -> bool {
    let matters = |service: &Service| {
        let spec = service.spec.clone().unwrap_or_default();
        let families = spec.ip_families.map_or(0, |families| families.len());
        let plain = (
            spec.load_balancer_source_ranges,
            spec.ports,
            spec.session_affinity,
            spec.session_affinity_config,
            spec.load_balancer_ip,
            spec.external_ips,
        );
        let policy = (spec.external_traffic_policy, spec.health_check_node_port, families);
        (plain, policy, service.metadata.annotations.clone())
    };
    matters(old) != matters(new)
}

fn tell(service: &Service, reason: &str, note: &str) -> Action {
    Action::Record(Happening::normal(reference(service), reason, note))
}

fn warn(service: &Service, reason: &str, note: String) -> Action {
    Action::Record(Happening::warning(reference(service), reason, note))
}

fn failed(service: &Service, what: &str, failure: &Failure) -> Vec<Action> {
    let note = format!("Error syncing load balancer: {what}: {failure}");
    let after = if let Failure::Later(after, _) = failure { *after } else { RETRY };
    vec![warn(service, "SyncLoadBalancerFailed", note), Action::Again(after)]
}

fn ensure(
    provider: &Provider,
    service: Arc<Service>,
    nodes: nodes::Nodes,
    memory: String,
) -> Vec<Action> {
    let mut actions = vec![tell(&service, "EnsuringLoadBalancer", "Ensuring load balancer")];
    if !is_held(&service) {
        let mut finalizers = service.metadata.finalizers.clone().unwrap_or_default();
        finalizers.push(FINALIZER.to_owned());
        actions.push(hold(&service, &finalizers));
    }
    if nodes.is_empty() {
        let note = "There are no available nodes for LoadBalancer".to_owned();
        actions.push(warn(&service, "UnAvailableLoadBalancer", note));
    }
    let (asked, hosts) = (service.clone(), nodes.names());
    let balance = Balance::Ensure(asked, nodes.all());
    let then = move |said: Result<Option<LoadBalancerStatus>, Failure>| {
        let remember = |service: &Arc<Service>| {
            Action::Remember(Memo::new(&memory, Balanced { service: service.clone(), hosts }))
        };
        match said {
            Ok(Some(status)) => {
                let mut actions =
                    vec![tell(&service, "EnsuredLoadBalancer", "Ensured load balancer")];
                actions.extend(status_patch(&service, &status));
                actions.push(remember(&service));
                actions
            }
            Ok(None) | Err(Failure::Elsewhere) => vec![remember(&service)],
            Err(failure) => failed(&service, "failed to ensure load balancer", &failure),
        }
    };
    actions.push(Action::Balance { provider: provider.clone(), balance, then: Box::new(then) });
    actions
}

fn update(
    provider: &Provider,
    service: Arc<Service>,
    nodes: nodes::Nodes,
    memory: String,
) -> Vec<Action> {
    let (asked, hosts, names) = (service.clone(), nodes.names(), nodes.shown());
    let (is_empty, count) = (nodes.is_empty(), nodes.len());
    let balance = Balance::Update(asked, nodes.all());
    let then = move |said: Result<Option<LoadBalancerStatus>, Failure>| {
        let remember =
            Action::Remember(Memo::new(&memory, Balanced { service: service.clone(), hosts }));
        let told = match said {
            Ok(_) if is_empty => {
                let note = "There are no available nodes for LoadBalancer".to_owned();
                warn(&service, "UnAvailableLoadBalancer", note)
            }
            Ok(_) => tell(&service, "UpdatedLoadBalancer", "Updated load balancer with new hosts"),
            Err(Failure::Elsewhere) => return vec![remember],
            Err(failure) => {
                let note = format!(
                    "Error updating load balancer with new hosts [{names}] [node names limited, total \
                     number of nodes: {count}], error: {failure}"
                );
                let told = warn(&service, "UpdateLoadBalancerFailed", note);
                return vec![told, Action::Again(RETRY)];
            }
        };
        vec![told, remember]
    };
    vec![Action::Balance { provider: provider.clone(), balance, then: Box::new(then) }]
}

/// The service is still there: its balancer goes, then what holds it.
fn remove(provider: &Provider, service: &Arc<Service>, memory: &str) -> Vec<Action> {
    let (of, memory, next) = (service.clone(), memory.to_owned(), provider.clone());
    let looked = move |found: Result<Option<LoadBalancerStatus>, Failure>| {
        let gone = released(&of, &memory);
        match found {
            Ok(None) => gone,
            Ok(Some(_)) => {
                let told = tell(&of, "DeletingLoadBalancer", "Deleting load balancer");
                let (service, balance) = (of.clone(), Balance::Delete(of.clone()));
                let then = move |said: Result<Option<LoadBalancerStatus>, Failure>| match said {
                    Ok(_) | Err(Failure::Elsewhere) => gone,
                    Err(failure) => failed(&service, "failed to delete load balancer", &failure),
                };
                vec![told, Action::Balance { provider: next, balance, then: Box::new(then) }]
            }
            Err(failure) => {
                let what = "failed to check if load balancer exists before cleanup";
                failed(&of, what, &failure)
            }
        }
    };
    let balance = Balance::Get(service.clone());
    vec![Action::Balance { provider: provider.clone(), balance, then: Box::new(looked) }]
}

fn released(service: &Arc<Service>, memory: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    if is_held(service) {
        let mut finalizers = service.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        actions.push(hold(service, &finalizers));
    }
    // Where it is still there.
    actions.extend(status_patch(service, &LoadBalancerStatus::default()));
    actions.push(tell(service, "DeletedLoadBalancer", "Deleted load balancer"));
    actions.push(Action::Remember(Memo::nothing::<Balanced>(memory)));
    actions
}

/// The service is gone.
fn leave(provider: &Provider, service: &Arc<Service>, memory: &str) -> Vec<Action> {
    let (of, memory) = (service.clone(), memory.to_owned());
    let then = move |said: Result<Option<LoadBalancerStatus>, Failure>| match said {
        Ok(_) | Err(Failure::Elsewhere) => vec![
            tell(&of, "DeletedLoadBalancer", "Deleted load balancer"),
            Action::Remember(Memo::nothing::<Balanced>(&memory)),
        ],
        Err(failure) => {
            let note = format!("Error deleting load balancer: {failure}");
            vec![warn(&of, "DeleteLoadBalancerFailed", note), Action::Again(RETRY)]
        }
    };
    let balance = Balance::Delete(service.clone());
    vec![
        tell(service, "DeletingLoadBalancer", "Deleting load balancer"),
        Action::Balance { provider: provider.clone(), balance, then: Box::new(then) },
    ]
}

/// Others' finalizers stay: the patch is of the version that was read.
fn hold(service: &Service, finalizers: &[String]) -> Action {
    let patch = json!({ "metadata": {
        "resourceVersion": service.metadata.resource_version, "finalizers": finalizers } });
    Action::Patch { object: Target::of(service), part: "", patch: Patch::Merge(patch) }
}

fn status_patch(service: &Service, status: &LoadBalancerStatus) -> Option<Action> {
    let old = service.status.as_ref().and_then(|status| status.load_balancer.clone());
    if old.unwrap_or_default() == *status {
        return None;
    }
    let patch = json!({ "status": { "loadBalancer": { "ingress": status.ingress } } });
    Some(Action::Patch { object: Target::of(service), part: "status", patch: Patch::Merge(patch) })
}
