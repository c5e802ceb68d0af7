//! A small client for any API server, by kubeconfig: what load tools and comparisons speak with.
mod connection;
mod kubeconfig;

pub use connection::{Connection, JSON, PROTOBUF};
pub use kubeconfig::Endpoint;
