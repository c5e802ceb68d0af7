//! The container runtime: images, sandboxes, containers. What containerd, runc and pause do
//! upstream, inside the one binary.
//!
//! It speaks CRI v1: as a Rust trait to whoever lives in the same process, as gRPC on a unix socket
//! to everybody else ([`cri`]).
//!
//! **It may not know** what a Pod is, nor who is asking. It knows no API server and no scheduler;
//! networks are given to it ([`network`]).
//!
//! ```text
//!   kubelet (in process)      crictl, upstream's kubelet
//!            └──── [`cri::Cri`] ◄──── gRPC ─┘
//!                      │
//!                 [`Service`]  sandboxes, containers, their records; re-adopts after a restart
//!           ┌──────────┼──────────────┬───────────────┐
//!       [`image`]   container     [`cgroup`]       streaming
//!     pull, unpack   CRI → spec   limits, usage    exec, attach, port-forward
//!                      │
//!                   [`shim`]  one process per sandbox: namespaces, mounts, programs, logs, exits
//! ```
//! **How a container comes to run.** `CreateContainer` makes a folder with a record, which has the
//! configuration. `StartContainer` turns it into a [`shim::spec::ContainerSpec`] and sends it to the
//! sandbox's shim, which forks; the child joins the namespaces, mounts its root where only it can
//! see it, and becomes the program. On the host nothing is mounted for a container, so there is
//! nothing to leak. When it ends, the shim writes down how and tells the daemon, if there is one.
//!
//! A sandbox's handler may name another OCI runtime, which the shim then runs instead
//! ([`shim::oci`]). Some images need no registry: they are made of this executable ([`builtin`]).
#![deny(unsafe_code)]

pub mod builtin;
mod cdi;
pub mod cgroup;
mod container;
pub mod cri;
mod files;
pub mod image;
pub mod network;
pub mod reset;
pub mod rootless;
mod seccomp;
mod service;
pub mod shim;
mod streaming;
pub mod users;

pub use files::{mount_points, remove_folder};
pub use service::{OpenError, Options, Service, Snapshotter, layers_in_use};
