//! The server itself: the handle that goes with every request, and holds what each layer keeps (the store
//! and a watch cache for every resource that was asked for, who may what, whom to ask, what is admitted).
//!
//! It is the one thing that every layer may name, and it knows them all, for it is put together of their
//! parts. It decides nothing.
use crate::admission::Chain;
use crate::admission::policy::Policies;
use crate::admission::webhook::Hooks;
use crate::answer::budget::Budget;
use crate::doors::debug::Debug;
use crate::doors::documents;
use crate::extend::backend::Backends;
use crate::extend::conversion::Converters;
use crate::extend::counts;
use crate::extend::definitions::Memo;
use crate::ground::tls;
use crate::ground::tunnels::Tunnels;
use crate::guard::audit::Audit;
use crate::guard::authn::Authentication;
use crate::guard::authz::Authorizer;
use crate::guard::authz::node::graph;
use crate::guard::authz::rbac::Rbac;
use crate::guard::fairness::Fairness;
use crate::guard::in_flight::InFlight;
use crate::guard::service_account::Issuer;
use crate::pass::aggregation::Aggregation;
use crate::state::encryption::Encryption;
use crate::state::keeping::EventLeases;
use crate::state::keys::{range, status_of};
use crate::state::metrics::Metrics;
use crate::state::openapi::OpenApi;
use crate::state::unreadable::Unreadable;
use api::group::GroupResource;
use api::kinds::{Registry, Resource};
use api::status::Status;
use client::zpages::{Flags, Zpages};
use jiff::Timestamp;
use rustls::ClientConfig;
use rustls::client::ResolvesClientCert;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use store::cache::{CacheOptions, WatchCache, Windows};
use store::{RangeRequest, Store};
use tokio::sync::{Mutex, OnceCell, watch};

/// A handle on the server; clones share it.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

/// What a server is made of.
pub struct Options {
    pub store: Store,
    /// What is done to values before they are stored.
    pub encryption: Arc<Encryption>,
    /// What is recorded of requests, and where.
    pub audit: Audit,
    /// How the server proves itself to kubelets, and they to it.
    pub kubelet_tls: Arc<ClientConfig>,
    /// How the server proves to those beside it that it may speak for its clients.
    pub proxy_client: Option<Arc<dyn ResolvesClientCert>>,
    /// By which of their addresses kubelets are called: the first type that a node has.
    pub kubelet_address_types: Vec<String>,
    /// Who signs the tokens of service accounts.
    pub issuer: Issuer,
    /// Who else is believed about who somebody is.
    pub authentication: Authentication,
    /// Who decides what somebody may do, in this order.
    pub authorizers: Vec<Authorizer>,
    /// The CA of client certificates, as others shall know it.
    pub client_ca: String,
    /// Where services get their addresses from, in a new cluster.
    pub service_cidrs: Vec<String>,
    /// The admission plugins that run.
    pub admission: Chain,
    /// How long events are kept.
    pub event_ttl: Duration,
    /// How many requests that only read, and that write, may be under way at once; 0: no limit.
    pub max_reads: usize,
    pub max_writes: usize,
    /// Whether those seats are shared by priority, or first come, first served.
    pub priority_and_fairness: bool,
    /// What lists may hold at once, in bytes, until they are sent.
    pub list_bytes: u64,
    /// How long a request may take that is no watch or stream.
    pub request_timeout: Duration,
    /// What `/debug` may do, where it is served.
    pub debug: Option<Debug>,
    /// What `/flagz` says.
    pub flags: Flags,
}

/// Upstream's order of preference.
const KUBELET_ADDRESS_TYPES: [&str; 5] =
    ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];

impl Options {
    /// Upstream's defaults.
    pub fn new(store: Store, issuer: Issuer) -> Result<Options, tls::Error> {
        Ok(Options {
            store,
            encryption: Arc::default(),
            audit: Audit::default(),
            issuer,
            authentication: Authentication::default(),
            authorizers: vec![Authorizer::Node, Authorizer::Rbac],
            kubelet_tls: tls::kubelet(None, None)?,
            proxy_client: None,
            kubelet_address_types: KUBELET_ADDRESS_TYPES.map(str::to_owned).to_vec(),
            client_ca: String::new(),
            service_cidrs: vec!["10.96.0.0/12".into()],
            admission: Chain::default(),
            event_ttl: Duration::from_secs(60 * 60),
            max_reads: 400,
            max_writes: 200,
            priority_and_fairness: true,
            list_bytes: Budget::of_machine(),
            request_timeout: Duration::from_secs(60),
            debug: None,
            flags: Flags::new(),
        })
    }
}

