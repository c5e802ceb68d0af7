//! A small client for any API server, by kubeconfig: what load tools and comparisons speak with.
mod connection;
mod kubeconfig;
mod wire;

pub use connection::{Connection, JSON, PROTOBUF};
pub use kubeconfig::Endpoint;
pub use wire::Wire;
