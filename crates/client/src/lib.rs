//! What every component stands on to see the cluster and to change it.
//!
//! **It may not know** any component, nor the insides of the API server or its store: it knows
//! the API (`api`) and how to reach one. The same component runs beside the API server in one
//! process, or on another machine over HTTPS, and cannot tell which.
//!
//! ```text
//!  Source      list, watch, call: the one door to an API server
//!   ├ https    over the network: kubeconfig, TLS, protobuf, retries         (on `http`: a pool)
//!   ├ …        in process: the API server as a function, objects shared     (not in this crate)
//!   └ testing  a world in memory, for components' tests
//!  Client      what a component writes with: `create(&pod)`, `patch::<Node>(…)`
//!  definitions what custom resources there are
//!  Informer    one list and watch of one resource, kept up to date and indexed; tells of changes
//!  WorkQueue   keys to be worked on: each once at a time, failures later and later
//!  OwnWrites   has the informer seen what I wrote?
//!  leader      one of many acts: election on a Lease
//!  events      what happened, for people: aggregated, never in anybody's way
//!  tunnel      how a server reaches a machine that it cannot dial
//!  pages       health and metrics over HTTP; Registry: what is counted
//!  strangers   connections of those who have not said who they are
//!  zpages      what a component says of itself: `/statusz`, `/flagz`
//!  Context     clock, randomness, metrics, and the word to stop
//! ```
//!
//! A component's life with it:
//! ```ignore
//! let informers = Informers::new(&context, source.clone());
//! let sets = informers.of::<ReplicaSet>();          // typed forms kept
//! let pods = informers.of::<MyPod>();               // what `impl Keep for MyPod` makes of a pod
//! let by_owner = pods.index("owner", |_, pod| pod.owner.clone());
//! let queue = WorkQueue::new(&context, "replicaset");
//! sets.on_change({ let queue = queue.clone(); move |change| queue.add(change.key.clone()) });
//! informers.synced().await;
//! while let Some(key) = queue.take().await {        // `key` is this worker's until dropped
//!     own_writes.visible(&key, PATIENCE).await;
//!     let world = pods.read();                      // no copy; not across an await
//!     …
//!     match client.create(&pod).await { Ok(made) => own_writes.wrote(&key, &pods, &made), … }
//! }
//! ```
#![forbid(unsafe_code)]

mod client;
mod context;
pub mod definitions;
pub mod events;
pub mod http;
pub mod https;
pub mod informer;
pub mod leader;
mod metrics;
mod own_writes;
pub mod pages;
pub mod queue;
mod registry;
mod resource;
pub mod source;
pub mod strangers;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tunnel;
pub mod zpages;

pub use api::names::NamespacedName;
pub use api::object::{Keep, Object};
pub use api::status::Status;
pub use client::Client;
pub use context::Context;
pub use informer::{Change, Informer, Informers};
pub use metrics::{Metrics, NoMetrics};
pub use own_writes::OwnWrites;
pub use queue::WorkQueue;
pub use registry::{Bounds, Registry};
pub use resource::ApiResource;
pub use source::Source;
