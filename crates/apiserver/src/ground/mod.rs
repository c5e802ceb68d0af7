//! What all else stands on: files and certificates, clients of other servers, turns, names that nobody has
//! had before. Nothing here knows what an object or a request is.
pub mod configuration;
pub mod kubeconfig;
pub mod pki;
pub mod remembered;
mod strength;
pub mod tls;
pub mod towards;
pub mod tunnels;
pub mod turns;
mod uuid;

pub use uuid::uuid;
