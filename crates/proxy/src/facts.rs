//! What the proxy wants to know of services, their endpoints and its node.
use crate::tables::{Endpoint, Network, ServicePort};
use api::codec::DecodeError;
use api::object::{Keep, Object};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use netlink::nftables::AddressFamily;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A service without its endpoints.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceFacts {
    /// Each with its name.
    pub ports: Vec<(String, ServicePort)>,
    /// Where load balancers ask whether this node has endpoints.
    pub health_check_node_port: Option<u16>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct SliceFacts {
    pub service: String,
    /// Name, protocol and number.
    ports: Vec<(String, u8, u16)>,
    endpoints: Vec<EndpointFacts>,
    is_ipv6: bool,
    /// When what it tells of happened.
    pub happened: Option<Timestamp>,
}

impl SliceFacts {
    pub fn family(&self) -> AddressFamily {
        if self.is_ipv6 { AddressFamily::Ipv6 } else { AddressFamily::Ipv4 }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct EndpointFacts {
    address: IpAddr,
    ready: bool,
    serving: bool,
    terminating: bool,
    node: Option<String>,
    for_nodes: Vec<String>,
    for_zones: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeFacts {
    pub zone: String,
    pub addresses: Vec<Network>,
    /// It stays: nobody drains it, and load balancers may send to it.
    pub is_eligible: bool,
}

/// Another proxy serves it.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
const HEADLESS: &str = "service.kubernetes.io/headless";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// What the control loop of slices says of them.
const HAPPENED: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const ZONE: &str = "topology.kubernetes.io/zone";
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
/// Three hours: upstream's default.
const AFFINITY: i32 = 10800;

impl Keep for ServiceFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<ServiceFacts>, DecodeError> {
        Ok(Arc::new(service(&object.decode()?)))
    }
}

impl Keep for SliceFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<SliceFacts>, DecodeError> {
        Ok(Arc::new(slice(&object.decode()?)))
    }
}

impl Keep for NodeFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<NodeFacts>, DecodeError> {
        Ok(Arc::new(node(&object.decode()?)))
    }
}

fn has_label(labels: &Option<BTreeMap<String, String>>, name: &str) -> bool {
    labels.as_ref().is_some_and(|labels| labels.contains_key(name))
}

/// What is not ours to serve has no ports.
fn service(service: &Service) -> ServiceFacts {
    let spec = service.spec.clone().unwrap_or_default();
    let ips = spec.cluster_ips.filter(|ips| !ips.is_empty());
    let ips = ips.unwrap_or_else(|| spec.cluster_ip.into_iter().collect());
    let cluster_ips = addresses(&ips);
    let is_external = spec.type_.as_deref() == Some("ExternalName");
    if cluster_ips.is_empty() || is_external || has_label(&service.metadata.labels, PROXY_NAME) {
        return ServiceFacts::default();
    }
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
    // A balancer that is a proxy wants its packets itself.
    let ingress = ingress.iter().filter(|one| one.ip_mode.as_deref() != Some("Proxy"));
    let ingress: Vec<String> = ingress.filter_map(|one| one.ip.clone()).collect();
    let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
        let client = spec.session_affinity_config.and_then(|config| config.client_ip);
        client.and_then(|client| client.timeout_seconds).unwrap_or(AFFINITY).max(1) as u32
    });
    let ranges = spec.load_balancer_source_ranges.unwrap_or_default();
    let all = ServicePort {
        cluster_ips,
        external_ips: addresses(&spec.external_ips.unwrap_or_default()),
        load_balancer_ips: addresses(&ingress),
        source_ranges: ranges.iter().filter_map(|range| network(range.trim())).collect(),
        affinity,
        internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
        external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
        ..ServicePort::default()
    };
    let port = |number: i32| u16::try_from(number).ok().filter(|port| *port > 0);
    let ports = spec.ports.unwrap_or_default().into_iter().filter_map(|one| {
        let number = port(one.port)?;
        let protocol = protocol(one.protocol.as_deref())?;
        let node_port = one.node_port.and_then(port);
        let filled = ServicePort { protocol, port: number, node_port, ..all.clone() };
        Some((one.name.unwrap_or_default(), filled))
    });
    ServiceFacts {
        ports: ports.collect(),
        health_check_node_port: spec.health_check_node_port.and_then(port),
    }
}

