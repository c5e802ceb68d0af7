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
mod attach_detach;
pub mod autoscaler;
mod claim;
mod clusterrole_aggregation;
mod cronjob;
pub mod csr;
mod daemonset;
mod definitions;
mod deployment;
mod device_taint_eviction;
mod disruption;
mod driver;
mod endpoints;
mod endpointslice;
mod endpointslice_mirroring;
mod ephemeral_volume;
mod garbage;
mod history;
mod job;
pub mod local_storage;
mod namespace;
mod node_ipam;
pub mod node_lifecycle;
mod persistentvolume;
mod pod_gc;
mod podgroup_protection;
mod pods;
pub mod policy_status;
mod pv_protection;
mod pvc_protection;
mod replicaset;
mod resource_claim;
mod resource_pool_status;
mod resourcequota;
mod root_ca;
mod selinux_warning;
mod service_cidr;
pub mod service_lb;
mod serviceaccount;
mod statefulset;
mod storage_version_gc;
mod storage_version_migration;
mod taint_eviction;
#[cfg(test)]
mod testing;
pub mod tokens;
mod trust_bundle;
mod ttl;
mod ttl_after_finished;
mod vac_protection;
mod volume_expand;
mod world;

pub use driver::{Controller, Row, Watching};
pub use world::World;

use client::{Client, Context, Informers, Source};
use futures_util::future::join_all;
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Every control loop, in the order in which they are started.
pub static CONTROLLERS: &[&dyn Row] = &[
    &serviceaccount::CONTROLLER,
    &root_ca::CONTROLLER,
    &trust_bundle::CONTROLLER,
    &tokens::legacy::CONTROLLER,
    &tokens::legacy_cleaner::CONTROLLER,
    &tokens::cleaner::CONTROLLER,
    &tokens::bootstrap_signer::CONTROLLER,
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
    &service_cidr::CONTROLLER,
    &taint_eviction::CONTROLLER,
    &device_taint_eviction::CONTROLLER,
    &pod_gc::CONTROLLER,
    &disruption::CONTROLLER,
    &autoscaler::CONTROLLER,
    &resourcequota::CONTROLLER,
    &resource_claim::CONTROLLER,
    &csr::approving::CONTROLLER,
    &csr::approving::OF_NODES,
    &csr::signing::CONTROLLER,
    &csr::cleaner::CONTROLLER,
    &csr::pod_certificates::CONTROLLER,
    &ttl::CONTROLLER,
    &persistentvolume::CONTROLLER,
    &attach_detach::CONTROLLER,
    &volume_expand::CONTROLLER,
    &ephemeral_volume::CONTROLLER,
    &pvc_protection::CONTROLLER,
    &pv_protection::CONTROLLER,
    &vac_protection::CONTROLLER,
    &clusterrole_aggregation::CONTROLLER,
    &storage_version_migration::CONTROLLER,
    &storage_version_gc::CONTROLLER,
    &policy_status::CONTROLLER,
    &podgroup_protection::CONTROLLER,
    &resource_pool_status::CONTROLLER,
    &selinux_warning::CONTROLLER,
    &service_lb::CONTROLLER,
    &garbage::CONTROLLER,
];

/// Those that run only if they are named: upstream leaves them off, or waits for a feature gate whose
/// kinds no API server serves by default.
pub const ON_DEMAND: &[&str] = &[
    "bootstrap-signer-controller",
    "podgroup-protection-controller",
    "resourcepoolstatusrequest-controller",
    "selinux-warning-controller",
    "storageversion-garbage-collector-controller",
    "token-cleaner-controller",
];

/// Those that upstream's controller manager does not have: nodes' own certificates, whose approval it
/// leaves to others, and balancers, which are for the managers of clouds.
pub const OUR_OWN: &[&str] = &[csr::approving::OF_NODES.name, service_lb::CONTROLLER.name];

