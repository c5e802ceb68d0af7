//! The store: revisions, compare-and-swap, watch.
//!
//! All of the cluster's state is keys such as `/registry/pods/default/web` and values that are an
//! object's bytes. This crate keeps them, gives every change a revision in one global order, lets
//! a writer say which version it has seen, and tells watchers what changed. The model and its
//! words are etcd's ([`model`]), so an etcd cluster can take the place of what is built in.
//!
//! **It may not know** what a value means: no JSON, no kinds, no namespaces, no resource versions,
//! no HTTP. What depends on the meaning (an index, a filter) is a function the caller brings.
//! Only the API server may know this crate.
#![forbid(unsafe_code)]

pub mod cache;
pub mod embedded;
pub mod error;
pub mod etcd;
pub mod face;
pub mod model;
mod proto;
mod signal;
mod store;

pub use error::{Error, Result};
pub use model::*;
pub use store::{Progress, Store, Watch};
