//! What policies are about: read from the API's objects.
use super::{Peer, Pod, Policy, Port, Rule, Which};
use api::codec::DecodeError;
use api::object::{Keep, Object};
use api::selector::label::Selector;
use k8s_openapi::api::core::v1::{Container, Namespace, Node, Pod as ApiPod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug, PartialEq)]
pub struct PolicyFacts(pub Policy);

#[derive(Debug, PartialEq)]
pub struct NamespaceFacts {
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, PartialEq)]
pub struct PodFacts {
    pub uid: String,
    /// The API's image of a pod that a file told the node of.
    pub is_mirror: bool,
    pub pod: Pod,
}

/// Where nodes answer for the cluster's DNS: a slice that they made themselves.
#[derive(Debug, PartialEq)]
pub struct ResolverFacts(pub Vec<(IpAddr, u16)>);

impl Keep for ResolverFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<ResolverFacts>, DecodeError> {
        Ok(Arc::new(ResolverFacts(resolvers(&object.decode()?))))
    }
}

pub fn resolvers(slice: &EndpointSlice) -> Vec<(IpAddr, u16)> {
    let ports = slice.ports.iter().flatten();
    let ports: Vec<u16> = ports.filter_map(|port| u16::try_from(port.port?).ok()).collect();
    let addresses = slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses);
    let addresses = addresses.filter_map(|address| address.parse::<IpAddr>().ok());
    let mut all: Vec<_> =
        addresses.flat_map(|address| ports.iter().map(move |port| (address, *port))).collect();
    all.dedup();
    all
}

impl Keep for PolicyFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<PolicyFacts>, DecodeError> {
        Ok(Arc::new(PolicyFacts(policy(&object.decode()?))))
    }
}

impl Keep for NamespaceFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<NamespaceFacts>, DecodeError> {
        let namespace: Namespace = object.decode()?;
        Ok(Arc::new(NamespaceFacts { labels: namespace.metadata.labels.unwrap_or_default() }))
    }
}

/// Where a node is, for rules about nodes.
#[derive(Debug, PartialEq)]
pub struct NodeFacts {
    pub labels: BTreeMap<String, String>,
    pub addresses: Vec<IpAddr>,
}

impl Keep for NodeFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<NodeFacts>, DecodeError> {
        let node: Node = object.decode()?;
        let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
        Ok(Arc::new(NodeFacts {
            labels: node.metadata.labels.unwrap_or_default(),
            // Whatever else is there is a name.
            addresses: addresses.iter().filter_map(|one| one.address.parse().ok()).collect(),
        }))
    }
}

impl Keep for PodFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<PodFacts>, DecodeError> {
        Ok(Arc::new(pod(&object.decode()?)))
    }
}

const MIRROR: &str = "kubernetes.io/config.mirror";

pub fn pod(pod: &ApiPod) -> PodFacts {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let phase = status.and_then(|status| status.phase.as_deref());
    let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
    let is_host = spec.is_some_and(|spec| spec.host_network == Some(true));
    let ips = status.and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    let mut addresses: Vec<_> = ips.iter().filter_map(|one| one.ip.parse().ok()).collect();
    if addresses.is_empty() {
        addresses.extend(status.and_then(|status| status.pod_ip.as_ref()?.parse::<IpAddr>().ok()));
    }
    if has_ended || is_host {
        addresses.clear();
    }
    let sidecar = |one: &&Container| one.restart_policy.as_deref() == Some("Always");
    let containers = spec.into_iter().flat_map(|spec| &spec.containers);
    let sidecars = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let ports = containers
        .chain(sidecars.iter().filter(sidecar))
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            let number = u16::try_from(port.container_port).ok()?;
            Some((port.name.clone()?, protocol(port.protocol.as_deref())?, number))
        });
    let annotations = pod.metadata.annotations.as_ref();
    PodFacts {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        is_mirror: annotations.is_some_and(|all| all.contains_key(MIRROR)),
        pod: Pod {
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            addresses,
            ports: ports.collect(),
        },
    }
}

pub fn policy(policy: &NetworkPolicy) -> Policy {
    let spec = policy.spec.clone().unwrap_or_default();
    let (ingress, egress) = (spec.ingress.unwrap_or_default(), spec.egress.unwrap_or_default());
    let types = spec.policy_types.filter(|types| !types.is_empty());
    // The API server says it; what it would say of one that somebody else stored.
    let types = types.unwrap_or_else(|| {
        let egress = (!egress.is_empty()).then(|| "Egress".to_owned());
        std::iter::once("Ingress".to_owned()).chain(egress).collect()
    });
    let is_about = |name: &str| types.iter().any(|one| one == name);
    let ingress = ingress.iter().filter_map(|one| rule(one.from.as_deref(), one.ports.as_deref()));
    let egress = egress.iter().filter_map(|one| rule(one.to.as_deref(), one.ports.as_deref()));
    // An absent selector is an empty one here: it selects all.
    let pods = spec.pod_selector.unwrap_or_default();
    Policy {
        pods: selector(&pods),
        ingress: is_about("Ingress").then(|| ingress.collect()),
        egress: is_about("Egress").then(|| egress.collect()),
    }
}

/// What cannot be read grants nothing.
fn selector(selector: &LabelSelector) -> Selector {
    Selector::from_label_selector(Some(selector)).unwrap_or(Selector::nothing())
}

/// `None`: one that grants nothing.
fn rule(peers: Option<&[NetworkPolicyPeer]>, ports: Option<&[NetworkPolicyPort]>) -> Option<Rule> {
    let (peers, ports) = (peers.unwrap_or_default(), ports.unwrap_or_default());
    let rule = Rule {
        peers: peers.iter().filter_map(peer).collect(),
        ports: ports.iter().filter_map(port).collect(),
    };
    // An empty list would be everybody.
    let is_lost = (rule.peers.is_empty() && !peers.is_empty())
        || (rule.ports.is_empty() && !ports.is_empty());
    (!is_lost).then_some(rule)
}

fn peer(peer: &NetworkPolicyPeer) -> Option<Peer> {
    if let Some(block) = &peer.ip_block {
        let except = block.except.iter().flatten();
        let except = except.map(|one| one.parse()).collect::<Result<_, _>>().ok()?;
        return Some(Peer::Block { cidr: block.cidr.parse().ok()?, except });
    }
    let namespaces = peer.namespace_selector.as_ref().map(selector);
    let pods = match (&peer.pod_selector, &namespaces) {
        (Some(pods), _) => selector(pods),
        (None, Some(_)) => Selector::everything(),
        (None, None) => return None,
    };
    Some(Peer::Pods { namespaces, pods })
}

fn port(port: &NetworkPolicyPort) -> Option<Port> {
    let number = |number: i32| u16::try_from(number).ok();
    let which = match &port.port {
        None => Which::Any,
        Some(IntOrString::Int(first)) => {
            let first = number(*first)?;
            let last = port.end_port.map_or(Some(first), number)?;
            (first <= last).then_some(Which::Numbers(first, last))?
        }
        Some(IntOrString::String(name)) => Which::Named(name.clone()),
    };
    Some(Port { protocol: protocol(port.protocol.as_deref())?, which })
}

pub fn protocol(name: Option<&str>) -> Option<u8> {
    match name.unwrap_or("TCP") {
        "TCP" => Some(6),
        "UDP" => Some(17),
        "SCTP" => Some(132),
        _ => None,
    }
}
