//! Cluster DNS: names of services, from a snapshot of the cluster; other names from elsewhere.
//!
//! **It may not know** how services are served, nor any other component: it reads Services,
//! EndpointSlices and Namespaces. Semantics are those of the Kubernetes DNS specification 1.1.0,
//! and CoreDNS's where that leaves a choice.
//!
//! ```text
//!  live     informers ──► World, one service at a time
//!  corefile what is done with which names ──► Rules
//!  server   bytes ── wire::Query::read ──► answer(query, world) ── write ──► bytes      (pure)
//!           └ not one of the cluster's ──► forward: cache, or the servers that the rules name
//!  publish  the Service `kube-dns`, and where it leads
//! ```
#![forbid(unsafe_code)]

mod answer;
mod cache;
mod corefile;
mod counts;
mod forward;
#[cfg(test)]
mod hostile;
mod live;
mod publish;
mod server;
#[cfg(test)]
mod tests;
mod wire;
mod world;

pub use answer::{Answer, Code, answer};
pub use corefile::{CorefileError, Given, Rules, SECONDS};
pub use forward::name_servers;
pub use live::run;
pub use publish::publish;
pub use wire::{Data, Kind, Malformed, Query, Record, question};
pub use world::{Backend, Port, Service, World};

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::sync::watch;

/// What the server is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it listens, by UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// `cluster.local`.
    pub domain: String,
    /// How long clients may remember names of the cluster, in seconds.
    pub seconds: u32,
    /// Who knows all other names; nobody: they are refused.
    pub upstreams: Vec<SocketAddr>,
    /// A Corefile, in place of the usual rules.
    pub corefile: Option<String>,
    /// The ConfigMap (namespace and name) whose `Corefile` counts instead while there is one.
    pub config_map: Option<(String, String)>,
    /// Says so when it answers for the whole cluster.
    pub is_up: watch::Sender<bool>,
    /// Whose pod a client is, where somebody knows.
    pub clients: Clients,
    /// Sockets for each address: as many as there are cores to use.
    pub sockets: usize,
    /// Where `/health`, `/ready` and `/metrics` are served, if anywhere (CoreDNS's are :8080, :8181
    /// and :9153).
    pub health: Option<SocketAddr>,
    pub ready: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
}

impl Config {
    pub fn new(listen: Vec<SocketAddr>) -> Config {
        Config {
            listen,
            domain: "cluster.local".to_owned(),
            seconds: SECONDS,
            upstreams: Vec::new(),
            corefile: None,
            config_map: None,
            clients: Clients::default(),
            is_up: watch::Sender::new(false),
            sockets: std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4)),
            health: None,
            ready: None,
            metrics: None,
        }
    }
}

/// The namespace of the pod that has an address. Who knows it can answer a search in one round.
#[derive(Clone)]
pub struct Clients(pub Arc<dyn Fn(IpAddr) -> Option<String> + Send + Sync>);

impl Default for Clients {
    fn default() -> Clients {
        Clients(Arc::new(|_| None))
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clients")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    #[error(transparent)]
    Corefile(#[from] CorefileError),
    #[error("failed to listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
}
