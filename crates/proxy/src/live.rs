//! Keeps the rules as the API has services: at once when nothing happens, together when much does.
use crate::counts::Of;
use crate::facts::{NodeFacts, ServiceFacts, SliceFacts, local_endpoints, ports};
use crate::health::{self, Health};
use crate::{Config, Endpoint, Local, Network, Proxy, ProxyError, ServicePort};
use api::names::NamespacedName;
use api::selector::field::Selector;
use client::informer::Index;
use client::source::{Collection, Source};
use client::{ApiResource, Change, Context, Informer, Informers};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const RETRY: Duration = Duration::from_secs(1);
/// How often somebody looks whether the rules are still there, and at which of these looks wholly.
const LOOK: Duration = Duration::from_secs(2);
const WHOLLY: u64 = 15;

/// Runs until the context stops. The rules stay, and connections with them.
pub async fn run(
    context: Context,
    source: Arc<dyn Source>,
    config: Config,
) -> Result<(), ProxyError> {
    let mut proxy = Proxy::open(config.clone())?;
    let health = Arc::new(Health::default());
    let flags = config.flags.clone();
    health::serve(&context, &health, config.healthz, config.metrics, flags).await?;
    let seen = Seen::new(&context, source, &config, &health);
    tokio::select! {
        () = seen.informers.synced() => {}
        () = context.stopped() => return Ok(()),
    }
    if let Some(local) = &config.local {
        let (mut at, key, changed, wake) =
            (local.at.clone(), local.service.clone(), seen.changed.clone(), seen.wake.clone());
        tokio::spawn(async move {
            while at.changed().await.is_ok() {
                changed.lock().insert(key.clone());
                wake.notify_one();
            }
        });
    }
    let mut zone = String::new();
    let mut last: Option<Instant> = None;
    let mut looks = 0_u64;
    loop {
        // What happens while the rules are changed waits in the set.
        if let Some(rest) = last.and_then(|last| config.min_sync_period.checked_sub(last.elapsed()))
            && !context.sleep(rest).await
        {
            return Ok(());
        }
        let node = seen.node();
        health.set_eligible(node.as_ref().is_none_or(|node| node.is_eligible));
        let node = node.map(|node| (*node).clone()).unwrap_or_default();
        if config.primary_node_ports {
            proxy.set_node_port_addresses(node_port_addresses(&config, &node.addresses));
        }
        if zone != node.zone {
            zone = node.zone;
            seen.wake_all();
        }
        let since = health.counts.taken(&health.registry);
        let keys = std::mem::take(&mut *seen.changed.lock());
        let changes: Vec<_> = keys.iter().map(|key| seen.service(key, &zone)).collect();
        let work = move || {
            let outcome = proxy.apply(&changes.iter().map(Changed::ports).collect::<Vec<_>>());
            (proxy, changes, outcome)
        };
        let Ok((back, changes, outcome)) = tokio::task::spawn_blocking(work).await else {
            return Ok(());
        };
        proxy = back;
        last = Some(Instant::now());
        let registry = &health.registry;
        health.counts.synced(registry, proxy.synced(), &since, context.now());
        let services = changes.iter().map(|change| (&change.key, change.ports.as_slice()));
        health.counts.changed(registry, services);
        for change in changes {
            let count = local_endpoints(&change.ports);
            health.set_service(&context, &change.key, change.health_check, count);
        }
        if let Err(error) = outcome {
            tracing::error!(%error, "failed to change the rules of services: trying again");
            seen.changed.lock().extend(keys);
            if !context.sleep(RETRY).await {
                return Ok(());
            }
            continue;
        }
        health.updated(context.now());
        let woken = async {
            tokio::select! {
                () = seen.wake.notified() => {}
                () = context.stopped() => {}
            }
        };
        tokio::pin!(woken);
        // Somebody else may take the rules away.
        while tokio::time::timeout(LOOK, &mut woken).await.is_err() {
            looks += 1;
            let wholly = looks.is_multiple_of(WHOLLY);
            let look = move || {
                let found = proxy.is_whole(wholly);
                (proxy, found)
            };
            let Ok((back, found)) = tokio::task::spawn_blocking(look).await else {
                return Ok(());
            };
            proxy = back;
            match found {
                Ok(true) => {}
                Ok(false) => {
                    tracing::warn!("somebody changed the packet rules of services: they are back");
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to look at the packet rules of services");
                }
            }
        }
        if context.is_stopped() {
            return Ok(());
        }
    }
}

/// Node ports are on the node's own addresses, and on those that were named beside them.
fn node_port_addresses(config: &Config, own: &[Network]) -> Vec<Network> {
    /// No packet is for it: a node that says no address yet has no node ports, not all of them.
    const NOWHERE: Network = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 32);
    let mut all = config.node_port_addresses.clone();
    all.extend(own);
    if all.is_empty() { vec![NOWHERE] } else { all }
}

/// A service as it is to be.
struct Changed {
    key: NamespacedName,
    ports: Vec<ServicePort>,
    health_check: Option<u16>,
}

impl Changed {
    fn ports(&self) -> (NamespacedName, Vec<ServicePort>) {
        (self.key.clone(), self.ports.clone())
    }
}

/// What the API says, and what of it has changed.
struct Seen {
    informers: Informers,
    services: Informer<ServiceFacts>,
    slices: Informer<SliceFacts>,
    by_service: Index,
    nodes: Informer<NodeFacts>,
    node_name: String,
    local: Option<Local>,
    changed: Arc<Mutex<BTreeSet<NamespacedName>>>,
    wake: Arc<Notify>,
}

