//! Services: what a connection to a service's address leads to, as packet rules.
//!
//! **It may not know** what a pod runs, nor how pods get their addresses: it reads Services,
//! EndpointSlices and its own Node, and changes one nftables table.
//!
//! ```text
//!  informers ── facts ──► [ServicePort] of one service ── tables::leads ──► Frontend → Lead   (pure)
//!      └ live: what changed, soon and together                                   │
//!              nftables: chains, then elements ◄── kernel::Proxy::apply
//!  balancer  which addresses services of type LoadBalancer have
//!  health    healthz, metrics, and the health-check ports of load balancers
//! ```
//!
//! One table in each address family, with flat maps: a verdict map `address . protocol . port` →
//! a chain for so many endpoints, and a map `address . protocol . port . number` → endpoint, where
//! the number is drawn at random. A chain for each service would cost the kernel quadratic time.
//! A change costs what it changes, however many services there are.
#![forbid(unsafe_code)]

pub mod balancer;
mod counts;
mod facts;
#[cfg(test)]
mod faults;
mod health;
mod kernel;
mod live;
#[cfg(test)]
mod model;
mod rules;
mod tables;
#[cfg(test)]
mod tests;

pub use counts::Synced;
pub use kernel::Proxy;
pub use live::run;
pub use tables::{
    Chain, Endpoint, Frontend, Lead, Network, Policy, Refusal, ServicePort, Target, leads,
};

use api::names::NamespacedName;
use client::zpages::Flags;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::watch;

/// The nftables table, in both address families.
pub const TABLE: &str = "skiff-proxy";

/// What the proxy needs to know of the cluster and of its node.
#[derive(Debug, Clone, Default)]
pub struct Config {
    pub node_name: String,
    /// Where pods are. Connections from elsewhere to a cluster IP are masqueraded.
    pub cluster_cidrs: Vec<Network>,
    /// The node's addresses that have node ports; empty: all of them, or the primary ones.
    pub node_port_addresses: Vec<Network>,
    /// Those that the Node says are its own have node ports (upstream's `primary`).
    pub primary_node_ports: bool,
    /// Whoever connects to a cluster IP is masqueraded, a pod too.
    pub masquerade_all: bool,
    /// A service that this node serves itself, if it does.
    pub local: Option<Local>,
    /// The least time between two changes of the rules: what comes meanwhile is done together.
    pub min_sync_period: Duration,
    /// Where `/healthz` and `/livez` are served (upstream's :10256), and `/metrics` and
    /// `/proxyMode` (127.0.0.1:10249).
    pub healthz: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    /// What `/flagz` says.
    pub flags: Flags,
}

/// A service whose endpoints are on this node, whatever the API says of others: while there are any,
/// nobody here is led elsewhere.
#[derive(Debug, Clone)]
pub struct Local {
    pub service: NamespacedName,
    /// Where all of its ports lead; empty: it is not served here now.
    pub at: watch::Receiver<Vec<SocketAddr>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error(transparent)]
    Netlink(#[from] netlink::NetlinkError),
    #[error("failed to listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
}
