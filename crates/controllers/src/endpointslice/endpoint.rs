//! One pod as an endpoint, and the ports it serves.
use crate::pods;
use k8s_openapi::api::core::v1::{Container, Node, ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::net::IpAddr;

const ZONE: &str = "topology.kubernetes.io/zone";

/// Endpoints that can be in one slice: of one family, and with the same ports. Pods differ in
/// what a port's name stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    pub family: String,
    pub ports: Vec<Port>,
}

/// Name, number, protocol, protocol of the application.
type Port = (String, i32, String, Option<String>);

impl Group {
    pub fn of(service: &Service, pod: &Pod, family: &str) -> Group {
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let ports = ports.filter_map(|port| {
            let number = number(pod, port)?;
            let name = port.name.clone().unwrap_or_default();
            Some((name, number, protocol(port).to_owned(), port.app_protocol.clone()))
        });
        Group { family: family.to_owned(), ports: ports.collect() }
    }

    pub fn is_of(&self, slice: &EndpointSlice) -> bool {
        let ports = slice.ports.iter().flatten().map(|port| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let number = port.port.unwrap_or_default();
            (text(&port.name), number, text(&port.protocol), port.app_protocol.clone())
        });
        slice.address_type == self.family && ports.eq(self.ports.iter().cloned())
    }

    pub fn ports(&self) -> Vec<EndpointPort> {
        let port = |(name, number, protocol, app_protocol): &Port| EndpointPort {
            name: Some(name.clone()),
            port: Some(*number),
            protocol: Some(protocol.clone()),
            app_protocol: app_protocol.clone(),
        };
        self.ports.iter().map(port).collect()
    }
}

fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

/// The pod's port that a service's port leads to.
fn number(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    // Init containers that go on running serve too.
    let is_sidecar = |it: &&Container| it.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
    let all = spec.containers.iter().chain(sidecars);
    let mut ports = all.flat_map(|container| container.ports.iter().flatten());
    let found = ports.find(|it| {
        it.name.as_ref() == Some(name) && it.protocol.as_deref().unwrap_or("TCP") == protocol(port)
    });
    found.map(|it| it.container_port)
}

/// The families a service has, as slices name them.
pub fn families(service: &Service) -> Vec<String> {
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.clone());
    let families = families.filter(|families| !families.is_empty());
    families.unwrap_or_else(|| vec!["IPv4".to_owned()])
}

/// `None`: it has no address of this family.
pub fn of(pod: &Pod, node: Option<&Node>, service: &Service, family: &str) -> Option<Endpoint> {
    let status = pod.status.as_ref()?;
    let many = status.pod_ips.iter().flatten().map(|it| it.ip.as_str());
    let one = status.pod_ip.as_deref().filter(|_| status.pod_ips.is_none());
    let is_of_family = |address: &str| match address.parse::<IpAddr>() {
        Ok(address) => address.is_ipv6() == (family == "IPv6"),
        Err(_) => false,
    };
    let addresses: Vec<String> =
        many.chain(one).filter(|it| is_of_family(it)).map(str::to_owned).collect();
    if addresses.is_empty() {
        return None;
    }
    let is_published = service.spec.as_ref()?.publish_not_ready_addresses == Some(true);
    let (serving, terminating) = (pods::is_ready(pod), pod.metadata.deletion_timestamp.is_some());
    let zone = node.and_then(|node| node.metadata.labels.as_ref()?.get(ZONE).cloned());
    let spec = pod.spec.as_ref()?;
    let is_named = spec.subdomain == service.metadata.name;
    let zone = zone.filter(|zone| !zone.is_empty());
    let is_ready = is_published || (serving && !terminating);
    let distribution = service.spec.as_ref()?.traffic_distribution.as_deref();
    let hints = distribution.filter(|_| is_ready);
    let hints = hints.and_then(|it| hints_of(it, zone.as_deref(), spec.node_name.as_deref()));
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(is_ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        node_name: spec.node_name.clone(),
        zone,
        hostname: spec.hostname.clone().filter(|name| is_named && !name.is_empty()),
        deprecated_topology: None,
        hints,
    })
}

/// Who is to prefer an endpoint, as the service has it: those of its zone, or of its node.
fn hints_of(distribution: &str, zone: Option<&str>, node: Option<&str>) -> Option<EndpointHints> {
    let is_close = ["PreferClose", "PreferSameZone", "PreferSameNode"].contains(&distribution);
    let node = node.filter(|_| distribution == "PreferSameNode");
    if !is_close || (zone.is_none() && node.is_none()) {
        return None;
    }
    Some(EndpointHints {
        for_zones: zone.map(|name| vec![ForZone { name: name.to_owned() }]),
        for_nodes: node.map(|name| vec![ForNode { name: name.to_owned() }]),
    })
}