/// What the server remembers of those others.
#[derive(Default)]
pub struct Extend {
    pub backends: Backends,
    /// The webhooks that are asked now.
    pub hooks: Hooks,
    /// What is counted about those who are asked.
    pub counts: client::Registry,
    /// The webhooks of definitions.
    pub converters: Converters,
    /// What they made of objects.
    pub converted: Memo,
    /// The servers that answer for groups of their own.
    pub aggregation: Aggregation,
}

struct Shared {
    store: Store,
    encryption: Arc<Encryption>,
    audit: Arc<Audit>,
    event_leases: EventLeases,
    kubelet_tls: Arc<ClientConfig>,
    /// Ways to kubelets that cannot be dialled.
    tunnels: Tunnels,
    proxy_client: Option<Arc<dyn ResolvesClientCert>>,
    kubelet_address_types: Vec<String>,
    issuer: Issuer,
    authentication: Authentication,
    client_ca: String,
    service_cidrs: Vec<String>,
    authorizers: Vec<Authorizer>,
    rbac: Rbac,
    node_graph: graph::Shared,
    admission: Chain,
    extend: Extend,
    policies: Policies,
    in_flight: InFlight,
    fairness: Option<Arc<Fairness>>,
    budget: Budget,
    bodies: Budget,
    unreadable: Arc<Unreadable>,
    windows: Arc<Windows>,
    metrics: Metrics,
    openapi: OpenApi,
    request_timeout: Duration,
    debug: Option<Debug>,
    zpages: Zpages,
    /// Replaced as a whole when a definition changes.
    registry: RwLock<Arc<Registry>>,
    registry_generation: watch::Sender<u64>,
    /// By storage prefix: two versions of a resource share one.
    caches: Mutex<HashMap<&'static str, Arc<OnceCell<WatchCache>>>>,
    /// True once the server is told to stop: readiness falls, watches end.
    stopping: watch::Sender<bool>,
}

impl ApiServer {
    pub fn new(options: Options) -> Self {
        let seats = u32::try_from(options.max_reads + options.max_writes).unwrap_or(u32::MAX);
        // Whoever has waited for a quarter of his time would hardly be served within the rest.
        let fair = || Fairness::new(seats, options.request_timeout / 4);
        let shared = Shared {
            store: options.store.with_transformer(options.encryption.clone()),
            encryption: options.encryption,
            audit: Arc::new(options.audit),
            event_leases: EventLeases::new(options.event_ttl),
            kubelet_tls: options.kubelet_tls,
            tunnels: Tunnels::default(),
            proxy_client: options.proxy_client,
            kubelet_address_types: options.kubelet_address_types,
            issuer: options.issuer,
            authentication: options.authentication,
            client_ca: options.client_ca,
            service_cidrs: options.service_cidrs,
            authorizers: options.authorizers,
            rbac: Rbac::default(),
            node_graph: graph::Shared::default(),
            admission: options.admission,
            extend: Extend {
                counts: client::Registry::with_bounds(counts::BOUNDS),
                ..Extend::default()
            },
            policies: Policies::default(),
            in_flight: InFlight::new(options.max_reads, options.max_writes),
            budget: Budget::new(options.list_bytes, options.request_timeout / 4),
            bodies: Budget::new(options.list_bytes, options.request_timeout / 4),
            unreadable: Arc::default(),
            windows: Arc::default(),
            fairness: (options.priority_and_fairness && seats > 0).then(fair),
            metrics: Metrics::default(),
            openapi: OpenApi::default(),
            request_timeout: options.request_timeout,
            debug: options.debug,
            zpages: Zpages::new("apiserver", documents::PATHS, options.flags, Timestamp::now()),
            registry: RwLock::default(),
            registry_generation: watch::Sender::new(0),
            caches: Mutex::default(),
            stopping: watch::Sender::new(false),
        };
        ApiServer { shared: Arc::new(shared) }
    }

    /// Serves other rows from now on, and lets go of what only those were for that are gone.
    pub async fn swap_registry(&self, registry: Registry) {
        let generation = registry.generation();
        let storages: HashSet<&str> = registry.rows().iter().map(|row| row.storage).collect();
        *self.shared.registry.write().unwrap_or_else(PoisonError::into_inner) = registry.into();
        self.shared.caches.lock().await.retain(|storage, _| storages.contains(storage));
        self.shared.registry_generation.send_replace(generation);
    }

    /// Tells of every change of the registry, by its generation.
    pub fn registry_changes(&self) -> watch::Receiver<u64> {
        self.shared.registry_generation.subscribe()
    }

