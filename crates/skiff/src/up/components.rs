//! The components of a cluster beside its API server: one row each.
use super::Options;
use super::control_plane::ControlPlane;
use crate::node::kubelet::serving::serving;
use ::apiserver::authn::User;
use ::apiserver::pki::Pki;
use client::{Client, Context, Source};
use controllers::{Settings, Sources};
use futures_util::future::{BoxFuture, FutureExt};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub struct Component {
    pub name: &'static str,
    /// The certificate of whoever takes its place.
    pub client: Option<&'static str>,
    /// Runs until the context stops.
    run: fn(Cluster) -> BoxFuture<'static, anyhow::Result<()>>,
    /// What is waited for, in words, until [`ready`](Self::ready) returns.
    pub waits_for: &'static str,
    pub ready: fn(Cluster) -> BoxFuture<'static, ()>,
}

/// In the order in which they are started.
#[rustfmt::skip]
pub const COMPONENTS: &[Component] = &[
    Component { name: "controller-manager", client: Some("controller-manager"), waits_for: "the first service account", run: |cluster| controller_manager(cluster).boxed(), ready: |cluster| accounts(cluster).boxed() },
    Component { name: "scheduler", client: Some("scheduler"), waits_for: "the scheduler", run: |cluster| scheduler(cluster).boxed(), ready: |_| std::future::ready(()).boxed() },
    Component { name: "kubelet", client: Some("kubelet-client"), waits_for: "the node to be ready", run: |cluster| kubelet(cluster).boxed(), ready: |cluster| node_ready(cluster).boxed() },
];

/// What `--disable` understands.
pub fn names() -> Vec<&'static str> {
    COMPONENTS.iter().map(|row| row.name).chain(["*"]).collect()
}

/// Places of the node; upstream's, because drivers rely on them.
#[derive(clap::Args)]
pub struct NodePlaces {
    /// Where pods' folders are.
    #[arg(long, default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
    /// Where pods' logs are written.
    #[arg(long, default_value = "/var/log/pods")]
    pub pod_logs_dir: PathBuf,
    /// Where sockets and mounts are; a short path.
    #[arg(long, alias = "state", default_value = "/run/skiff")]
    pub state_dir: PathBuf,
    /// The control group that those of pods are below.
    #[arg(long, default_value = NodePlaces::CGROUP_ROOT)]
    pub cgroup_root: String,
}

impl NodePlaces {
    pub const CGROUP_ROOT: &str = "/kubepods";
}

/// What components have in common. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    pub options: Arc<Options>,
    pub pki: Arc<Pki>,
    pub context: Context,
    pub control_plane: Arc<ControlPlane>,
    pub node_name: String,
    pub node_ip: IpAddr,
}

impl Cluster {
    fn source(&self, component: &str, user: &User) -> anyhow::Result<Arc<dyn Source>> {
        self.control_plane.source(&self.context, component, user)
    }
}

const PAUSE: Duration = Duration::from_secs(1);

/// One that fails is said and started again: the others go on.
pub async fn supervise(row: &'static Component, cluster: Cluster) {
    while !cluster.context.is_stopped() {
        match tokio::spawn((row.run)(cluster.clone())).await {
            Ok(Ok(())) if cluster.context.is_stopped() => return,
            Ok(Ok(())) => tracing::error!(component = row.name, "ended by itself"),
            Ok(Err(error)) => tracing::error!(component = row.name, "failed: {error:#}"),
            Err(panic) => tracing::error!(component = row.name, %panic, "panicked"),
        }
        cluster.context.sleep(PAUSE).await;
    }
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    User { name: name.to_owned(), groups, ..User::default() }
}

/// A service account of the system itself.
fn account(name: &str) -> User {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    user(&format!("system:serviceaccount:kube-system:{name}"), &groups)
}

async fn controller_manager(cluster: Cluster) -> anyhow::Result<()> {
    let settings = Settings {
        root_ca: std::fs::read_to_string(cluster.pki.ca())?,
        cluster_cidr: cluster.options.cluster_cidr.clone(),
    };
    let context = cluster.context.clone();
    let name = "kube-controller-manager";
    let shared = cluster.source(name, &user("system:kube-controller-manager", &[]))?;
    let fallback = shared.clone();
    let own = move |name: &str| {
        // It fails only for addresses that are none, and there is none.
        cluster.source(name, &account(name)).unwrap_or_else(|_| fallback.clone())
    };
    let sources = Sources { shared, own: Arc::new(own) };
    controllers::start(&context, &sources, &[], settings)?.await;
    Ok(())
}

async fn scheduler(cluster: Cluster) -> anyhow::Result<()> {
    let source = cluster.source("kube-scheduler", &user("system:kube-scheduler", &[]))?;
    let config = ::scheduler::Config::new(&cluster.node_name);
    ::scheduler::run(&cluster.context, source, config).await;
    Ok(())
}

async fn kubelet(cluster: Cluster) -> anyhow::Result<()> {
    let places = &cluster.options.places;
    let manifests = Some(cluster.options.pod_manifest_path.clone()).filter(|path| path.exists());
    for folder in [&places.kubelet_dir, &places.pod_logs_dir] {
        crate::reset::claim(folder)?;
    }
    let serving = serving(&cluster.pki.pair("kubelet"), Some(&cluster.pki.ca()))?;
    let config = kubelet::Config {
        server: Some(serving),
        root: places.kubelet_dir.clone(),
        log_root: places.pod_logs_dir.clone(),
        manifests,
        cluster_dns: vec![IpAddr::from([10, 96, 0, 10])],
        cgroup_root: places.cgroup_root.clone(),
        ..kubelet::Config::new(&cluster.node_name, cluster.node_ip)
    };
    let name = format!("system:node:{}", cluster.node_name);
    let source = cluster.source("kubelet", &user(&name, &["system:nodes"]))?;
    let runtime = cluster.options.data_dir.join("runtime");
    let runtime = crate::node::open_in(&runtime, &places.state_dir, &places.cgroup_root).await?;
    runtime.serve_streams().await?;
    Ok(kubelet::run(config, source, cluster.context.clone(), Arc::new(runtime)).await?)
}

/// How long until another look.
const LOOK: Duration = Duration::from_millis(20);

async fn look_until<T: api::rules::Form>(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    holds: fn(&T) -> bool,
) {
    let Ok(source) = cluster.source("skiff", &user("system:admin", &["system:masters"])) else {
        return;
    };
    let client = Client::new(source);
    loop {
        if let Ok(found) = client.get::<T>(namespace, name).await
            && found.typed::<T>().is_ok_and(|found| holds(&found))
        {
            return;
        }
        if !cluster.context.sleep(LOOK).await {
            return;
        }
    }
}

async fn accounts(cluster: Cluster) {
    look_until::<ServiceAccount>(&cluster, "default", "default", |_| true).await;
}

async fn node_ready(cluster: Cluster) {
    look_until::<Node>(&cluster, "", &cluster.node_name, |node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
        let mut ready = conditions.unwrap_or_default().iter().filter(|one| one.type_ == "Ready");
        ready.any(|one| one.status == "True")
    })
    .await;
}
