//! The kubelet: pods that are bound to this node → ordered steps on a container runtime.
#![forbid(unsafe_code)]

mod backoff;
pub mod config;
mod container;
mod found;
mod node;
mod plan;
mod pod;
pub mod runtime;
mod status;
mod volumes;
#[cfg(test)]
mod testing;
