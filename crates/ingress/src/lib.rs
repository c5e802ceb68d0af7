//! The way into the cluster from outside: Ingress and Gateway API, served by Skiff's servers themselves.
//!
//! **It may not know** the service proxy, what pods run, nor the API server's insides: it reads objects,
//! and it sends requests to the addresses that EndpointSlices name, never to a service's own address.
//!
//! ```text
//!  world     informers: Ingress, IngressClass, Gateway API's kinds where they are defined; and once one of
//!            those wants something: Service, EndpointSlice, Secret (of TLS), Node, Namespace
//!  plan/     what all of them say ──► Table: ports, certificates, rules; and ──► statuses      (pure)
//!  matching  request ──► rule, in the order that both specifications have                      (pure)
//!  filters   what a rule changes about a request or an answer                                  (pure)
//!  serve/    sockets, TLS, HTTP/1.1 and HTTP/2, bytes, datagrams, connections to pods: does what the table says
//!  status    what people read in objects' statuses; written by one for all nodes
//! ```
//!
//! A port is listened on while an object wants it, so a cluster that has no Ingress holds none. A table is
//! swapped as a whole: a request sees one from its beginning to its end, and what is under way is not cut.
//! Endpoints are no part of the table; they change more often, one service at a time.
#![forbid(unsafe_code)]

mod definitions;
mod facts;
mod filters;
mod host;
mod live;
mod matching;
mod path;
mod plan;
mod serve;
mod status;
mod table;
mod world;

pub use definitions::{GATEWAY_GROUP, gateway_class, gateway_definitions};
pub use live::{Bind, Config, IngressError, run};
pub use status::run as write_statuses;

/// Which Ingresses are ours: those of classes with this controller.
pub const INGRESS_CONTROLLER: &str = "skiff.dev/ingress";
/// Which Gateways are: those of GatewayClasses with this one.
pub const GATEWAY_CONTROLLER: &str = "skiff.dev/gateway";
/// Nodes that serve have this label; what is served is found at their addresses.
pub const SERVES: &str = "skiff.dev/ingress";
/// What our classes are called.
pub const CLASS: &str = "skiff";
