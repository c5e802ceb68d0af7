//! This machine as a node: its name and address, where its state is, and how its pods are connected.
//! A cluster of its own and one that it joins need the same.
use crate::node::Embedded;
use anyhow::Context as _;
use network::NodeNetwork;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Machine {
    /// Where state and keys are kept.
    #[arg(long, default_value = "/var/lib/skiff")]
    pub data_dir: PathBuf,
    /// The node's name; by default the machine's.
    #[arg(long)]
    node_name: Option<String>,
    /// The node's address; by default the one that packets to others carry.
    #[arg(long)]
    node_ip: Option<IpAddr>,
    /// Where pods' addresses are from.
    #[arg(long, default_value = "10.244.0.0/16")]
    pub cluster_cidr: String,
    /// A folder of static pods' manifests.
    #[arg(long, default_value = "/etc/kubernetes/manifests")]
    pub pod_manifest_path: PathBuf,
    /// Mirrors, credentials and authorities of registries.
    #[arg(long, default_value = "/etc/skiff/registries.yaml")]
    registries: PathBuf,
    #[command(flatten)]
    pub places: NodePlaces,
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

impl Machine {
    /// The container runtime that pods run on.
    pub fn embedded(&self) -> Embedded {
        let places = &self.places;
        let root = self.data_dir.join("runtime");
        Embedded::at(root, &places.state_dir, &places.cgroup_root, self.registries.clone())
    }

    /// The pod network, unless somebody else makes one; whether somebody minds policies in it.
    pub fn network(&self, policies: bool) -> anyhow::Result<Option<NodeNetwork>> {
        let embedded = self.embedded();
        if crate::node::cni(&embedded.places).is_some() {
            return Ok(None);
        }
        let settings = network::Settings {
            cluster_cidrs: vec![self.cluster_cidr.parse()?],
            policies,
            ..network::Settings::new(embedded.places.pod_network())
        };
        Ok(Some(NodeNetwork::open(settings)?))
    }

    pub fn node_name(&self) -> anyhow::Result<String> {
        let name = match &self.node_name {
            Some(name) => name.clone(),
            None => std::fs::read_to_string("/proc/sys/kernel/hostname")
                .context("failed to read the machine's name")?,
        };
        Ok(name.trim().to_lowercase())
    }

    pub fn node_ip(&self) -> IpAddr {
        let own = self.node_ip.or_else(::apiserver::pki::own_address);
        own.unwrap_or(Ipv4Addr::LOCALHOST.into())
    }
}