/// What a cluster's administrator decides.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The certificates that pods trust the API server by, PEM; empty: nobody publishes them.
    pub root_ca: String,
    /// Where pods' addresses are from, `10.244.0.0/16`, one of each family at most and a comma
    /// between; empty: nodes get no part of it.
    pub cluster_cidr: String,
    /// Whether nodes get a part of it from us.
    pub allocate_node_cidrs: bool,
    /// How many bits of an address are the node's.
    pub node_cidr_mask_ipv4: u32,
    pub node_cidr_mask_ipv6: u32,
    /// Who signs tokens that live in Secrets; without one they stay empty.
    pub token_signer: Option<tokens::Signer>,
    /// How long nobody has used such a token that was made by itself, before it is taken away.
    pub legacy_token_clean_up_period: SignedDuration,
    /// A node that is lost keeps its volumes, until somebody says that it is out of service.
    pub keep_attached: bool,
    /// Who signs certificates.
    pub signers: csr::Signers,
    /// Whether nodes get what they serve with, and what their kube-proxies are known by, without anybody
    /// looking: upstream leaves that to others.
    pub approve_of_nodes: bool,
    /// Where the API server is found: no node gets a certificate for that.
    pub servers: Vec<IpAddr>,
    /// Who checks expressions of policies against the kinds that they are about; without one nobody does.
    pub policy_check: Option<policy_status::Check>,
    /// A cloud's load balancers; without one services get none from here.
    pub load_balancers: Option<service_lb::Provider>,
    /// As many pods that have ended stay; 0: all of them.
    pub terminated_pod_gc_threshold: usize,
    pub autoscaler: autoscaler::Settings,
    pub nodes: node_lifecycle::Settings,
    /// How many keys a row works on at once, where it is not as upstream has it.
    pub workers: BTreeMap<&'static str, usize>,
}

impl Default for Settings {
    /// Upstream's.
    fn default() -> Settings {
        Settings {
            root_ca: String::new(),
            cluster_cidr: String::new(),
            allocate_node_cidrs: true,
            node_cidr_mask_ipv4: 24,
            node_cidr_mask_ipv6: 64,
            token_signer: None,
            legacy_token_clean_up_period: SignedDuration::from_hours(365 * 24),
            keep_attached: false,
            signers: csr::Signers::default(),
            approve_of_nodes: false,
            servers: Vec::new(),
            policy_check: None,
            load_balancers: None,
            terminated_pod_gc_threshold: 12_500,
            autoscaler: autoscaler::Settings::default(),
            nodes: node_lifecycle::Settings::default(),
            workers: BTreeMap::new(),
        }
    }
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
        let is_usual = !ON_DEMAND.contains(&name) && (names.is_empty() || has("*"));
        has(name) || (is_usual && !has(&format!("-{name}")))
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
    Ok(run(context, sources, select(names)?, settings, "kube-controller-manager"))
}

