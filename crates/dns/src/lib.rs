//! Cluster DNS: names of services, from a snapshot of the cluster.
//!
//! **It may not know** how the snapshot is fed, nor sockets: a query and a world give an answer.
//! Semantics are those of the Kubernetes DNS specification 1.1.0.
//!
//! ```text
//!  bytes ── wire::Query::read ──► Query ── answer(query, world) ──► Answer ── write ──► bytes
//! ```
#![forbid(unsafe_code)]

mod answer;
mod wire;
mod world;

pub use answer::{Answer, Code, answer};
pub use wire::{Data, Kind, Malformed, Query, Record};
pub use world::{Backend, Service, World};
