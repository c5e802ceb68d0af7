//! Devices: what drivers offer in ResourceSlices, and who has which (dynamic resource allocation).
//!
//! ```text
//!  ledger      slices, classes, claims, taint rules; which devices are taken, kept up to date
//!  pools       the slices of one node, pool by pool: complete, valid, with counters
//!  allocate    claims + pools of a node → devices for each request, or nothing; pure
//!  constraint  devices of a claim that must be alike, or differ
//!  capacity    devices that are shared: how much a request takes
//!  extended    resources that a node does not have and a device class does
//! ```
//! It is upstream's `structured` allocator (`k8s.io/dynamic-resource-allocation/structured`): the same
//! order of search, so that the same devices are found.
pub mod allocate;
mod capacity;
mod constraint;
pub mod extended;
pub mod ledger;
mod pools;
#[cfg(test)]
mod tests;

pub use allocate::{Failure, allocate};
pub use ledger::{Ledger, PodClaim, allocation, key_of, requests, results};
