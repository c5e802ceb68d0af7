//! As much of Gateway API's objects as is read.
use api::codec::DecodeError;
use api::names::NamespacedName;
use api::object::{Keep, Object};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

pub type Objects<T> = BTreeMap<NamespacedName, Arc<Custom<T>>>;

#[derive(Default)]
pub struct World {
    pub classes: BTreeMap<String, Arc<Custom<ClassSpec>>>,
    pub gateways: Objects<GatewaySpec>,
    pub sets: Objects<SetSpec>,
    pub http_routes: Objects<RouteSpec>,
    pub grpc_routes: Objects<GrpcSpec>,
    pub tls_routes: Objects<RouteSpec>,
    pub tcp_routes: Objects<RouteSpec>,
    pub udp_routes: Objects<RouteSpec>,
    pub grants: Objects<GrantSpec>,
    pub policies: Objects<PolicySpec>,
    /// What ConfigMaps have as `ca.crt`.
    pub authorities: BTreeMap<NamespacedName, Arc<Authorities>>,
}

/// A custom object: what is wanted, and what was said about it.
#[derive(Debug)]
pub struct Custom<T> {
    pub generation: i64,
    /// In seconds.
    pub created: i64,
    pub spec: T,
    pub status: Value,
}

impl<T: DeserializeOwned + Send + Sync + 'static> Keep for Custom<T> {
    fn keep(object: &Arc<Object>) -> Result<Arc<Custom<T>>, DecodeError> {
        let wrong = |error: serde_json::Error| DecodeError::Type(error.to_string());
        let read: Read<T> = serde_json::from_slice(&object.json()).map_err(wrong)?;
        let created = read.metadata.creation_timestamp.unwrap_or_default();
        Ok(Arc::new(Custom {
            generation: read.metadata.generation,
            created: created.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second),
            spec: read.spec,
            status: read.status,
        }))
    }
}

#[derive(Deserialize)]
struct Read<T> {
    #[serde(default)]
    metadata: Metadata,
    spec: T,
    #[serde(default)]
    status: Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    generation: i64,
    creation_timestamp: Option<String>,
}

#[derive(Debug, Default, PartialEq)]
pub struct Authorities(pub Option<String>);

