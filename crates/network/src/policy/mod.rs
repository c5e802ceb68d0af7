//! NetworkPolicies: who may speak to whom, as packet rules of the node that a pod runs on.
//!
//! ```text
//!  informers ── facts ──► World ── plan ──► Plan of one address family        (pure)
//!                          ▲                  │
//!  sandboxes that come ────┘                  ▼
//!                nftables, in steps ◄── kernel::Firewall::apply: what differs
//! ```
//!
//! A pod that no policy selects is in no rule. One that is selected is *isolated* in the directions
//! that its policies are about: its address leads to the chain of a *profile*, with everything that is
//! granted to it, and a drop at the end. Policies only ever grant, so that the profile of a pod is the union of what its policies say, and pods with the same grants
//! share one. Who is granted is a set of addresses (pods) or of ranges (`ipBlock`): a pod that comes
//! or goes is an element, never a rule.
//!
//! Policies of the whole cluster (`tiers`) come before, or after, those of namespaces. They are lists in
//! which the first rule that is about a connection decides: it is accepted, denied, or left to the next
//! tier. Each tier has profiles of its own, so that tiers do not multiply each other's.
//!
//! Rules see what is forwarded, after services' addresses have become pods' and before anything is
//! masqueraded. Whatever the node itself sends, its probes among it, is not forwarded: it always
//! reaches its pods, as everywhere. So does what they send to it, unless a policy of the cluster says
//! otherwise, for those may be about nodes.
#[cfg(test)]
mod attacks;
mod facts;
mod flood;
mod flow;
mod kernel;
mod live;
mod plan;
mod ranges;
#[cfg(test)]
mod tests;
mod tiers;

pub use flow::{Flow, dropped};
pub use kernel::Firewall;
pub use live::{Policies, run};
pub use plan::{Grant, Group, Order, Plan, Profile, Selection, Who, plan};
pub use ranges::Ranges;
pub use tiers::{Action, ClusterPolicy, Ruling, Tier};

/// Where rules tell of what policies drop (`netlink::log`); the prefix begins with the direction.
pub const FLOWS_GROUP: u16 = 0x5f;

use crate::Cidr;
use crate::POLICY_TABLE as TABLE;
use api::names::NamespacedName;
use api::selector::label::Selector;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Seen from the pod that a policy selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Traffic {
    Ingress,
    Egress,
}

impl Traffic {
    pub const BOTH: [Traffic; 2] = [Traffic::Ingress, Traffic::Egress];

    pub fn name(self) -> &'static str {
        match self {
            Traffic::Ingress => "ingress",
            Traffic::Egress => "egress",
        }
    }
}

/// What a NetworkPolicy says; a direction that it is not about is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub pods: Selector,
    pub ingress: Option<Vec<Rule>>,
    pub egress: Option<Vec<Rule>>,
}

impl Policy {
    pub fn rules(&self, traffic: Traffic) -> Option<&[Rule]> {
        match traffic {
            Traffic::Ingress => self.ingress.as_deref(),
            Traffic::Egress => self.egress.as_deref(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rule {
    /// Empty: everybody.
    pub peers: Vec<Peer>,
    /// Empty: every port of every protocol.
    pub ports: Vec<Port>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Peer {
    /// Without namespaces: in the policy's own.
    Pods {
        namespaces: Option<Selector>,
        pods: Selector,
    },
    Block {
        cidr: Cidr,
        except: Vec<Cidr>,
    },
    /// Only in policies of the cluster.
    Nodes(Selector),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    pub protocol: u8,
    pub which: Which,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    Any,
    /// From the first to the last.
    Numbers(u16, u16),
    /// What a container of the destination calls it.
    Named(String),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pod {
    pub labels: BTreeMap<String, String>,
    /// Its own: none for one that has the node's, or has ended.
    pub addresses: Vec<IpAddr>,
    /// Containers' ports that have names.
    pub ports: Vec<(String, u8, u16)>,
}

/// Everything that decides who may speak to whom on one node.
#[derive(Debug, Default)]
pub struct World<'a> {
    /// By namespace.
    pub policies: BTreeMap<&'a str, Vec<&'a Policy>>,
    /// In any order.
    pub cluster_policies: Vec<&'a ClusterPolicy>,
    /// Labels and addresses.
    pub nodes: Vec<(&'a BTreeMap<String, String>, &'a [IpAddr])>,
    /// Their labels.
    pub namespaces: BTreeMap<&'a str, &'a BTreeMap<String, String>>,
    /// By namespace and name.
    pub pods: BTreeMap<&'a str, BTreeMap<&'a str, &'a Pod>>,
    /// The pods of this node that have addresses, whether the API knows of these yet or not.
    pub locals: Vec<(&'a NamespacedName, &'a [IpAddr])>,
    /// Where nodes answer for the cluster's DNS.
    pub resolvers: Vec<(IpAddr, u16)>,
}
