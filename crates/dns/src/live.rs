//! The world, kept as the API has it.
use crate::server::{Server, Sockets};
use crate::world::{self, Backend, Port};
use crate::{Config, DnsError, Given, Rules};
use api::codec::DecodeError;
use api::object::{Keep, Object};
use api::selector::field::Selector;
use client::pages::{self, Page};
use client::source::{Collection, Source};
use client::{ApiResource, Context, Informer, Informers, NamespacedName};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use tokio::net::TcpListener;

/// Serves until the context stops.
pub async fn run(
    context: Context,
    source: Arc<dyn Source>,
    config: Config,
) -> Result<(), DnsError> {
    let sockets = bind(&config)?;
    serve(context, source, config, sockets).await
}

pub fn bind(config: &Config) -> Result<Vec<Sockets>, DnsError> {
    config.listen.iter().map(|address| Sockets::bind(*address, config.sockets)).collect()
}

pub async fn serve(
    context: Context,
    source: Arc<dyn Source>,
    config: Config,
    sockets: Vec<Sockets>,
) -> Result<(), DnsError> {
    let usual = usual(&config)?;
    let server = Server::new(&context, &config, usual.clone());
    let pods = Arc::new(PodWatch {
        informers: Informers::new(&context, source.clone()),
        server: server.clone(),
        started: OnceLock::new(),
    });
    pods.attend(&usual);
    serve_pages(&context, &config, &server).await?;
    let informers = Informers::new(&context, source.clone());
    watch(&informers, &server);
    // Not among the others: who may not read it serves all the same.
    let _corefile = follow_corefile(&context, source, &config, usual, &server, pods);
    sockets.into_iter().for_each(|sockets| sockets.serve(&context, &server));
    tokio::select! {
        () = informers.synced() => {}
        () = context.stopped() => return Ok(()),
    }
    server.synced.store(true, Ordering::Relaxed);
    config.is_up.send_replace(true);
    context.stopped().await;
    Ok(())
}

/// The rules while no ConfigMap has any.
fn usual(config: &Config) -> Result<Rules, DnsError> {
    match &config.corefile {
        Some(text) => parse(text, &BTreeMap::new(), config),
        None => Ok(Rules::usual(config.seconds, config.upstreams.clone())),
    }
}

fn parse(text: &str, files: &BTreeMap<String, String>, config: &Config) -> Result<Rules, DnsError> {
    let servers = config.upstreams.iter().map(|server| format!("nameserver {}\n", server.ip()));
    let resolv_conf: String = servers.collect();
    Ok(Rules::parse(text, &Given { domain: &config.domain, resolv_conf: &resolv_conf, files })?)
}

/// A ConfigMap's Corefile, if it has one, and what that may import.
struct Corefile {
    text: Option<String>,
    files: BTreeMap<String, String>,
}

impl Keep for Corefile {
    fn keep(object: &Arc<Object>) -> Result<Arc<Corefile>, DecodeError> {
        let map: ConfigMap = object.decode()?;
        let mut files = map.data.unwrap_or_default();
        Ok(Arc::new(Corefile { text: files.remove("Corefile"), files }))
    }
}

/// What is not understood leaves the rules as they were.
fn follow_corefile(
    context: &Context,
    source: Arc<dyn Source>,
    config: &Config,
    usual: Rules,
    server: &Arc<Server>,
    pods: Arc<PodWatch>,
) -> Option<Informer<Corefile>> {
    let (namespace, name) = config.config_map.clone()?;
    let only = Selector::equals("metadata.name", &name);
    let of = Collection::all(ApiResource::of::<ConfigMap>()).in_namespace(&namespace);
    let maps = Informer::<Corefile>::start(context, source, of.with_fields(only));
    let (server, config) = (server.clone(), config.clone());
    let tasks = tokio::runtime::Handle::current();
    maps.on_change(move |change| {
        // Who looks for loops does so among the others.
        let _entered = tasks.enter();
        let written = change.new.as_ref().and_then(|map| Some((map.text.as_ref()?, &map.files)));
        let read = |(text, files): (&String, _)| parse(text, files, &config);
        match written.map_or_else(|| Ok(usual.clone()), read) {
            Ok(rules) => {
                tracing::info!(from_config_map = written.is_some(), "the rules of names");
                pods.attend(&rules);
                server.set_rules(rules);
            }
            Err(error) => tracing::error!(%error, "the rules of names stay as they were"),
        }
    });
    Some(maps)
}

