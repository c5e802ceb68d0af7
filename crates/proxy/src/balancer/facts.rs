//! What the balancer wants to know of services, nodes and endpoints.
use api::codec::DecodeError;
use api::object::{Keep, Object};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceFacts {
    pub uid: String,
    /// When it was made, in seconds.
    pub created: i64,
    /// It wants a load balancer, and nobody else's.
    pub is_ours: bool,
    /// It wants none: what its status says is left from before.
    pub is_plain: bool,
    /// Whether each of its address families is IPv4.
    pub families: Vec<bool>,
    /// Protocol and number.
    pub ports: Vec<(String, u16)>,
    pub is_local: bool,
    pub requested: Option<IpAddr>,
    /// What its status says.
    pub ingress: Vec<IpAddr>,
    /// There are entries without an address.
    pub has_names: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeFacts {
    pub external: Vec<IpAddr>,
    pub internal: Vec<IpAddr>,
    /// It is ready, stays, and is not kept from load balancers.
    pub is_candidate: bool,
}

/// Where ready endpoints of a service are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndpointFacts {
    pub service: String,
    pub nodes: BTreeSet<String>,
}

impl Keep for ServiceFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<ServiceFacts>, DecodeError> {
        Ok(Arc::new(service(&object.decode()?)))
    }
}

impl Keep for NodeFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<NodeFacts>, DecodeError> {
        Ok(Arc::new(node(&object.decode()?)))
    }
}

impl Keep for EndpointFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<EndpointFacts>, DecodeError> {
        Ok(Arc::new(endpoints(&object.decode()?)))
    }
}

pub fn service(service: &Service) -> ServiceFacts {
    let (metadata, spec) = (&service.metadata, service.spec.clone().unwrap_or_default());
    let is_balanced = spec.type_.as_deref() == Some("LoadBalancer");
    let families = spec.ip_families.unwrap_or_default();
    let mut families: Vec<bool> = families.iter().map(|family| family == "IPv4").collect();
    if families.is_empty() {
        families.push(true);
    }
    let ports = spec.ports.unwrap_or_default().into_iter().filter_map(|port| {
        let protocol = port.protocol.unwrap_or_else(|| "TCP".to_owned());
        Some((protocol, u16::try_from(port.port).ok()?))
    });
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
    let addresses = ingress.iter().filter_map(|one| one.ip.as_ref()?.parse().ok());
    ServiceFacts {
        uid: metadata.uid.clone().unwrap_or_default(),
        created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        is_ours: is_balanced
            && spec.load_balancer_class.is_none()
            && metadata.deletion_timestamp.is_none(),
        is_plain: !is_balanced,
        families,
        ports: ports.collect(),
        is_local: spec.external_traffic_policy.as_deref() == Some("Local"),
        requested: spec.load_balancer_ip.as_ref().and_then(|address| address.parse().ok()),
        ingress: addresses.collect(),
        has_names: ingress.iter().any(|one| one.ip.is_none()),
    }
}

/// Upstream's label for it (`k8s.io/api/core/v1/well_known_labels.go`).
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

pub fn node(node: &Node) -> NodeFacts {
    let status = node.status.as_ref();
    let all = status.and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let of = |kind: &str| {
        let own = all.iter().filter(|address| address.type_ == kind);
        own.filter_map(|address| address.address.parse().ok()).collect()
    };
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_ready = conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let leaves = node.metadata.deletion_timestamp.is_some()
        || taints.iter().any(|taint| taint.key == TO_BE_DELETED);
    let labels = node.metadata.labels.as_ref();
    let is_excluded = labels.is_some_and(|labels| labels.contains_key(EXCLUDED));
    NodeFacts {
        external: of("ExternalIP"),
        internal: of("InternalIP"),
        is_candidate: is_ready && !leaves && !is_excluded,
    }
}

pub fn endpoints(slice: &EndpointSlice) -> EndpointFacts {
    let labels = slice.metadata.labels.as_ref();
    let service = labels.and_then(|labels| labels.get("kubernetes.io/service-name"));
    let ready =
        slice.endpoints.iter().flatten().filter(|endpoint| {
            endpoint.conditions.as_ref().and_then(|one| one.ready).unwrap_or(true)
        });
    EndpointFacts {
        service: service.cloned().unwrap_or_default(),
        nodes: ready.filter_map(|endpoint| endpoint.node_name.clone()).collect(),
    }
}
