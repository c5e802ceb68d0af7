//! The store from outside: one contract for every engine, then what each engine owes beyond it.
#![allow(clippy::unwrap_used, reason = "tests: a panic is the report")]
mod cache;
mod contract;
mod crash;
mod embedded;
mod etcd;
mod etcd_server;
mod every_crash;
mod face;
mod linearizability;
mod sim_disk;
mod transform;