fn slice(slice: &EndpointSlice) -> SliceFacts {
    let labels = slice.metadata.labels.as_ref();
    let is_ours = !has_label(&slice.metadata.labels, PROXY_NAME)
        && !has_label(&slice.metadata.labels, HEADLESS)
        && ["IPv4", "IPv6"].contains(&slice.address_type.as_str());
    let service = labels.and_then(|labels| labels.get(SERVICE_NAME)).filter(|_| is_ours);
    let Some(service) = service.cloned() else { return SliceFacts::default() };
    let ports = slice.ports.iter().flatten().filter_map(|port| {
        let number = port.port.and_then(|port| u16::try_from(port).ok())?;
        Some((port.name.clone().unwrap_or_default(), protocol(port.protocol.as_deref())?, number))
    });
    let endpoints = slice.endpoints.iter().flatten().filter_map(|endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        let hints = endpoint.hints.clone().unwrap_or_default();
        let zones = hints.for_zones.unwrap_or_default().into_iter().map(|zone| zone.name);
        let nodes = hints.for_nodes.unwrap_or_default().into_iter().map(|node| node.name);
        Some(EndpointFacts {
            // All of an endpoint's addresses are one pod's: upstream takes the first too.
            address: endpoint.addresses.first()?.parse().ok()?,
            ready,
            serving: conditions.serving.unwrap_or(ready),
            terminating: conditions.terminating.unwrap_or(false),
            node: endpoint.node_name.clone(),
            for_nodes: nodes.collect(),
            for_zones: zones.collect(),
        })
    });
    let annotations = slice.metadata.annotations.as_ref();
    let happened = annotations.and_then(|all| all.get(HAPPENED)?.parse().ok());
    SliceFacts {
        service,
        ports: ports.collect(),
        endpoints: endpoints.collect(),
        is_ipv6: slice.address_type == "IPv6",
        happened,
    }
}

fn node(node: &Node) -> NodeFacts {
    let labels = node.metadata.labels.as_ref();
    let status = node.status.as_ref().and_then(|status| status.addresses.as_deref());
    let internal = status.unwrap_or_default().iter().filter(|one| one.type_ == "InternalIP");
    let internal = internal.filter_map(|one| one.address.parse::<IpAddr>().ok());
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    NodeFacts {
        zone: labels.and_then(|labels| labels.get(ZONE)).cloned().unwrap_or_default(),
        addresses: internal.map(|ip| (ip, if ip.is_ipv4() { 32 } else { 128 })).collect(),
        is_eligible: node.metadata.deletion_timestamp.is_none()
            && !taints.iter().any(|taint| taint.key == TO_BE_DELETED),
    }
}

/// The service's ports with the endpoints that each has on this node's view.
pub fn ports<'a>(
    service: &ServiceFacts,
    slices: impl Iterator<Item = &'a SliceFacts> + Clone,
    node_name: &str,
    zone: &str,
) -> Vec<ServicePort> {
    let port = |(name, port): &(String, ServicePort)| {
        let mut endpoints = Vec::new();
        for slice in slices.clone() {
            let same = |one: &&(String, u8, u16)| one.0 == *name && one.1 == port.protocol;
            let Some((_, _, number)) = slice.ports.iter().find(same) else { continue };
            let meant = |hints: &[String], us: &str| {
                (!hints.is_empty()).then(|| hints.iter().any(|hint| hint == us))
            };
            endpoints.extend(slice.endpoints.iter().map(|one| Endpoint {
                address: one.address,
                port: *number,
                ready: one.ready,
                serving: one.serving,
                terminating: one.terminating,
                local: one.node.as_deref() == Some(node_name),
                for_node: meant(&one.for_nodes, node_name),
                for_zone: meant(&one.for_zones, zone),
            }));
        }
        ServicePort { endpoints, ..port.clone() }
    };
    service.ports.iter().map(port).collect()
}