impl Keep for Authorities {
    fn keep(object: &Arc<Object>) -> Result<Arc<Authorities>, DecodeError> {
        use k8s_openapi::api::core::v1::ConfigMap;
        let mut data = object.decode::<ConfigMap>()?.data.unwrap_or_default();
        Ok(Arc::new(Authorities(data.remove("ca.crt"))))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassSpec {
    pub controller_name: String,
    pub parameters_ref: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewaySpec {
    pub gateway_class_name: String,
    pub listeners: Vec<Listener>,
    pub addresses: Vec<Address>,
    pub infrastructure: Infrastructure,
    pub allowed_listeners: AllowedListeners,
    pub tls: GatewayTls,
}

/// ListenerSet: more listeners of a Gateway, by others than its owner.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetSpec {
    pub parent_ref: ParentRef,
    pub listeners: Vec<Listener>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AllowedListeners {
    pub namespaces: Namespaces,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GatewayTls {
    pub backend: BackendTls,
    pub frontend: Option<FrontendTls>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTls {
    pub client_certificate_ref: Option<Reference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendTls {
    pub default: ClientTls,
    pub per_port: Vec<PortTls>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PortTls {
    pub port: u16,
    pub tls: ClientTls,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClientTls {
    pub validation: Option<ClientValidation>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientValidation {
    pub ca_certificate_refs: Vec<Reference>,
    pub mode: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Infrastructure {
    pub parameters_ref: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Address {
    pub r#type: Option<String>,
    pub value: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listener {
    pub name: String,
    pub hostname: Option<String>,
    pub port: u16,
    pub protocol: String,
    pub tls: Option<ListenerTls>,
    pub allowed_routes: AllowedRoutes,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerTls {
    pub mode: Option<String>,
    pub certificate_refs: Vec<Reference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AllowedRoutes {
    pub namespaces: Namespaces,
    pub kinds: Vec<RouteKind>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Namespaces {
    pub from: Option<String>,
    pub selector: Option<LabelSelector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RouteKind {
    pub group: Option<String>,
    pub kind: String,
}

/// A reference to an object of any kind.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Reference {
    pub group: Option<String>,
    pub kind: Option<String>,
    pub namespace: Option<String>,
    pub name: String,
    pub port: Option<u16>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentRef {
    pub group: Option<String>,
    pub kind: Option<String>,
    pub namespace: Option<String>,
    pub name: String,
    pub section_name: Option<String>,
    pub port: Option<u16>,
}

/// HTTPRoute, and those whose rules have only backends: TLSRoute, TCPRoute, UDPRoute.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteSpec {
    pub parent_refs: Vec<ParentRef>,
    pub hostnames: Vec<String>,
    pub rules: Vec<RuleSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleSpec {
    pub matches: Vec<Match>,
    pub filters: Vec<FilterSpec>,
    pub backend_refs: Vec<BackendRef>,
    pub timeouts: Timeouts,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    pub request: Option<String>,
    pub backend_request: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Match {
    pub path: Option<TypedValue>,
    pub headers: Vec<NamedMatch>,
    pub query_params: Vec<NamedMatch>,
    pub method: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TypedValue {
    pub r#type: Option<String>,
    pub value: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NamedMatch {
    pub r#type: Option<String>,
    pub name: String,
    pub value: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendRef {
    #[serde(flatten)]
    pub to: Reference,
    pub weight: Option<u32>,
    pub filters: Vec<FilterSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FilterSpec {
    pub r#type: String,
    pub request_header_modifier: Option<HeaderFilter>,
    pub response_header_modifier: Option<HeaderFilter>,
    pub request_redirect: Option<RedirectFilter>,
    pub url_rewrite: Option<RewriteFilter>,
    pub request_mirror: Option<MirrorFilter>,
    pub cors: Option<CorsFilter>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HeaderFilter {
    pub set: Vec<NamedMatch>,
    pub add: Vec<NamedMatch>,
    pub remove: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RedirectFilter {
    pub scheme: Option<String>,
    pub hostname: Option<String>,
    pub path: Option<PathModifier>,
    pub port: Option<u16>,
    pub status_code: Option<u16>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PathModifier {
    pub r#type: String,
    pub replace_full_path: Option<String>,
    pub replace_prefix_match: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RewriteFilter {
    pub hostname: Option<String>,
    pub path: Option<PathModifier>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MirrorFilter {
    pub backend_ref: Reference,
    pub percent: Option<u32>,
    pub fraction: Option<Fraction>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Fraction {
    pub numerator: u32,
    pub denominator: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CorsFilter {
    pub allow_origins: Vec<String>,
    pub allow_credentials: Option<bool>,
    pub allow_methods: Vec<String>,
    pub allow_headers: Vec<String>,
    pub expose_headers: Vec<String>,
    pub max_age: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcSpec {
    pub parent_refs: Vec<ParentRef>,
    pub hostnames: Vec<String>,
    pub rules: Vec<GrpcRule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRule {
    pub matches: Vec<GrpcMatch>,
    pub filters: Vec<FilterSpec>,
    pub backend_refs: Vec<BackendRef>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GrpcMatch {
    pub method: GrpcMethod,
    pub headers: Vec<NamedMatch>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GrpcMethod {
    pub r#type: Option<String>,
    pub service: Option<String>,
    pub method: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GrantSpec {
    pub from: Vec<GrantFrom>,
    pub to: Vec<GrantTo>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GrantFrom {
    pub group: String,
    pub kind: String,
    pub namespace: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GrantTo {
    pub group: String,
    pub kind: String,
    pub name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicySpec {
    pub target_refs: Vec<Target>,
    pub validation: Validation,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Target {
    pub group: String,
    pub kind: String,
    pub name: String,
    pub section_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Validation {
    #[serde(rename = "caCertificateRefs")]
    pub ca_certificate_refs: Vec<Reference>,
    #[serde(rename = "wellKnownCACertificates")]
    pub well_known: Option<String>,
    pub hostname: String,
    pub subject_alt_names: Vec<SubjectAltName>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SubjectAltName {
    pub r#type: String,
    pub hostname: String,
    pub uri: String,
}
