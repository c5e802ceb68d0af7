//! What is kept of the API's own kinds; those of Gateway API are in [`crate::plan::gateway`].
use api::codec::DecodeError;
use api::object::{Keep, Object};
use k8s_openapi::api::core::v1::{Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressBackend, IngressClass};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug, Default, PartialEq)]
pub struct ClassFacts {
    pub controller: String,
    pub is_default: bool,
}

#[derive(Debug, Default, PartialEq)]
pub struct IngressFacts {
    /// In seconds.
    pub created: i64,
    /// `None`: whichever is the default.
    pub class: Option<String>,
    pub default: Option<BackendFacts>,
    pub rules: Vec<RuleFacts>,
    pub tls: Vec<TlsFacts>,
    /// What its status says: addresses, and names.
    pub said: Vec<String>,
}

#[derive(Debug, Default, PartialEq)]
pub struct RuleFacts {
    pub host: String,
    pub paths: Vec<PathFacts>,
}

#[derive(Debug, PartialEq)]
pub struct PathFacts {
    pub is_exact: bool,
    pub path: String,
    pub backend: BackendFacts,
}

#[derive(Debug, PartialEq)]
pub enum BackendFacts {
    Service {
        name: String,
        port: PortName,
    },
    /// An object of another kind, of which we know none.
    Resource,
}

#[derive(Debug, Clone, PartialEq)]
pub enum PortName {
    Number(u16),
    Name(String),
}

#[derive(Debug, Default, PartialEq)]
pub struct TlsFacts {
    pub hosts: Vec<String>,
    pub secret: String,
}

#[derive(Debug, Default, PartialEq)]
pub struct ServiceFacts {
    /// It is a name that leads elsewhere, where nobody should be led by an object of the cluster.
    pub is_external: bool,
    pub ports: Vec<PortFacts>,
}

#[derive(Debug, Default, PartialEq)]
pub struct PortFacts {
    pub name: String,
    pub number: u16,
    /// By UDP, not by TCP.
    pub is_udp: bool,
    pub app_protocol: String,
}

#[derive(Debug, Default, PartialEq)]
pub struct SliceFacts {
    pub service: String,
    /// Name and number. No two ports of a service have one name, whatever their protocols are.
    pub ports: Vec<(String, u16)>,
    pub endpoints: Vec<EndpointFacts>,
}

#[derive(Debug, Default, PartialEq)]
pub struct EndpointFacts {
    pub addresses: Vec<IpAddr>,
    pub ready: bool,
    /// It answers, though it may be on its way out.
    pub serving: bool,
}

/// A certificate with its key, or what is wrong with it.
pub struct SecretFacts(pub Result<Arc<CertifiedKey>, String>);

#[derive(Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// Where clients find it.
    pub addresses: Vec<IpAddr>,
    /// All that it has, inside and outside.
    pub all: Vec<IpAddr>,
    /// It serves, is ready, stays, and is not kept from load balancers.
    pub is_candidate: bool,
}

#[derive(Debug, Default, PartialEq)]
pub struct NamespaceFacts {
    pub labels: BTreeMap<String, String>,
}

impl Keep for ClassFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<ClassFacts>, DecodeError> {
        let class: IngressClass = object.decode()?;
        let annotations = class.metadata.annotations.unwrap_or_default();
        let is_default = annotations.get(DEFAULT_CLASS).is_some_and(|value| value == "true");
        let controller = class.spec.and_then(|spec| spec.controller).unwrap_or_default();
        Ok(Arc::new(ClassFacts { controller, is_default }))
    }
}

const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";
/// How classes were named before there was a field for it; upstream still has it read.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

impl Keep for IngressFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<IngressFacts>, DecodeError> {
        Ok(Arc::new(ingress(object.decode()?)))
    }
}

fn ingress(ingress: Ingress) -> IngressFacts {
    let (metadata, spec) = (ingress.metadata, ingress.spec.unwrap_or_default());
    let annotations = metadata.annotations.unwrap_or_default();
    let rules = spec.rules.unwrap_or_default().into_iter().map(|rule| RuleFacts {
        host: rule.host.unwrap_or_default(),
        paths: rule.http.map_or_else(Vec::new, |http| {
            let path = |path: k8s_openapi::api::networking::v1::HTTPIngressPath| PathFacts {
                is_exact: path.path_type == "Exact",
                path: path.path.filter(|text| !text.is_empty()).unwrap_or_else(|| "/".to_owned()),
                backend: backend(path.backend),
            };
            http.paths.into_iter().map(path).collect()
        }),
    });
    let tls = spec.tls.unwrap_or_default().into_iter().map(|tls| TlsFacts {
        hosts: tls.hosts.unwrap_or_default(),
        secret: tls.secret_name.unwrap_or_default(),
    });
    let status = ingress.status.and_then(|status| status.load_balancer?.ingress);
    let said = status.unwrap_or_default().into_iter().map(|one| one.ip.or(one.hostname));
    IngressFacts {
        created: metadata.creation_timestamp.map_or(0, |time| time.0.as_second()),
        class: spec.ingress_class_name.or_else(|| annotations.get(CLASS_ANNOTATION).cloned()),
        default: spec.default_backend.map(backend),
        rules: rules.collect(),
        tls: tls.collect(),
        said: said.map(Option::unwrap_or_default).collect(),
    }
}