/// How many endpoints of this node a load balancer reaches.
pub fn local_endpoints(ports: &[ServicePort]) -> usize {
    let ready = ports.iter().flat_map(|port| &port.endpoints).filter(|one| one.local && one.ready);
    let mut addresses: Vec<IpAddr> = ready.map(|one| one.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.len()
}

fn addresses(texts: &[String]) -> Vec<IpAddr> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

fn network(text: &str) -> Option<Network> {
    let (address, prefix) = text.split_once('/')?;
    Some((address.parse().ok()?, prefix.parse().ok()?))
}

fn protocol(name: Option<&str>) -> Option<u8> {
    match name.unwrap_or("TCP") {
        "TCP" => Some(6),
        "UDP" => Some(17),
        "SCTP" => Some(132),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use serde_json::json;

    fn check(spec: serde_json::Value, slices: &[serde_json::Value], expected: Expect) {
        let tree = json!({
            "metadata": { "name": "web", "labels": spec["labels"] },
            "spec": spec,
            "status": { "loadBalancer": { "ingress": spec["ingress"] } },
        });
        let facts = service(&serde_json::from_value(tree).unwrap());
        let made = slices.iter().map(|tree| {
            let mut tree = tree.clone();
            tree["metadata"]["labels"]["kubernetes.io/service-name"] = json!("web");
            tree["addressType"] = json!("IPv4");
            slice(&serde_json::from_value(tree).unwrap())
        });
        let made: Vec<SliceFacts> = made.collect();
        let mut text = String::new();
        for port in ports(&facts, made.iter(), "here", "z") {
            text += &format!("{}/{} {:?}", port.protocol, port.port, port.cluster_ips);
            for (name, is) in [("internal", port.internal_local), ("external", port.external_local)]
            {
                text += &if is { format!(" {name}-local") } else { String::new() };
            }
            for (name, ips) in [("external", &port.external_ips), ("lb", &port.load_balancer_ips)] {
                text += &if ips.is_empty() { String::new() } else { format!(" {name}={ips:?}") };
            }
            text += &port.affinity.map_or_else(String::new, |seconds| format!(" sticky={seconds}"));
            text += &port.node_port.map_or_else(String::new, |port| format!(" node={port}"));
            for one in &port.endpoints {
                let local = if one.local { " local" } else { "" };
                let ready = if one.ready { "" } else { " unready" };
                let hints = match (one.for_node, one.for_zone) {
                    (None, None) => String::new(),
                    hints => format!(" {hints:?}"),
                };
                text += &format!("\n  {}:{}{local}{ready}{hints}", one.address, one.port);
            }
            text += "\n";
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn endpoints_are_found_by_the_ports_name() {
        check(
            json!({
                "clusterIPs": ["10.0.0.1", "fd00::1"],
                "ports": [
                    { "name": "http", "port": 80, "nodePort": 30080 },
                    { "name": "dns", "port": 53, "protocol": "UDP" },
                ],
                "externalIPs": ["192.0.2.1"],
                "ingress": [{ "ip": "192.0.2.2" }, { "ip": "192.0.2.3", "ipMode": "Proxy" }],
                "sessionAffinity": "ClientIP",
                "externalTrafficPolicy": "Local",
            }),
            &[json!({
                "ports": [
                    { "name": "http", "port": 8080 },
                    { "name": "dns", "port": 5353, "protocol": "UDP" },
                ],
                "endpoints": [
                    { "addresses": ["10.1.0.2"], "nodeName": "here" },
                    { "addresses": ["10.1.0.3"], "conditions": { "ready": false },
                      "hints": { "forZones": [{ "name": "z" }], "forNodes": [{ "name": "x" }] } },
                ],
            })],
            expect![[r#"
                6/80 [10.0.0.1, fd00::1] external-local external=[192.0.2.1] lb=[192.0.2.2] sticky=10800 node=30080
                  10.1.0.2:8080 local
                  10.1.0.3:8080 unready (Some(false), Some(true))
                17/53 [10.0.0.1, fd00::1] external-local external=[192.0.2.1] lb=[192.0.2.2] sticky=10800
                  10.1.0.2:5353 local
                  10.1.0.3:5353 unready (Some(false), Some(true))
            "#]],
        );
    }

    #[test]
    fn what_is_not_ours_has_no_ports() {
        let ports = json!([{ "port": 80 }]);
        for spec in [
            json!({ "clusterIP": "None", "ports": ports }),
            json!({ "ports": ports }),
            json!({ "clusterIP": "10.0.0.1", "type": "ExternalName", "ports": ports }),
            json!({ "clusterIP": "10.0.0.1", "ports": ports,
                "labels": { "service.kubernetes.io/service-proxy-name": "other" } }),
            json!({ "clusterIP": "10.0.0.1", "ports": [{ "port": 80, "protocol": "X" }] }),
        ] {
            check(spec, &[], expect![""]);
        }
        let headless = json!({
            "metadata": { "labels": { "service.kubernetes.io/headless": "" } },
            "ports": [{ "name": "", "port": 1 }],
            "endpoints": [{ "addresses": ["10.1.0.2"] }],
        });
        check(
            json!({ "clusterIP": "10.0.0.1", "ports": ports }),
            &[headless],
            expect![[r#"
            6/80 [10.0.0.1]
        "#]],
        );
    }
}
