//! What is to be served, and what is to be said about it: a function of what the API has.
mod backend;
pub mod gateway;
mod ingress;
#[cfg(test)]
mod tests;

pub use backend::{addresses, datagrams, destination};

use crate::facts::{
    ClassFacts, IngressFacts, NamespaceFacts, NodeFacts, SecretFacts, ServiceFacts,
};
use crate::table::Table;
use api::names::NamespacedName;
use api::pool::Pool;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What the API has.
#[derive(Default)]
pub struct World {
    pub classes: BTreeMap<String, Arc<ClassFacts>>,
    pub ingresses: BTreeMap<NamespacedName, Arc<IngressFacts>>,
    pub services: BTreeMap<NamespacedName, Arc<ServiceFacts>>,
    pub secrets: BTreeMap<NamespacedName, Arc<SecretFacts>>,
    pub nodes: BTreeMap<String, Arc<NodeFacts>>,
    pub namespaces: BTreeMap<String, Arc<NamespaceFacts>>,
    /// Where Gateway API is defined.
    pub gateway: gateway::types::World,
}

/// Where Ingresses and Gateways are served.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// Ports of Ingresses.
    pub http: u16,
    pub https: u16,
    /// Addresses that Gateways get, each its own; empty: they share those of the nodes.
    pub pool: Pool,
}

pub struct Plan {
    pub table: Table,
    pub statuses: Vec<Status>,
}

/// What an object's status is to say and does not.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub kind: Kind,
    pub key: NamespacedName,
    /// The whole of `status`, as a merge.
    pub status: serde_json::Value,
}

/// What has a status of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Ingress,
    GatewayClass,
    Gateway,
    ListenerSet,
    HttpRoute,
    GrpcRoute,
    TlsRoute,
    TcpRoute,
    UdpRoute,
    BackendTlsPolicy,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Ingress => "Ingress",
            Kind::GatewayClass => "GatewayClass",
            Kind::Gateway => "Gateway",
            Kind::ListenerSet => "ListenerSet",
            Kind::HttpRoute => "HTTPRoute",
            Kind::GrpcRoute => "GRPCRoute",
            Kind::TlsRoute => "TLSRoute",
            Kind::TcpRoute => "TCPRoute",
            Kind::UdpRoute => "UDPRoute",
            Kind::BackendTlsPolicy => "BackendTLSPolicy",
        }
    }
}

impl Status {
    /// Nothing, if the object says so already.
    fn unless_said(
        kind: Kind,
        key: NamespacedName,
        said: &serde_json::Value,
        status: serde_json::Value,
    ) -> Option<Status> {
        let parts = status.as_object()?;
        let is_said = parts.iter().all(|(name, value)| said.get(name) == Some(value));
        (!is_said).then_some(Status { kind, key, status })
    }
}

/// `now` is for statuses: RFC 3339, whole seconds.
pub fn plan(world: &World, places: &Places, now: &str) -> Plan {
    let mut plan = Plan { table: Table::default(), statuses: Vec::new() };
    let addresses = world.addresses();
    ingress::plan(world, places, &addresses, &mut plan);
    gateway::plan(world, places, &addresses, now, &mut plan);
    for port in plan.table.ports.values_mut() {
        port.hosts.sort();
    }
    plan
}

impl World {
    /// Where all that is served is found: at every node that serves.
    fn addresses(&self) -> Vec<IpAddr> {
        let nodes = self.nodes.values().filter(|node| node.is_candidate);
        let all: BTreeSet<IpAddr> = nodes.flat_map(|node| node.addresses.iter().copied()).collect();
        all.into_iter().collect()
    }
}