    /// The rows that are served now: to be asked for once a request.
    pub fn registry(&self) -> Arc<Registry> {
        self.shared.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn issuer(&self) -> &Issuer {
        &self.shared.issuer
    }

    pub fn authentication(&self) -> &Authentication {
        &self.shared.authentication
    }

    pub fn client_ca(&self) -> &str {
        &self.shared.client_ca
    }

    pub fn service_cidrs(&self) -> &[String] {
        &self.shared.service_cidrs
    }

    pub fn authorizers(&self) -> &[Authorizer] {
        &self.shared.authorizers
    }

    pub fn node_graph(&self) -> &graph::Shared {
        &self.shared.node_graph
    }

    pub fn rbac(&self) -> &Rbac {
        &self.shared.rbac
    }

    pub fn admission(&self) -> &Chain {
        &self.shared.admission
    }

    /// Those beside this server who have a say in its API.
    pub fn extend(&self) -> &Extend {
        &self.shared.extend
    }

    pub fn policies(&self) -> &Policies {
        &self.shared.policies
    }

    pub fn in_flight(&self) -> &InFlight {
        &self.shared.in_flight
    }

    /// Who has to wait for whom; nothing if that is first come, first served.
    pub fn fairness(&self) -> Option<&Arc<Fairness>> {
        self.shared.fairness.as_ref()
    }

    pub fn unreadable(&self) -> &Arc<Unreadable> {
        &self.shared.unreadable
    }

    /// For lists.
    pub fn budget(&self) -> &Budget {
        &self.shared.budget
    }

    /// For what clients send.
    pub fn bodies(&self) -> &Budget {
        &self.shared.bodies
    }

    pub fn openapi(&self) -> &OpenApi {
        &self.shared.openapi
    }

    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    pub fn request_timeout(&self) -> Duration {
        self.shared.request_timeout
    }

    pub fn debug(&self) -> Option<&Debug> {
        self.shared.debug.as_ref()
    }

    /// What the server says of itself.
    pub fn zpages(&self) -> &Zpages {
        &self.shared.zpages
    }

    /// How many objects there are of each resource, whether or not anybody has asked for them.
    pub async fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for resource in self.registry().rows().iter().filter(|row| row.is_stored()) {
            // By its home, whatever other versions show it as.
            let group = resource.stored_group_kind().group;
            let name = GroupResource::new(group, resource.plural).to_string();
            if counts.contains_key(&name) {
                continue;
            }
            let count = match self.known(resource).await {
                Some((count, _)) => count,
                None => {
                    let all = RangeRequest::new(range(resource, "")).limit(1).counted();
                    // The store that does not answer has a health check of its own.
                    let Ok(found) = self.shared.store.untransformed().range(all).await else {
                        continue;
                    };
                    found.count
                }
            };
            counts.insert(name, count);
        }
        counts
    }

    /// How many objects a resource has and what they weigh, if anybody has asked for them yet.
    pub async fn known(&self, resource: &Resource) -> Option<(usize, u64)> {
        let cell = self.shared.caches.lock().await.get(resource.storage)?.clone();
        let cache = cell.get()?;
        Some((cache.len(), cache.bytes()))
    }

    pub fn kubelet_tls(&self) -> Arc<ClientConfig> {
        self.shared.kubelet_tls.clone()
    }

    pub fn proxy_client(&self) -> Option<Arc<dyn ResolvesClientCert>> {
        self.shared.proxy_client.clone()
    }

    pub fn kubelet_address_types(&self) -> &[String] {
        &self.shared.kubelet_address_types
    }

    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    pub fn tunnels(&self) -> &Tunnels {
        &self.shared.tunnels
    }

    pub fn audit(&self) -> &Arc<Audit> {
        &self.shared.audit
    }

    pub fn encryption(&self) -> &Encryption {
        &self.shared.encryption
    }

    pub fn event_leases(&self) -> &EventLeases {
        &self.shared.event_leases
    }

    /// The resource's cache, started when it is first asked for: an idle resource costs nothing.
    pub async fn cache(&self, resource: &Resource) -> Result<WatchCache, Status> {
        let cell = self.shared.caches.lock().await.entry(resource.storage).or_default().clone();
        let start = || async {
            let prefix = resource.key_prefix();
            let windows = self.shared.windows.clone();
            let mut options = CacheOptions { windows, ..CacheOptions::new(prefix.as_str()) };
            if let Some(indexer) = crate::state::selection::indexer(resource) {
                options.indexer = indexer;
            }
            WatchCache::start(self.shared.store.clone(), options).await
        };
        cell.get_or_try_init(start).await.cloned().map_err(|error| status_of(error, resource))
    }

    /// Asks the server to stop: no new work, watches end.
    pub fn stop(&self) {
        self.shared.stopping.send_replace(true);
    }

    pub fn is_stopping(&self) -> bool {
        *self.shared.stopping.borrow()
    }

    /// Resolves when the server is asked to stop.
    pub async fn stopping(&self) {
        let mut stopping = self.shared.stopping.subscribe();
        // The sender lives as long as the server.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}
