//! The API server: every verb over every kind of the registry, over HTTPS.
//!
//! One function reads as a request's life ([`serve`](serve::serve)): authenticate → parse → audit →
//! fairness → authorize → decode → change → store → encode. Each stage is a module that knows nothing
//! of its neighbours; a kind adds only its own rules.
//!
//! ```text
//!  listen ─► serve ─► request (path, verb, query)
//!                       ├─► documents   discovery, OpenAPI, version, health
//!                       └─► verbs       get list watch create update patch delete
//!                             │  stored: an object's bytes as the store keeps them
//!                             └► resources: one watch cache per resource ─► store
//! ```
//!
//! An object is kept as JSON without its resource version, which the store's revision is; lists,
//! watches and reads in JSON splice it into the shared bytes and decode nothing.
//!
//! Connections are polled in [`turns`], fairly among users, not by the runtime's own order.
//!
//! **It may not know** schedulers, controllers or nodes. It alone knows the store.
#![forbid(unsafe_code)]

pub mod admission;
mod allocation;
mod answer;
pub mod audit;
pub mod authn;
pub mod authz;
mod bootstrap;
mod budget;
mod call;
pub mod configuration;
mod debug;
mod definitions;
mod documents;
pub mod encryption;
mod extend;
mod fairness;
mod following;
mod gathered;
mod gzip;
mod health;
mod holding;
mod in_flight;
mod keeping;
mod kubeconfig;
pub mod listen;
mod metrics;
mod objects;
mod openapi;
mod pieces;
pub mod pki;
mod proxy;
mod remembered;
mod request;
mod resources;
mod selection;
mod serve;
pub mod service_account;
mod spliced;
mod stored;
mod strangers;
#[cfg(test)]
mod testing;
pub mod tls;
mod turns;
mod unreadable;
mod verbs;
mod websocket;
mod within;

pub use authn::User;
pub use bootstrap::{advertise, bootstrap};
pub use debug::Debug;
pub use resources::{ApiServer, Options};
pub use serve::serve;
pub use within::Within;