fn backend(backend: IngressBackend) -> BackendFacts {
    let Some(service) = backend.service else { return BackendFacts::Resource };
    let port = service.port.unwrap_or_default();
    let port = match (port.name.filter(|name| !name.is_empty()), port.number) {
        (Some(name), _) => PortName::Name(name),
        (None, number) => PortName::Number(u16::try_from(number.unwrap_or(0)).unwrap_or(0)),
    };
    BackendFacts::Service { name: service.name, port }
}

impl Keep for ServiceFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<ServiceFacts>, DecodeError> {
        let spec = object.decode::<Service>()?.spec.unwrap_or_default();
        let ports = spec.ports.unwrap_or_default().into_iter().filter_map(|port| {
            Some(PortFacts {
                is_udp: is_udp(port.protocol.as_deref())?,
                name: port.name.unwrap_or_default(),
                number: u16::try_from(port.port).unwrap_or(0),
                app_protocol: port.app_protocol.unwrap_or_default(),
            })
        });
        let is_external = spec.type_.as_deref() == Some("ExternalName");
        Ok(Arc::new(ServiceFacts { is_external, ports: ports.collect() }))
    }
}

/// `None`: neither TCP nor UDP, which nothing leads to.
fn is_udp(protocol: Option<&str>) -> Option<bool> {
    match protocol.unwrap_or("TCP") {
        "TCP" => Some(false),
        "UDP" => Some(true),
        _ => None,
    }
}

pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

impl Keep for SliceFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<SliceFacts>, DecodeError> {
        Ok(Arc::new(slice(object.decode()?)))
    }
}

pub fn slice(slice: EndpointSlice) -> SliceFacts {
    let labels = slice.metadata.labels.unwrap_or_default();
    let ports = slice.ports.unwrap_or_default().into_iter().filter_map(|port| {
        is_udp(port.protocol.as_deref())?;
        let number = u16::try_from(port.port?).ok()?;
        Some((port.name.unwrap_or_default(), number))
    });
    let endpoints = slice.endpoints.unwrap_or_default().into_iter().map(|endpoint| {
        let conditions = endpoint.conditions.unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        EndpointFacts {
            addresses: endpoint.addresses.iter().filter_map(|text| text.parse().ok()).collect(),
            ready,
            serving: conditions.serving.unwrap_or(ready),
        }
    });
    SliceFacts {
        service: labels.get(SERVICE_NAME).cloned().unwrap_or_default(),
        ports: ports.collect(),
        endpoints: endpoints.collect(),
    }
}

impl Keep for SecretFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<SecretFacts>, DecodeError> {
        let data = object.decode::<Secret>()?.data.unwrap_or_default();
        let part = |name: &str| data.get(name).map(|bytes| bytes.0.as_slice()).unwrap_or_default();
        Ok(Arc::new(SecretFacts(certified(part("tls.crt"), part("tls.key")))))
    }
}

/// A chain of certificates and the key of the first, both PEM.
pub fn certified(chain: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("tls.crt: {error}"))?;
    if chain.is_empty() {
        return Err("tls.crt: there is no certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("tls.key: {error}"))?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key)
        .map_err(|error| format!("tls.key: {error}"))?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match().map_err(|error| format!("tls.crt and tls.key: {error}"))?;
    Ok(Arc::new(certified))
}

/// Upstream's label for it (`k8s.io/api/core/v1/well_known_labels.go`).
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

impl Keep for NodeFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<NodeFacts>, DecodeError> {
        let node: Node = object.decode()?;
        let status = node.status.unwrap_or_default();
        let all = status.addresses.unwrap_or_default();
        let of = |kind: &str| -> Vec<IpAddr> {
            let own = all.iter().filter(|address| address.type_ == kind);
            own.filter_map(|address| address.address.parse().ok()).collect()
        };
        let external = of("ExternalIP");
        let conditions = status.conditions.unwrap_or_default();
        let is_ready = conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
        let labels = node.metadata.labels.unwrap_or_default();
        let internal = of("InternalIP");
        let both = internal.iter().chain(&external).copied().collect();
        Ok(Arc::new(NodeFacts {
            addresses: if external.is_empty() { internal } else { external },
            all: both,
            is_candidate: is_ready
                && node.metadata.deletion_timestamp.is_none()
                && labels.contains_key(crate::SERVES)
                && !labels.contains_key(EXCLUDED),
        }))
    }
}

impl Keep for NamespaceFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<NamespaceFacts>, DecodeError> {
        let namespace: Namespace = object.decode()?;
        Ok(Arc::new(NamespaceFacts { labels: namespace.metadata.labels.unwrap_or_default() }))
    }
}
