//! Gateway API: Gateways are ports with names, routes are rules that want to be behind them.
//!
//! ```text
//!  types       as much of the objects as is read
//!  references  who may name what in another namespace
//!  addresses   where a Gateway is found: where all are, or at addresses of its own
//!  conflicts   listeners that are in each other's way
//!  clients     certificates of clients, and those that pods are shown
//!  listeners   which listeners of a Gateway and its ListenerSets can be served, with which certificates
//!  routes      which listeners take a route, and what its rules say
//!  filters     what a route changes about requests and answers
//!  policies    how pods prove who they are
//!  conditions  what is said about all of them
//! ```
//! Without a pool of addresses all Gateways are served at the same ones, those of the nodes: listeners of several
//! Gateways with the same port are one port, whose rules are those of all.
mod addresses;
mod clients;
mod conditions;
mod conflicts;
mod filters;
mod listeners;
mod policies;
mod references;
mod routes;
pub mod types;

use super::{Kind, Places, Plan, Status, World};
use crate::GATEWAY_CONTROLLER;
use conditions::{Conditions, no, yes};
use std::net::IpAddr;
use types::World as Objects;

pub const GROUP: &str = "gateway.networking.k8s.io";

pub fn plan(world: &World, places: &Places, addresses: &[IpAddr], now: &str, plan: &mut Plan) {
    let objects: &Objects = &world.gateway;
    classes(objects, now, plan);
    let mut gateways = listeners::all(world, &places.pool, addresses, &mut plan.table);
    let tls = policies::Policies::new(world);
    routes::plan(world, &mut gateways, &tls, now, plan);
    policies::statuses(world, &gateways, &tls, now, plan);
    for gateway in &gateways {
        plan.statuses.extend(gateway.statuses(addresses, now));
    }
}

/// What upstream's conformance tests call what we can do (`pkg/features` there), by name.
const FEATURES: [&str; 44] = [
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

fn classes(objects: &Objects, now: &str, plan: &mut Plan) {
    for (name, class) in &objects.classes {
        if class.spec.controller_name != GATEWAY_CONTROLLER {
            continue;
        }
        let accepted = match &class.spec.parameters_ref {
            None => yes("Accepted", "Accepted", "Skiff serves Gateways of this class"),
            Some(_) => no("Accepted", "InvalidParameters", "this class takes no parameters"),
        };
        let mut conditions = Conditions::new(&class.status, class.generation, now);
        conditions.set(&[accepted]);
        let features: Vec<_> = FEATURES.map(|name| serde_json::json!({ "name": name })).to_vec();
        let status =
            serde_json::json!({ "conditions": conditions.all(), "supportedFeatures": features });
        let key = api::names::NamespacedName::new("", name);
        plan.statuses.extend(Status::unless_said(Kind::GatewayClass, key, &class.status, status));
    }
}
