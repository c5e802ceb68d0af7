//! The shim: one small process per sandbox that makes its namespaces, starts its containers, keeps
//! their output and remembers how they ended.
//!
//! It is this same executable, run again, before anything else has been set up: one thread, no
//! async runtime, nothing but a loop over `poll`. That is what makes forking safe: between fork and
//! exec a child may allocate, format errors and open files like any program.
//!
//! ```text
//!   daemon ──(unix socket, JSON)──► shim ──clone──► child ──(namespaces, mounts, identity)──► program
//!                                    ▲  reports, or silence once it runs │
//!                                    └─────────── output, exit ◄─────────┘
//! ```
//! Containers are made by our own code, a few hundred lines over the kernel's calls. A library for
//! it (youki's) was considered: it wants a process of its own for each container, brings a netlink,
//! a D-Bus and a BPF stack along, and needs C headers for a system call filter at build time.
//!
//! **Surviving.** The daemon may die at any time; the shim does not notice. Whatever must be known
//! later is added to the container's record: two lines, that it started and how it ended.
//! **It may not know** images, the CRI, or why something runs: it gets plain data ([`spec`]).
mod child;
pub mod identity;
mod inside;
mod launch;
mod logs;
mod mounts;
pub mod oci;
pub mod protocol;
mod running;
mod sandbox;
mod serve;
pub mod spec;
pub mod sys;

pub use serve::main;
