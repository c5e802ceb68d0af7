//! Gateway API's objects, while their definitions are there.
use super::{Changes, by_key, follow, follow_facts};
use crate::plan::gateway::GROUP;
use crate::plan::gateway::types::{
    Authorities, ClassSpec, Custom, GatewaySpec, GrantSpec, GrpcSpec, Objects, PolicySpec,
    RouteSpec, SetSpec, World,
};
use api::kinds::Scope;
use client::definitions::{self, Defined};
use client::source::{Collection, Source};
use client::{ApiResource, Context, Informer, Informers, NamespacedName};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Kinds that are read, and where they are.
const KINDS: [(&str, &str, Scope); 10] = [
    ("GatewayClass", "gatewayclasses", Scope::Cluster),
    ("Gateway", "gateways", Scope::Namespaced),
    ("ListenerSet", "listenersets", Scope::Namespaced),
    ("HTTPRoute", "httproutes", Scope::Namespaced),
    ("GRPCRoute", "grpcroutes", Scope::Namespaced),
    ("TLSRoute", "tlsroutes", Scope::Namespaced),
    ("TCPRoute", "tcproutes", Scope::Namespaced),
    ("UDPRoute", "udproutes", Scope::Namespaced),
    ("ReferenceGrant", "referencegrants", Scope::Namespaced),
    ("BackendTLSPolicy", "backendtlspolicies", Scope::Namespaced),
];
const VERSION: &str = "v1";
/// How long others wait for objects that are defined and not told.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a kind of Gateway API is called in the API.
pub fn resource(kind: &str) -> ApiResource {
    let row = KINDS.iter().find(|(name, _, _)| *name == kind);
    let (kind, plural, scope) = row.copied().unwrap_or((kind, "", Scope::Namespaced));
    ApiResource::custom(GROUP, VERSION, plural, kind, scope)
}

/// All that are read.
#[cfg(test)]
pub fn resources() -> impl Iterator<Item = ApiResource> {
    KINDS.iter().map(|(kind, _, _)| resource(kind))
}

pub struct Gateways {
    informers: Informers,
    definitions: Informer<Defined>,
    classes: Followed<ClassSpec>,
    gateways: Followed<GatewaySpec>,
    sets: Followed<SetSpec>,
    http_routes: Followed<RouteSpec>,
    grpc_routes: Followed<GrpcSpec>,
    tls_routes: Followed<RouteSpec>,
    tcp_routes: Followed<RouteSpec>,
    udp_routes: Followed<RouteSpec>,
    grants: Followed<GrantSpec>,
    policies: Followed<PolicySpec>,
    /// Once a policy wants some, or a Gateway for its clients.
    authorities: OnceLock<Informer<Authorities>>,
    changes: Arc<Changes>,
}

/// One kind, while it is defined.
struct Followed<T> {
    kind: &'static str,
    found: Mutex<Option<(ApiResource, Informer<Custom<T>>)>>,
}

impl<T: DeserializeOwned + Send + Sync + 'static> Followed<T> {
    fn new(kind: &'static str) -> Followed<T> {
        Followed { kind, found: Mutex::new(None) }
    }

    fn attend(&self, all: &Gateways) {
        let plural = resource(self.kind).plural;
        let name = NamespacedName::new("", &format!("{plural}.{GROUP}"));
        let defined = all.definitions.get(&name);
        let wanted = defined.and_then(|defined| {
            // Grants were stored in another version for long, which says the same.
            defined.in_version(VERSION).or_else(|| defined.resource.clone())
        });
        let mut found = self.found.lock();
        if found.as_ref().map(|(resource, _)| resource) == wanted.as_ref() {
            return;
        }
        if let Some((resource, _)) = found.take() {
            all.informers.forget(&resource);
        }
        *found = wanted.map(|resource| {
            let informer = all.informers.keep(Collection::all(resource.clone()));
            follow(&informer, &all.changes);
            (resource, informer)
        });
    }

    fn objects(&self) -> Objects<T> {
        self.found.lock().as_ref().map(|(_, informer)| by_key(informer)).unwrap_or_default()
    }
}

impl Gateways {
    pub fn new(context: &Context, source: Arc<dyn Source>, changes: &Arc<Changes>) -> Gateways {
        let definitions = Informer::start(context, source.clone(), definitions::collection());
        follow_facts(&definitions, changes);
        Gateways {
            informers: Informers::new(context, source),
            definitions,
            classes: Followed::new("GatewayClass"),
            gateways: Followed::new("Gateway"),
            sets: Followed::new("ListenerSet"),
            http_routes: Followed::new("HTTPRoute"),
            grpc_routes: Followed::new("GRPCRoute"),
            tls_routes: Followed::new("TLSRoute"),
            tcp_routes: Followed::new("TCPRoute"),
            udp_routes: Followed::new("UDPRoute"),
            grants: Followed::new("ReferenceGrant"),
            policies: Followed::new("BackendTLSPolicy"),
            authorities: OnceLock::new(),
            changes: changes.clone(),
        }
    }

    /// Follows what is defined now, and waits for a while until all of that is known: Ingresses are served
    /// whatever becomes of it.
    pub async fn synced(&self) {
        self.definitions.synced().await;
        self.classes.attend(self);
        self.gateways.attend(self);
        self.sets.attend(self);
        self.http_routes.attend(self);
        self.grpc_routes.attend(self);
        self.tls_routes.attend(self);
        self.tcp_routes.attend(self);
        self.udp_routes.attend(self);
        self.grants.attend(self);
        self.policies.attend(self);
        let frontend = |gateway: &Custom<GatewaySpec>| gateway.spec.tls.frontend.is_some();
        let are_proved = self.gateways.objects().values().any(|gateway| frontend(gateway));
        if are_proved || !self.policies.objects().is_empty() {
            self.authorities.get_or_init(|| {
                let maps = self.informers.keep(Collection::all(ApiResource::of::<ConfigMap>()));
                follow_facts(&maps, &self.changes);
                maps
            });
        }
        if tokio::time::timeout(PATIENCE, self.informers.synced()).await.is_err() {
            tracing::warn!("objects of Gateway API are defined, and nobody tells them");
        }
    }

    /// Somebody has a Gateway.
    pub fn is_wanted(&self) -> bool {
        !self.gateways.objects().is_empty()
    }

    pub fn world(&self) -> World {
        let classes = self.classes.objects();
        let authorities = self.authorities.get().map(by_key).unwrap_or_default();
        World {
            classes: classes.into_iter().map(|(key, one)| (key.name.to_string(), one)).collect(),
            gateways: self.gateways.objects(),
            sets: self.sets.objects(),
            http_routes: self.http_routes.objects(),
            grpc_routes: self.grpc_routes.objects(),
            tls_routes: self.tls_routes.objects(),
            tcp_routes: self.tcp_routes.objects(),
            udp_routes: self.udp_routes.objects(),
            grants: self.grants.objects(),
            policies: self.policies.objects(),
            authorities,
        }
    }
}
