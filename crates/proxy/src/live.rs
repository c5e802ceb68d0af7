//! Keeps the rules as the API has services: at once when nothing happens, together when much does.
use crate::facts::{NodeFacts, ServiceFacts, SliceFacts, local_endpoints, ports};
use crate::health::{self, Health};
use crate::{Config, Network, Proxy, ProxyError, ServicePort};
use api::names::NamespacedName;
use api::selector::field::Selector;
use client::informer::Index;
use client::source::{Collection, Source};
use client::{ApiResource, Change, Context, Informer, Informers, Metrics};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const RETRY: Duration = Duration::from_secs(1);

/// Runs until the context stops. The rules stay, and connections with them.
pub async fn run(
    context: Context,
    source: Arc<dyn Source>,
    config: Config,
) -> Result<(), ProxyError> {
    let mut proxy = Proxy::open(config.clone())?;
    let health = Arc::new(Health::default());
    health::serve(&context, &health, config.healthz, config.metrics).await?;
    let seen = Seen::new(&context, source, &config, &health);
    tokio::select! {
        () = seen.informers.synced() => {}
        () = context.stopped() => return Ok(()),
    }
    let mut zone = String::new();
    let mut last: Option<Instant> = None;
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
        let keys = std::mem::take(&mut *seen.changed.lock());
        let changes: Vec<_> = keys.iter().map(|key| seen.service(key, &zone)).collect();
        let begin = Instant::now();
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
        let took = begin.elapsed().as_secs_f64();
        registry.observe("kubeproxy_sync_proxy_rules_duration_seconds", &[], took);
        for change in changes {
            let count = local_endpoints(&change.ports);
            health.set_service(&context, &change.key, change.health_check, count);
        }
        if let Err(error) = outcome {
            registry.count("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", &[]);
            tracing::error!(%error, "failed to change the rules of services: trying again");
            seen.changed.lock().extend(keys);
            if !context.sleep(RETRY).await {
                return Ok(());
            }
            continue;
        }
        health.updated(context.now());
        let now = context.now().as_second() as f64;
        registry.set("kubeproxy_sync_proxy_rules_last_timestamp_seconds", &[], now);
        tokio::select! {
            () = seen.wake.notified() => {}
            () = context.stopped() => return Ok(()),
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
        let node_name = config.node_name.clone();
        let seen =
            Seen { informers, services, slices, by_service, nodes, node_name, changed, wake };
        seen.services.on_change({
            let tell =
                seen.tell(context, health, "kubeproxy_sync_proxy_rules_service_changes_total");
            move |change| {
                if differs(change) {
                    tell(change.key.clone());
                }
            }
        });
        seen.slices.on_change({
            let tell =
                seen.tell(context, health, "kubeproxy_sync_proxy_rules_endpoint_changes_total");
            move |change| {
                if differs(change) {
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
        metric: &'static str,
    ) -> impl Fn(NamespacedName) + Send + Sync + 'static {
        let (changed, wake) = (self.changed.clone(), self.wake.clone());
        let (context, health) = (context.clone(), health.clone());
        move |key| {
            changed.lock().insert(key);
            health.queued(context.now());
            health.registry.count(metric, &[]);
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
        Changed {
            key: key.clone(),
            ports: ports(&service, slices.iter().copied(), &self.node_name, zone),
            health_check: service.health_check_node_port,
        }
    }
}

fn differs<K: PartialEq>(change: &Change<K>) -> bool {
    change.old.as_deref() != change.new.as_deref()
}
