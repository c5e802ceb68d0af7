//! Cluster DNS: names of services, from a snapshot of the cluster; other names from elsewhere.
//!
//! **It may not know** how services are served, nor any other component: it reads Services,
//! EndpointSlices and Namespaces. Semantics are those of the Kubernetes DNS specification 1.1.0,
//! and CoreDNS's where that leaves a choice.
//!
//! ```text
//!  live     informers ──► World, one service at a time
//!  server   bytes ── wire::Query::read ──► answer(query, world) ── write ──► bytes      (pure)
//!           └ not one of the cluster's ──► forward: cache, or the machine's own servers
//!  publish  the Service `kube-dns`, and where it leads
//! ```
#![forbid(unsafe_code)]

mod answer;
mod cache;
mod forward;
mod live;
mod publish;
mod server;
#[cfg(test)]
mod tests;
mod wire;
mod world;

pub use answer::{Answer, Code, SECONDS, answer};
pub use forward::name_servers;
pub use live::run;
pub use publish::publish;
pub use wire::{Data, Kind, Malformed, Query, Record, question};
pub use world::{Backend, Port, Service, World};

use std::net::SocketAddr;

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
            sockets: std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4)),
            health: None,
            ready: None,
            metrics: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    #[error("failed to listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
}