/// Runs these rows until the context stops; what they write is that manager's.
pub fn run(
    context: &Context,
    sources: &Sources,
    rows: Vec<&'static dyn Row>,
    settings: Settings,
    manager: &'static str,
) -> impl Future<Output = ()> + Send + use<> {
    let informers = Informers::new(context, sources.shared.clone());
    let world = World::new(informers, settings, context.now());
    let start = |row: &dyn Row| {
        let source = match row.account() {
            "" => sources.shared.clone(),
            account => (sources.own)(account),
        };
        let client = Client::new(source).managed_by(manager);
        tokio::spawn(row.start(context, &client, &world))
    };
    let running: Vec<_> = rows.into_iter().map(start).collect();
    async move {
        join_all(running).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An API server that goes away as soon as it has come keeps nobody from ending.
    #[tokio::test(start_paused = true)]
    async fn whoever_is_asked_to_end_before_anything_is_known_ends() {
        let context = Context::new();
        let world = client::testing::World::new(&context);
        world.refuse(|_| Some(client::Status::service_unavailable("not yet")));
        let sources = Sources::one(world.source());
        let running = start(&context, &sources, &[], Settings::default()).unwrap();
        let running = tokio::spawn(running);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        context.stop();
        let ended = tokio::time::timeout(std::time::Duration::from_secs(1), running).await;
        ended.expect("in time").expect("nobody broke off");
    }

    /// The names of upstream's `cmd/kube-controller-manager/names`, all 49.
    const UPSTREAMS: &[&str] = &[
        "bootstrap-signer-controller",
        "certificatesigningrequest-approving-controller",
        "certificatesigningrequest-cleaner-controller",
        "certificatesigningrequest-signing-controller",
        "clusterrole-aggregation-controller",
        "cronjob-controller",
        "daemonset-controller",
        "deployment-controller",
        "device-taint-eviction-controller",
        "disruption-controller",
        "endpoints-controller",
        "endpointslice-controller",
        "endpointslice-mirroring-controller",
        "ephemeral-volume-controller",
        "garbage-collector-controller",
        "horizontal-pod-autoscaler-controller",
        "job-controller",
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "legacy-serviceaccount-token-cleaner-controller",
        "namespace-controller",
        "node-ipam-controller",
        "node-lifecycle-controller",
        "persistentvolume-attach-detach-controller",
        "persistentvolume-binder-controller",
        "persistentvolume-expander-controller",
        "persistentvolume-protection-controller",
        "persistentvolumeclaim-protection-controller",
        "pod-garbage-collector-controller",
        "podcertificaterequest-cleaner-controller",
        "podgroup-protection-controller",
        "replicaset-controller",
        "replicationcontroller-controller",
        "resourceclaim-controller",
        "resourcepoolstatusrequest-controller",
        "resourcequota-controller",
        "root-ca-certificate-publisher-controller",
        "selinux-warning-controller",
        "service-cidr-controller",
        "serviceaccount-controller",
        "serviceaccount-token-controller",
        "statefulset-controller",
        "storage-version-migrator-controller",
        "storageversion-garbage-collector-controller",
        "taint-eviction-controller",
        "token-cleaner-controller",
        "ttl-after-finished-controller",
        "ttl-controller",
        "validatingadmissionpolicy-status-controller",
        "volumeattributesclass-protection-controller",
    ];

    #[test]
    fn every_row_has_upstreams_name_once() {
        let mut found = names();
        found.retain(|name| !OUR_OWN.contains(name));
        found.sort_unstable();
        assert_eq!(found, UPSTREAMS);
        assert_eq!(found.len(), 49);
    }

    /// Each row's own file, or its folder, has tests.
    #[test]
    fn every_row_has_tests() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
        let files = |folder: &std::path::Path| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let mut modules: Vec<String> = Vec::new();
        for path in files(&root).into_iter().filter(|path| !path.ends_with("lib.rs")) {
            let inner = files(&path);
            match inner.is_empty() {
                true => modules.push(read(&path)),
                false => modules.push(inner.iter().map(|path| read(path)).collect()),
            }
        }
        for name in names() {
            let named = format!("name: \"{name}\"");
            let own = modules.iter().find(|text| text.contains(&named));
            let own = own.unwrap_or_else(|| panic!("no module says {named}"));
            assert!(own.contains("#[test]"), "nothing tests the {name}");
        }
    }

    #[test]
    fn names_select_as_upstreams_flag_does() {
        let count = |list: &[&str]| {
            let names: Vec<_> = list.iter().map(|name| (*name).to_owned()).collect();
            select(&names).map(|rows| rows.len()).map_err(|error| error.to_string())
        };
        let all = CONTROLLERS.len() - ON_DEMAND.len();
        assert_eq!(count(&[]), Ok(all));
        assert_eq!(count(&["*"]), Ok(all));
        assert_eq!(count(&["*", "-serviceaccount-controller"]), Ok(all - 1));
        assert_eq!(count(&["serviceaccount-controller"]), Ok(1));
        assert_eq!(count(&["*", "token-cleaner-controller"]), Ok(all + 1));
        assert!(count(&["nonsense"]).unwrap_err().starts_with("\"nonsense\" is no controller"));
    }
}
