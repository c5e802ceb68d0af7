//! The runtime with real containers, a real registry, hostile images. These tests need root, and
//! leave nothing behind.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod builtin;
mod containers;
mod containment;
mod deaths;
mod devices;
mod handlers;
mod hostile;
mod images;
mod machine;
mod registry;
mod restart;
mod streams;
mod unified;