/// Pods are followed from the moment that somebody wants their names verified.
struct PodWatch {
    informers: Informers,
    server: Arc<Server>,
    started: OnceLock<Informer<PodFacts>>,
}

/// Where a pod is that has not ended.
#[derive(PartialEq)]
struct PodFacts(Vec<IpAddr>);

impl Keep for PodFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<PodFacts>, DecodeError> {
        let status = object.decode::<Pod>()?.status.unwrap_or_default();
        let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let all = status.pod_ips.unwrap_or_default();
        let all = all.iter().filter(|_| !has_ended).filter_map(|one| one.ip.parse().ok());
        Ok(Arc::new(PodFacts(all.collect())))
    }
}

impl PodWatch {
    fn attend(&self, rules: &Rules) {
        if !rules.verify_pods() {
            return;
        }
        self.started.get_or_init(|| {
            let pods = self.informers.keep(Collection::all(ApiResource::of::<Pod>()));
            let server = self.server.clone();
            pods.on_change(move |change| {
                let of = |pod: &Option<Arc<PodFacts>>| {
                    pod.as_ref().map_or(Vec::new(), |pod| pod.0.clone())
                };
                server.world.write().set_pod(&change.key, &of(&change.old), &of(&change.new));
            });
            let (waiting, server) = (pods.clone(), self.server.clone());
            tokio::spawn(async move {
                waiting.synced().await;
                server.pods_synced.store(true, Ordering::Relaxed);
            });
            pods
        });
    }
}

/// What DNS wants to know of a service.
struct ServiceFacts(world::Service);

impl Keep for ServiceFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<ServiceFacts>, DecodeError> {
        Ok(Arc::new(ServiceFacts(service(&object.decode::<Service>()?))))
    }
}

/// Of a slice: whose it is, and who can be reached.
struct SliceFacts {
    service: String,
    backends: Vec<Backend>,
}

impl Keep for SliceFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<SliceFacts>, DecodeError> {
        Ok(Arc::new(slice(&object.decode::<EndpointSlice>()?)))
    }
}

/// A namespace is there.
struct Exists;

impl Keep for Exists {
    fn keep(_: &Arc<Object>) -> Result<Arc<Exists>, DecodeError> {
        Ok(Arc::new(Exists))
    }
}

fn service(service: &Service) -> world::Service {
    let spec = service.spec.clone().unwrap_or_default();
    let external_name = match spec.type_.as_deref() {
        Some("ExternalName") => spec.external_name.clone(),
        _ => None,
    };
    let ips = spec.cluster_ips.filter(|ips| !ips.is_empty());
    let ips = ips.unwrap_or_else(|| spec.cluster_ip.into_iter().collect());
    let ports = spec.ports.unwrap_or_default().into_iter().map(|port| Port {
        name: port.name.unwrap_or_default(),
        protocol: port.protocol.unwrap_or_else(|| "TCP".to_owned()).to_ascii_lowercase(),
        number: port.port as u16,
    });
    world::Service {
        // "None" is no address.
        cluster_ips: ips.iter().filter_map(|ip| ip.parse().ok()).collect(),
        external_name: external_name.map(|name| name.trim_end_matches('.').to_owned()),
        ports: ports.collect(),
        backends: Vec::new(),
    }
}

