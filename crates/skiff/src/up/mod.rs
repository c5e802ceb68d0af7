//! `skiff up`: a cluster on this machine, with nothing to configure.
//!
//! ```text
//!  preflight      what the machine lacks, said before anything is touched
//!  control_plane  the store and the API server
//!  components     everything else, one row each: started in order, left out with `--disable`
//!  checklist      what is ready, and what is waited for
//! ```
//! Components meet in the API alone. Here they reach it within the process, each as whom upstream's
//! would be and with no right more.
mod addons;
mod checklist;
mod components;
mod control_plane;
mod preflight;

use crate::node::Embedded;
use ::apiserver::pki::{Pki, own_address};
use anyhow::Context as _;
use checklist::Checklist;
use client::Context;
pub use components::NodePlaces;
use components::{COMPONENTS, Cluster};
use control_plane::ControlPlane;
use network::NodeNetwork;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long components have to end.
const DRAIN: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub struct Options {
    /// Where the cluster's state and keys are kept.
    #[arg(long, default_value = "/var/lib/skiff")]
    data_dir: PathBuf,
    /// The API server's port; 0 takes a free one.
    #[arg(long, default_value_t = 6443)]
    port: u16,
    /// The address the API server listens on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,
    /// Where to write the administrator's kubeconfig; by default into the data directory.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Components to leave out, for others to take their place; their kubeconfigs are written into
    /// the data directory. `*` is all of them.
    #[arg(long, value_delimiter = ',', value_parser = components::names())]
    disable: Vec<String>,
    /// The node's name; by default the machine's.
    #[arg(long)]
    node_name: Option<String>,
    /// The node's address; by default the one that packets to others carry.
    #[arg(long)]
    node_ip: Option<IpAddr>,
    /// Where pods' addresses are from.
    #[arg(long, default_value = "10.244.0.0/16")]
    cluster_cidr: String,
    /// A folder of static pods' manifests.
    #[arg(long, default_value = "/etc/kubernetes/manifests")]
    pod_manifest_path: PathBuf,
    #[command(flatten)]
    places: NodePlaces,
}

impl Options {
    fn runs(&self, component: &str) -> bool {
        !self.disable.iter().any(|disabled| disabled == component || disabled == "*")
    }

    /// The container runtime that pods run on.
    fn embedded(&self) -> Embedded {
        let places = &self.places;
        let root = self.data_dir.join("runtime");
        Embedded::at(root, &places.state_dir, &places.cgroup_root)
    }

    /// The pod network, unless somebody else makes one.
    fn network(&self) -> anyhow::Result<Option<NodeNetwork>> {
        let embedded = self.embedded();
        if !self.runs("kubelet") || crate::node::cni(&embedded.places).is_some() {
            return Ok(None);
        }
        let settings = network::Settings {
            cluster_cidrs: vec![self.cluster_cidr.parse()?],
            ..network::Settings::new(embedded.places.pod_network())
        };
        Ok(Some(NodeNetwork::open(settings)?))
    }

    fn node_name(&self) -> anyhow::Result<String> {
        let name = match &self.node_name {
            Some(name) => name.clone(),
            None => std::fs::read_to_string("/proc/sys/kernel/hostname")
                .context("failed to read the machine's name")?,
        };
        Ok(name.trim().to_lowercase())
    }
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let stop = crate::stop_signal()?;
    let mut checklist = Checklist::start();
    preflight::check(&options)?;
    let node_name = options.node_name()?;
    let node_ip = options.node_ip.or_else(own_address).unwrap_or(Ipv4Addr::LOCALHOST.into());
    let addresses = [options.bind_address, node_ip];
    let pki = Pki::open_for(&options.data_dir.join("pki"), &addresses)?.with_node(&node_name)?;
    let pki = Arc::new(pki);
    let control_plane = ControlPlane::start(&options, &pki).await?;
    let server = format!("https://{}", control_plane.address);
    let folder = options.data_dir.clone();
    let kubeconfig = options.kubeconfig.clone().unwrap_or_else(|| folder.join("kubeconfig"));
    let mut files = vec![("admin", kubeconfig.clone())];
    for row in COMPONENTS.iter().filter(|row| !options.runs(row.name)) {
        files.extend(row.client.map(|client| (client, folder.join(format!("{}.conf", row.name)))));
    }
    let write = {
        let server = server.clone();
        move |pki: &Pki| -> Result<(), ::apiserver::pki::Error> {
            files.iter().try_for_each(|(client, path)| pki.write_kubeconfig(path, &server, client))
        }
    };
    write(&pki)?;
    let keeping = pki.clone();
    tokio::spawn(async move { keeping.keep(write).await });
    checklist.done("api-server");

    let context = Context::new();
    let network = options.network()?;
    let cluster = Cluster {
        options: Arc::new(options),
        pki,
        context: context.clone(),
        control_plane: Arc::new(control_plane),
        node_name,
        node_ip,
        network,
    };
    let running: Vec<_> = COMPONENTS
        .iter()
        .filter(|row| cluster.options.runs(row.name))
        .map(|row| (row, tokio::spawn(components::supervise(row, cluster.clone()))))
        .collect();
    let readiness = async {
        for row in COMPONENTS.iter().filter(|row| cluster.options.runs(row.name)) {
            checklist.wait_for(row.waits_for);
            (row.ready)(cluster.clone()).await;
            checklist.done(row.name);
        }
        checklist.end();
        println!("skiff is ready at {server}: export KUBECONFIG={}", kubeconfig.display());
    };
    tokio::pin!(stop);
    tokio::select! {
        () = &mut stop => {}
        () = readiness => stop.await,
    }
    context.stop();
    for (row, task) in running {
        if tokio::time::timeout(DRAIN, task).await.is_err() {
            tracing::warn!(component = row.name, "it does not end");
        }
    }
    match Arc::try_unwrap(cluster.control_plane) {
        Ok(control_plane) => control_plane.stop().await,
        // Somebody did not end: what was acknowledged is on the disk all the same.
        Err(_) => Ok(()),
    }
}
