//! Policies of a whole cluster, of definitions that an administrator may have installed:
//! AdminNetworkPolicy and BaselineAdminNetworkPolicy (`policy.networking.k8s.io/v1alpha1`), and
//! ClusterNetworkPolicy (`v1alpha2`), which follows them.
//!
//! What cannot be read fails closed, as their documents have it: a rule that accepts matches nothing,
//! any other denies everything.
use super::{Peer, Port, Traffic, Which, facts};
use api::codec::DecodeError;
use api::object::{Keep, Object};
use api::selector::label::Selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;

pub const GROUP: &str = "policy.networking.k8s.io";

/// A kind of such policies, in the version that is understood here.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub kind: &'static str,
    pub plural: &'static str,
    pub version: &'static str,
}

pub const KINDS: [Kind; 3] = [
    Kind { kind: "ClusterNetworkPolicy", plural: "clusternetworkpolicies", version: "v1alpha2" },
    Kind { kind: "AdminNetworkPolicy", plural: "adminnetworkpolicies", version: "v1alpha1" },
    Kind {
        kind: "BaselineAdminNetworkPolicy",
        plural: "baselineadminnetworkpolicies",
        version: "v1alpha1",
    },
];

/// Before, or after, NetworkPolicies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    Admin,
    Baseline,
}

impl Tier {
    pub const BOTH: [Tier; 2] = [Tier::Admin, Tier::Baseline];

    pub fn name(self) -> &'static str {
        match self {
            Tier::Admin => "admin",
            Tier::Baseline => "baseline",
        }
    }
}

/// What becomes of a connection that a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Accept,
    Deny,
    /// The next tier decides.
    Pass,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClusterPolicy {
    /// Its kind and name, for people.
    pub name: Arc<str>,
    pub tier: Tier,
    /// The smallest comes first.
    pub priority: i32,
    /// Whose pods it is about, and which of them.
    pub namespaces: Selector,
    pub pods: Selector,
    /// In their order: the first that is about a connection decides.
    pub ingress: Vec<Ruling>,
    pub egress: Vec<Ruling>,
}

