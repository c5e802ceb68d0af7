//! The pod network of one node: a bridge, a pair of links for every sandbox, addresses from the
//! node's pod CIDRs, masquerade of what leaves the cluster, and host ports.
//!
//! **It may not know** what runs in a sandbox: it is told CIDRs and sandboxes, and says addresses.
//! Only the parts that keep it alive on a node (feature `live`) know the API: of that Nodes, and for
//! `policy` NetworkPolicies and whom they select.
//!
//! ```text
//!  sandbox ── eth0 ══ skiffxxxxxxxxxx ─┐
//!  10.244.0.2/32                       ├─ skiff0 10.244.0.1/24 ── the host's routes
//!  sandbox ── eth0 ══ skiffxxxxxxxxxx ─┘
//! ```
//!
//! A pod has its address alone (`/32`, `/128`) and reaches everything, its neighbours too, by way
//! of the host. So both directions of every connection pass the host's rules, whether the kernel
//! shows bridged frames to them (`br_netfilter`) or not: what a service's rules have changed on
//! the way there is changed back on the way home.
//!
//! Pods of other nodes are reached by a route to that node where it is on a link of ours, else by a
//! tunnel (`peers`); or all of them by WireGuard, so that nobody reads along (`peers::encrypted`).
//!
//! ```text
//!  Nodes ── live::run ──► NodeNetwork (what the runtime has) ── once the node has a CIDR ──► PodNetwork
//! ```
//!
//! Everything is named `skiff…` and can be found and removed by that name. What was given to whom
//! is one small file for each sandbox, written before the kernel is asked; a restart reads them.
#![forbid(unsafe_code)]

mod attach;
mod bandwidth;
mod cidr;
mod error;
mod keys;
#[cfg(feature = "live")]
mod live;
mod neighbours;
#[cfg(feature = "live")]
mod node;
mod peers;
#[cfg(feature = "live")]
pub mod policy;
mod records;
mod rules;
mod sources;
mod sysctl;
#[cfg(test)]
mod tests;
mod trial;

pub use attach::PodNetwork;
pub use bandwidth::Bandwidth;
pub use cidr::{Cidr, CidrError};
pub use error::PodNetworkError;
pub use keys::{PrivateKey, PublicKey};
#[cfg(feature = "live")]
pub use live::run;
#[cfg(feature = "live")]
pub use node::{NodeNetwork, Settings};
pub use peers::Peer;
pub use trial::{Trial, encryption, trial};

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The bridge.
pub const BRIDGE: &str = "skiff0";
/// The nftables table, in both address families.
pub const TABLE: &str = "skiff-network";
/// The same for NetworkPolicies.
pub const POLICY_TABLE: &str = "skiff-policy";
const TABLES: [&str; 2] = [TABLE, POLICY_TABLE];
/// The interface a pod sees.
pub const INTERFACE: &str = "eth0";

/// What a node's network is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the pods of this node get their addresses from: one for each address family.
    pub pod_cidrs: Vec<Cidr>,
    /// Where all pods of the cluster are: what goes there keeps its source address.
    pub cluster_cidrs: Vec<Cidr>,
    pub mtu: u32,
    /// A folder below `/run`: what it says ends with the machine's run, as the links do.
    pub state: PathBuf,
    /// With which what pods of different nodes say to each other is encrypted. `None`: it is not.
    pub key: Option<PrivateKey>,
}

/// What the network is told of a sandbox.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub id: String,
    pub namespace_path: PathBuf,
    /// Whose it is, for people who list links.
    pub owner: String,
    pub ports: Vec<PortMapping>,
    pub bandwidth: Bandwidth,
}

/// How the links of pods begin.
const LINK_PREFIX: &str = "skiff";
/// How links begin through which what a pod sends is led.
const EGRESS_PREFIX: &str = "skifi";

/// A link's name has at most 15 letters: of the sandbox's id it is a hash (FNV-1a).
fn link_name(sandbox_id: &str) -> String {
    format!("{LINK_PREFIX}{}", hashed(sandbox_id))
}

fn egress_name(sandbox_id: &str) -> String {
    format!("{EGRESS_PREFIX}{}", hashed(sandbox_id))
}

fn hashed(sandbox_id: &str) -> String {
    let hash = sandbox_id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{:010x}", hash >> 24)
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    pub host_port: i32,
    pub container_port: i32,
    pub protocol: String,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
}
