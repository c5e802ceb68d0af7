//! The store: revisions, compare-and-swap, watch.
//!
//! All of the cluster's state is keys such as `/registry/pods/default/web` and values that are an
//! object's bytes. This crate keeps them, gives every change a revision in one global order, lets
//! a writer say which version it has seen, and tells watchers what changed. The model and its
//! words are etcd's ([`model`]), so an etcd cluster can take the place of what is built in.
//!
//! **It may not know** what a value means: no JSON, no kinds, no namespaces, no resource versions,
//! no HTTP. What depends on the meaning (an index term) is a function the caller brings. Only the
//! API server may know this crate.
//!
//! ```text
//!                 lists, watches, consistent reads         writes, single reads
//!                              │                                    │
//!                        [`WatchCache`]                             │
//!                   one per resource prefix                         │
//!                              └────────────►  [`Store`]  ◄─────────┘
//!                                         ┌────────┴────────┐
//!                                   [`Embedded`]         [`Etcd`]
//!                          memory, log, one process     an etcd v3 cluster
//!                                         │
//!                                      [`Face`]
//!                             etcd's API, off by default
//! ```
//! - [`Store`] is the interface: get, range, guarded writes, small transactions, watch, leases,
//!   compaction. One contract, `tests/it/contract.rs`, is run against every engine, and against
//!   the etcd engine talking to the face.
//! - [`embedded`] is the default engine. Its page says what is durable, when, and why it is ours.
//! - [`etcd`] is the same interface over a real etcd cluster, for high availability.
//! - [`Transformer`] is what a caller may put between values and the engine: encryption at rest.
//! - [`cache`] serves a resource's readers from shared bytes, whichever engine is below.
//! - [`face`] lets etcd's own tools, and upstream's API server, work on the embedded engine.
//!
//! **How a change travels** (embedded): a writer's transaction waits in the queue; the committer
//! takes all that wait, checks their guards against the state, appends one frame to the log, syncs
//! it, publishes the new revision and answers. Publishing wakes the watches whose range was
//! touched; each cache's feed is one of them, and wakes in turn the clients whose selection was.
//! The version a client is sent is the very allocation the engine keeps.
//!
//! **Errors** are one enum, [`Error`]. A guard that did not hold is not among them: it is an
//! [`Outcome`], with the current version, because the caller's next step is to decide again.
//!
//! [`Embedded`]: embedded::Embedded
//! [`Etcd`]: etcd::Etcd
//! [`Face`]: face::Face
//! [`WatchCache`]: cache::WatchCache
#![forbid(unsafe_code)]

pub mod cache;
pub mod embedded;
pub mod error;
pub mod etcd;
pub mod face;
pub mod model;
mod proto;
mod signal;
mod slot;
mod store;
mod transform;

pub use error::{Error, Result};
pub use model::*;
pub use slot::Slot;
pub use store::{Progress, Store, Watch};
pub use transform::{Opened, Opening, Transformer};
