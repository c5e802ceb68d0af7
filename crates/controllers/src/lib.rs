//! The control loops: what is wanted, compared with what is, and the difference done.
//!
//! **It may not know** HTTP, nor the API server's insides: it sees the cluster through `client`
//! alone, and cannot tell whether the API server is in the same process.
//!
//! Each loop is one row of [`CONTROLLERS`]: what wakes it ([`Controller::watch`]), and what it
//! decides ([`Controller::reconcile`], a pure function of what informers keep and of the time).
//! One driver runs them all.
//!
//! ```text
//!  driver   watch → queue → wait for one's own writes → decide → do → again
//!  world    what a decision may look at
//!  action   what a decision comes to;  apply: doing it
//! ```
#![forbid(unsafe_code)]

pub mod action;
mod apply;
mod claim;
mod clusterrole_aggregation;
mod cronjob;
pub mod csr;
mod daemonset;
mod definitions;
mod deployment;
mod disruption;
mod driver;
mod endpoints;
mod endpointslice;
mod endpointslice_mirroring;
mod ephemeral_volume;
mod garbage;
mod history;
mod job;
mod namespace;
mod node_ipam;
mod node_lifecycle;
mod persistentvolume;
mod pod_gc;
mod pods;
mod pv_protection;
mod pvc_protection;
mod replicaset;
mod resourcequota;
mod root_ca;
mod serviceaccount;
mod statefulset;
mod taint_eviction;
#[cfg(test)]
mod testing;
mod ttl;
mod ttl_after_finished;
mod vac_protection;
mod world;

pub use driver::{Controller, Row, Watching};
pub use world::World;

use client::{Client, Context, Informers, Source};
use futures_util::future::join_all;
use std::sync::Arc;

/// Every control loop, in the order in which they are started.
pub static CONTROLLERS: &[&dyn Row] = &[
    &serviceaccount::CONTROLLER,
    &root_ca::CONTROLLER,
    &namespace::CONTROLLER,
    &replicaset::CONTROLLER,
    &replicaset::REPLICATION_CONTROLLER,
    &deployment::CONTROLLER,
    &daemonset::CONTROLLER,
    &statefulset::CONTROLLER,
    &endpointslice::CONTROLLER,
    &endpoints::CONTROLLER,
    &endpointslice_mirroring::CONTROLLER,
    &job::CONTROLLER,
    &cronjob::CONTROLLER,
    &ttl_after_finished::CONTROLLER,
    &node_lifecycle::CONTROLLER,
    &node_ipam::CONTROLLER,
    &taint_eviction::CONTROLLER,
    &pod_gc::CONTROLLER,
    &disruption::CONTROLLER,
    &resourcequota::CONTROLLER,
    &csr::approving::CONTROLLER,
    &csr::approving::OF_NODES,
    &csr::signing::CONTROLLER,
    &csr::cleaner::CONTROLLER,
    &ttl::CONTROLLER,
    &persistentvolume::CONTROLLER,
    &ephemeral_volume::CONTROLLER,
    &pvc_protection::CONTROLLER,
    &pv_protection::CONTROLLER,
    &vac_protection::CONTROLLER,
    &clusterrole_aggregation::CONTROLLER,
    &garbage::CONTROLLER,
];

/// What a cluster's administrator decides.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The certificates that pods trust the API server by, PEM; empty: nobody publishes them.
    pub root_ca: String,
    /// Where pods' addresses are from, `10.244.0.0/16`; empty: nodes get no part of it.
    pub cluster_cidr: String,
    /// Who signs certificates; without one nobody does.
    pub authority: Option<csr::Authority>,
    /// Whether nodes get what they serve with, and what their kube-proxies are known by, without anybody
    /// looking: upstream leaves that to others.
    pub approve_of_nodes: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no controller; there are: {known}", known = names().join(", "))]
pub struct Unknown(String);

/// The names that `--controllers` understands.
pub fn names() -> Vec<&'static str> {
    CONTROLLERS.iter().map(|row| row.name()).collect()
}

/// Rows that a list of names selects: `*` all of them, `-name` all but this one, as upstream's
/// `--controllers` has it. What is named counts before `*`; an empty list is `*`.
pub fn select(names: &[String]) -> Result<Vec<&'static dyn Row>, Unknown> {
    for name in names.iter().map(|name| name.strip_prefix('-').unwrap_or(name)) {
        if name != "*" && !CONTROLLERS.iter().any(|row| row.name() == name) {
            return Err(Unknown(name.to_owned()));
        }
    }
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    let is_on = |row: &&dyn Row| {
        let name = row.name();
        has(name) || (!has(&format!("-{name}")) && (names.is_empty() || has("*")))
    };
    Ok(CONTROLLERS.iter().copied().filter(is_on).collect())
}

/// Who controllers are to the API server.
#[derive(Clone)]
pub struct Sources {
    /// Reads for all of them.
    pub shared: Arc<dyn Source>,
    /// What a controller writes with, by its service account in `kube-system`, if they have one each.
    pub own: ByAccount,
}

pub type ByAccount = Arc<dyn Fn(&str) -> Arc<dyn Source> + Send + Sync>;

impl Sources {
    /// All of them are the same.
    pub fn one(source: Arc<dyn Source>) -> Sources {
        let own = source.clone();
        Sources { shared: source, own: Arc::new(move |_| own.clone()) }
    }
}

/// Runs the selected controllers until the context stops.
pub fn start(
    context: &Context,
    sources: &Sources,
    names: &[String],
    settings: Settings,
) -> Result<impl Future<Output = ()> + Send + use<>, Unknown> {
    let rows = select(names)?;
    let informers = Informers::new(context, sources.shared.clone());
    let world = World::new(informers, settings, context.now());
    let start = |row: &dyn Row| {
        let client =
            Client::new((sources.own)(row.account())).managed_by("kube-controller-manager");
        tokio::spawn(row.start(context, &client, &world))
    };
    let running: Vec<_> = rows.into_iter().map(start).collect();
    Ok(async move {
        join_all(running).await;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_as_upstreams_flag_does() {
        let count = |list: &[&str]| {
            let names: Vec<_> = list.iter().map(|name| (*name).to_owned()).collect();
            select(&names).map(|rows| rows.len()).map_err(|error| error.to_string())
        };
        let all = CONTROLLERS.len();
        assert_eq!(count(&[]), Ok(all));
        assert_eq!(count(&["*"]), Ok(all));
        assert_eq!(count(&["*", "-serviceaccount-controller"]), Ok(all - 1));
        assert_eq!(count(&["serviceaccount-controller"]), Ok(1));
        assert!(count(&["nonsense"]).unwrap_err().starts_with("\"nonsense\" is no controller"));
    }
}