fn slice(slice: &EndpointSlice) -> SliceFacts {
    let ports = slice.ports.iter().flatten().filter_map(|port| {
        Some(Port {
            name: port.name.clone().unwrap_or_default(),
            protocol: port.protocol.as_deref().unwrap_or("TCP").to_ascii_lowercase(),
            number: port.port? as u16,
        })
    });
    let ports: Arc<[Port]> = ports.collect();
    let is_ready = |conditions: Option<&k8s_openapi::api::discovery::v1::EndpointConditions>| {
        conditions.and_then(|conditions| conditions.ready) != Some(false)
    };
    let ready = slice.endpoints.iter().flatten().filter(|one| is_ready(one.conditions.as_ref()));
    let backends = ready.flat_map(|endpoint| {
        let hostname = endpoint.hostname.clone().filter(|name| !name.is_empty());
        let addresses = endpoint.addresses.iter().filter_map(|address| address.parse().ok());
        let ports = ports.clone();
        addresses.map(move |address| Backend {
            hostname: hostname.clone(),
            address,
            ports: ports.clone(),
        })
    });
    let label = |labels: &BTreeMap<String, String>| labels.get(SERVICE_NAME).cloned();
    let labels = slice.metadata.labels.as_ref();
    SliceFacts { service: labels.and_then(label).unwrap_or_default(), backends: backends.collect() }
}

const SERVICE_NAME: &str = "kubernetes.io/service-name";

fn watch(informers: &Informers, server: &Arc<Server>) {
    let services = informers.keep::<ServiceFacts>(Collection::all(ApiResource::of::<Service>()));
    let slices = informers.keep::<SliceFacts>(Collection::all(ApiResource::of::<EndpointSlice>()));
    let namespaces = informers.keep::<Exists>(Collection::all(ApiResource::of::<Namespace>()));
    let index = slices.index("service", |key, slice: &SliceFacts| {
        vec![NamespacedName::new(&key.namespace, &slice.service).to_string()]
    });
    namespaces.on_change({
        let server = server.clone();
        move |change| server.world.write().set_namespace(&change.key.name, change.new.is_some())
    });
    // A change of either makes its one service anew. Each handler reads both stores, under no lock
    // of its own: whichever of two changes is told last sees the other.
    let renew = {
        let (services, slices, server) = (services.clone(), slices.clone(), server.clone());
        Arc::new(move |key: &NamespacedName| {
            let mut world = server.world.write();
            let service = services.get(key).map(|facts| {
                let read = slices.read();
                let whole = key.to_string();
                let of = read.by(index, &whole);
                let mut backends: Vec<Backend> =
                    of.flat_map(|(_, slice)| slice.backends.iter().cloned()).collect();
                // Two slices may name one endpoint while it moves between them.
                backends.sort_by(|one, other| {
                    (one.address, &one.hostname).cmp(&(other.address, &other.hostname))
                });
                backends.dedup();
                world::Service { backends, ..facts.0.clone() }
            });
            world.set_service(&key.namespace, &key.name, service);
        })
    };
    services.on_change({
        let renew = renew.clone();
        move |change| renew(&change.key)
    });
    slices.on_change(move |change| {
        let owners = change.old.iter().chain(&change.new).map(|slice| &slice.service);
        let mut owners: Vec<_> = owners.filter(|owner| !owner.is_empty()).collect();
        owners.dedup();
        owners.iter().for_each(|owner| renew(&NamespacedName::new(&change.key.namespace, owner)));
    });
}

async fn serve_pages(
    context: &Context,
    config: &Config,
    server: &Arc<Server>,
) -> Result<(), DnsError> {
    let pages =
        [("/health", config.health), ("/ready", config.ready), ("/metrics", config.metrics)];
    for (path, address) in pages {
        let Some(address) = address else { continue };
        let listener = listen(address).await?;
        let server = server.clone();
        tokio::spawn(pages::serve(context.clone(), listener, move |asked| {
            match asked.path == path {
                false => Page::not_found(),
                true => match path {
                    "/health" => Page::ok("OK"),
                    "/ready" if server.synced.load(Ordering::Relaxed) => Page::ok("OK"),
                    "/ready" => Page::new(503, pages::TEXT, "kubernetes"),
                    _ => Page::new(200, pages::METRICS, server.counts.text(&server.forward)),
                },
            }
        }));
    }
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, DnsError> {
    TcpListener::bind(address).await.map_err(|source| DnsError::Listen { address, source })
}
