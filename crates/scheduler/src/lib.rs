//! The scheduler: which node a pod goes to.
//!
//! **It may not know** how its picture of the cluster is fed, nor the API server's insides: what
//! decides ([`decide`]) is told of objects one by one and answers with a [`decide::Decision`];
//! what talks to the API ([`run`]) sees it through `client` alone.
//!
//! ```text
//!  pod · node         what is kept of an object: wishes and offers, compiled once per version
//!  cluster            rows of nodes with their pods, changed one object at a time, never copied
//!  devices            what drivers offer, and who has which; claims → devices
//!  filter             may it be there?   one row per plugin, in upstream's order
//!  score              how good is it?    one row per plugin, with upstream's weights
//!  decide             filter some nodes, score them, choose; or say why not
//!  preemption         whose going would make room
//!  extend             who else has a say: programs beside the scheduler
//!  config             profiles: which plugins, with which weights and arguments
//!  queue              who is next: by priority and age; who waits, and what for
//!  engine             changes in, decisions out; no IO
//!  driver             informers → engine → bindings, conditions and events, side by side
//! ```
//!
//! One task decides, one pod at a time, on state that it alone has; everything that waits for the
//! API server is done by others. A pod is counted where it was placed from the moment it is
//! decided (assumed), and taken away again if its binding fails.
#![forbid(unsafe_code)]

mod cluster;
pub mod config;
pub mod decide;
mod devices;
mod disks;
mod driver;
mod engine;
mod event;
pub mod extend;
#[cfg(test)]
mod faults;
pub mod filter;
mod gang;
mod message;
mod node;
mod pod;
mod preemption;
mod queue;
mod reasons;
mod resources;
pub mod score;
mod selectors;
mod taints;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use cluster::{Cluster, Labelled, Owner};
pub use config::Configuration;
pub use driver::run;
pub use engine::{Engine, Nomination, Task};
pub use gang::{Gangs, Group};
pub use node::NodeInfo;
pub use pod::PodInfo;
pub use reasons::{Pending, Said};

/// What a cluster's administrator decides.
#[derive(Debug, Clone)]
pub struct Config {
    pub configuration: Configuration,
    /// Where it runs: its events are from `default-scheduler-HOST`.
    pub host: String,
    /// Where it says why pods wait.
    pub pending: Pending,
}

impl Config {
    pub fn new(host: &str) -> Config {
        Config {
            configuration: Configuration::default(),
            host: host.to_owned(),
            pending: Pending::default(),
        }
    }
}
