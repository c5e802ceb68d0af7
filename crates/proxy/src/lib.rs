//! Services: what a connection to a service's address leads to, as packet rules.
//!
//! **It may not know** how it learns of services, nor what a pod runs: it is given a snapshot, and
//! says what the kernel's tables should hold; then it changes them.
//!
//! ```text
//!  [ServicePort] ── tables::desired ──► Tables ── kernel::Proxy::apply ──► one nftables transaction
//! ```
//!
//! One table in each address family, with flat maps: a verdict map `address . protocol . port` →
//! a chain for so many endpoints, and a map `address . protocol . port . number` → endpoint, where
//! the number is drawn at random. A chain for each service would cost the kernel quadratic time.
#![forbid(unsafe_code)]

mod kernel;
mod rules;
mod tables;
#[cfg(test)]
mod tests;

pub use kernel::Proxy;
pub use tables::{Chain, Endpoint, Frontend, Policy, Refusal, ServicePort, Tables, desired};

/// The nftables table, in both address families.
pub const TABLE: &str = "skiff-proxy";

/// What the rules need to know of the cluster: an address and the length of its prefix.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Where pods are. Connections from elsewhere to a cluster IP are masqueraded.
    pub cluster_cidrs: Vec<(std::net::IpAddr, u8)>,
}