impl ClusterPolicy {
    pub fn rulings(&self, traffic: Traffic) -> &[Ruling] {
        match traffic {
            Traffic::Ingress => &self.ingress,
            Traffic::Egress => &self.egress,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Ruling {
    pub action: Action,
    /// Empty: everybody.
    pub peers: Vec<Peer>,
    /// Empty: every port of every protocol.
    pub ports: Vec<Port>,
}

impl Keep for ClusterPolicy {
    fn keep(object: &Arc<Object>) -> Result<Arc<ClusterPolicy>, DecodeError> {
        let read = serde_json::from_slice(&object.json())
            .map_err(|error| DecodeError::Type(error.to_string()))?;
        policy(read).map(Arc::new)
    }
}

#[derive(Deserialize)]
pub(super) struct Read {
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(default)]
    tier: String,
    priority: Option<i32>,
    subject: Map<String, Value>,
    #[serde(default)]
    ingress: Vec<ReadRule>,
    #[serde(default)]
    egress: Vec<ReadRule>,
}

#[derive(Deserialize)]
struct ReadRule {
    action: String,
    #[serde(default, alias = "from")]
    to: Vec<Map<String, Value>>,
    #[serde(default, alias = "ports")]
    protocols: Vec<Map<String, Value>>,
}

/// Of something that is not understood.
struct Unknown;

pub(super) fn policy(read: Read) -> Result<ClusterPolicy, DecodeError> {
    let name: Arc<str> = format!("{}/{}", read.kind, read.metadata.name).into();
    let is_baseline = read.kind == "BaselineAdminNetworkPolicy" || read.spec.tier == "Baseline";
    let subject =
        |_: Unknown| DecodeError::Type(format!("the subject of {name} is not understood"));
    let (namespaces, pods) = selected(&read.spec.subject).map_err(subject)?;
    Ok(ClusterPolicy {
        tier: if is_baseline { Tier::Baseline } else { Tier::Admin },
        // The one baseline policy of v1alpha1 has none: it comes after all that have.
        priority: read.spec.priority.unwrap_or(i32::MAX),
        namespaces,
        pods,
        ingress: read.spec.ingress.iter().filter_map(ruling).collect(),
        egress: read.spec.egress.iter().filter_map(ruling).collect(),
        name,
    })
}

fn ruling(rule: &ReadRule) -> Option<Ruling> {
    let action = match rule.action.as_str() {
        "Accept" | "Allow" => Action::Accept,
        "Deny" => Action::Deny,
        "Pass" => Action::Pass,
        _ => return Some(Ruling { action: Action::Deny, peers: Vec::new(), ports: Vec::new() }),
    };
    let read = || -> Result<Ruling, Unknown> {
        let mut peers = Vec::new();
        for peer in &rule.to {
            peers.extend(read_peer(peer)?);
        }
        let mut ports = Vec::new();
        for port in &rule.protocols {
            ports.extend(read_port(port)?);
        }
        if peers.is_empty() { Err(Unknown) } else { Ok(Ruling { action, peers, ports }) }
    };
    match (read(), action) {
        (Ok(ruling), _) => Some(ruling),
        (Err(Unknown), Action::Accept) => None,
        (Err(Unknown), _) => {
            Some(Ruling { action: Action::Deny, peers: Vec::new(), ports: Vec::new() })
        }
    }
}

/// The one field that is to be set.
fn only(map: &Map<String, Value>) -> Result<(&str, &Value), Unknown> {
    let mut fields = map.iter();
    match (fields.next(), fields.next()) {
        (Some((name, value)), None) => Ok((name, value)),
        _ => Err(Unknown),
    }
}

fn selector(value: Option<&Value>) -> Result<Selector, Unknown> {
    let value = value.ok_or(Unknown)?;
    // An older definition had other fields there; a selector without any is everything.
    let known = |name: &String| name == "matchLabels" || name == "matchExpressions";
    if !value.as_object().is_some_and(|fields| fields.keys().all(known)) {
        return Err(Unknown);
    }
    let selector = LabelSelector::deserialize(value).map_err(|_| Unknown)?;
    Selector::from_label_selector(Some(&selector)).map_err(|_| Unknown)
}

/// Namespaces, and pods in them.
fn selected(peer: &Map<String, Value>) -> Result<(Selector, Selector), Unknown> {
    match only(peer)? {
        ("namespaces", namespaces) => Ok((selector(Some(namespaces))?, Selector::everything())),
        ("pods", pods) => {
            Ok((selector(pods.get("namespaceSelector"))?, selector(pods.get("podSelector"))?))
        }
        _ => Err(Unknown),
    }
}

fn read_peer(peer: &Map<String, Value>) -> Result<Vec<Peer>, Unknown> {
    match only(peer)? {
        ("nodes", nodes) => Ok(vec![Peer::Nodes(selector(Some(nodes))?)]),
        ("networks", networks) => {
            let block = |network: &Value| {
                let cidr = network.as_str().and_then(|text| text.parse().ok()).ok_or(Unknown)?;
                Ok(Peer::Block { cidr, except: Vec::new() })
            };
            networks.as_array().ok_or(Unknown)?.iter().map(block).collect()
        }
        _ => {
            let (namespaces, pods) = selected(peer)?;
            Ok(vec![Peer::Pods { namespaces: Some(namespaces), pods }])
        }
    }
}

fn read_port(port: &Map<String, Value>) -> Result<Vec<Port>, Unknown> {
    let number = |value: Option<&Value>| {
        let number = value.and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok());
        number.filter(|number| *number > 0).ok_or(Unknown)
    };
    let range = |of: &Value| {
        let (first, last) = (number(of.get("start"))?, number(of.get("end"))?);
        if first <= last { Ok(Which::Numbers(first, last)) } else { Err(Unknown) }
    };
    let protocol = |name: Option<&str>| facts::protocol(name).ok_or(Unknown);
    let named = |name: &Value| {
        let name = name.as_str().ok_or(Unknown)?;
        // Whatever protocol the container says.
        let all = ["TCP", "UDP", "SCTP"].iter().map(|one| protocol(Some(one)));
        all.map(|one| Ok(Port { protocol: one?, which: Which::Named(name.to_owned()) })).collect()
    };
    match only(port)? {
        ("portNumber", of) => {
            let which = number(of.get("port"))?;
            let protocol = protocol(of.get("protocol").and_then(Value::as_str))?;
            Ok(vec![Port { protocol, which: Which::Numbers(which, which) }])
        }
        ("portRange", of) => {
            let protocol = protocol(of.get("protocol").and_then(Value::as_str))?;
            Ok(vec![Port { protocol, which: range(of)? }])
        }
        ("namedPort" | "destinationNamedPort", name) => named(name),
        (name @ ("tcp" | "udp" | "sctp"), of) => {
            let which = match of.get("destinationPort") {
                None => Which::Any,
                Some(port) => match only(port.as_object().ok_or(Unknown)?)? {
                    ("number", one) => {
                        let one = number(Some(one))?;
                        Which::Numbers(one, one)
                    }
                    ("range", of) => range(of)?,
                    _ => return Err(Unknown),
                },
            };
            Ok(vec![Port { protocol: protocol(Some(&name.to_uppercase()))?, which }])
        }
        _ => Err(Unknown),
    }
}