impl Seen {
    fn new(
        context: &Context,
        source: Arc<dyn Source>,
        config: &Config,
        health: &Arc<Health>,
    ) -> Seen {
        let informers = Informers::new(context, source);
        let services =
            informers.keep::<ServiceFacts>(Collection::all(ApiResource::of::<Service>()));
        let slices = Collection::all(ApiResource::of::<EndpointSlice>());
        let slices = informers.keep::<SliceFacts>(slices);
        let own = Selector::equals("metadata.name", &config.node_name);
        let own = Collection::all(ApiResource::of::<Node>()).with_fields(own);
        let nodes = informers.keep::<NodeFacts>(own);
        let by_service = slices.index("service", |key, slice: &SliceFacts| {
            vec![NamespacedName::new(&key.namespace, &slice.service).to_string()]
        });
        let (changed, wake) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::new(Notify::new()));
        let (node_name, local) = (config.node_name.clone(), config.local.clone());
        let seen = Seen {
            informers,
            services,
            slices,
            by_service,
            nodes,
            node_name,
            local,
            changed,
            wake,
        };
        seen.services.on_change({
            let tell = seen.tell(context, health, Of::Services);
            move |change| {
                if differs(change) {
                    tell(change.key.clone());
                }
            }
        });
        seen.slices.on_change({
            let tell = seen.tell(context, health, Of::Endpoints);
            let health = health.clone();
            move |change| {
                if differs(change) {
                    // What there was at the start happened before anybody was here.
                    let new = change.new.as_ref().filter(|_| !change.initial);
                    if let Some((new, then)) = new.and_then(|new| Some((new, new.happened?))) {
                        health.counts.happened(new.family(), then);
                    }
                    let owners = change.old.iter().chain(&change.new).map(|slice| &slice.service);
                    let owners = owners.filter(|owner| !owner.is_empty());
                    owners
                        .for_each(|owner| tell(NamespacedName::new(&change.key.namespace, owner)));
                }
            }
        });
        let wake = seen.wake.clone();
        // A node says every few minutes how it is.
        seen.nodes.on_change(move |change| {
            if differs(change) {
                wake.notify_one();
            }
        });
        seen
    }

    fn tell(
        &self,
        context: &Context,
        health: &Arc<Health>,
        of: Of,
    ) -> impl Fn(NamespacedName) + Send + Sync + 'static {
        let (changed, wake) = (self.changed.clone(), self.wake.clone());
        let (context, health) = (context.clone(), health.clone());
        move |key| {
            health.queued(context.now());
            health.counts.queued(&health.registry, of, &key, context.now());
            changed.lock().insert(key);
            wake.notify_one();
        }
    }

    fn wake_all(&self) {
        let all: Vec<_> = self.services.read().iter().map(|(key, _)| key.clone()).collect();
        self.changed.lock().extend(all);
    }

    fn node(&self) -> Option<Arc<NodeFacts>> {
        self.nodes.get(&NamespacedName::new("", &self.node_name))
    }

    fn service(&self, key: &NamespacedName, zone: &str) -> Changed {
        let service = self.services.get(key).unwrap_or_default();
        let read = self.slices.read();
        let slices: Vec<_> =
            read.by(self.by_service, &key.to_string()).map(|(_, one)| &**one).collect();
        let mut ports = ports(&service, slices.iter().copied(), &self.node_name, zone);
        if let Some(local) = self.local.as_ref().filter(|local| local.service == *key) {
            here(&mut ports, &local.at.borrow());
        }
        Changed { key: key.clone(), ports, health_check: service.health_check_node_port }
    }
}

/// Leads all ports to these, of the families that there are.
fn here(ports: &mut [ServicePort], at: &[SocketAddr]) {
    for port in ports {
        for is_ipv4 in [true, false] {
            let own: Vec<&SocketAddr> = at.iter().filter(|one| one.is_ipv4() == is_ipv4).collect();
            if own.is_empty() {
                continue;
            }
            port.endpoints.retain(|one| one.address.is_ipv4() != is_ipv4);
            port.endpoints.extend(own.into_iter().map(|one| Endpoint {
                address: one.ip(),
                port: one.port(),
                ready: true,
                serving: true,
                terminating: false,
                local: true,
                for_node: None,
                for_zone: None,
            }));
        }
    }
}

fn differs<K: PartialEq>(change: &Change<K>) -> bool {
    change.old.as_deref() != change.new.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_is_served_here_leads_nowhere_else() {
        let endpoint = |address: &str| Endpoint {
            address: address.parse().unwrap(),
            port: 53,
            ready: true,
            serving: true,
            terminating: false,
            local: false,
            for_node: None,
            for_zone: None,
        };
        let port = ServicePort {
            endpoints: vec![endpoint("10.1.0.1"), endpoint("10.1.1.1"), endpoint("fd00::1")],
            ..ServicePort::default()
        };
        let led = |at: &[&str]| {
            let mut ports = [port.clone()];
            let at: Vec<SocketAddr> = at.iter().map(|one| one.parse().unwrap()).collect();
            here(&mut ports, &at);
            let led = ports[0].endpoints.iter().map(|one| format!("{}:{}", one.address, one.port));
            led.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(led(&[]), "10.1.0.1:53 10.1.1.1:53 fd00::1:53");
        assert_eq!(led(&["10.1.2.1:1053"]), "fd00::1:53 10.1.2.1:1053", "the other family stays");
        assert_eq!(led(&["10.1.2.1:53", "[fd00:2::1]:53"]), "10.1.2.1:53 fd00:2::1:53");
    }
}
