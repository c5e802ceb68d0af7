//! This machine as a node: its name and address, where its state is, and how its pods are connected.
//! A cluster of its own and one that it joins need the same.
use crate::node::{Embedded, Plugins};
use anyhow::Context as _;
use network::{Cidr, NodeNetwork};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Machine {
    /// A file of settings that are named as these flags are; a flag counts for more.
    // It is read before flags are (`configuration`).
    #[arg(long, default_value = crate::configuration::DEFAULT)]
    config: PathBuf,
    /// Where state and keys are kept.
    #[arg(long, default_value_os_t = crate::places::data_dir())]
    pub data_dir: PathBuf,
    /// The node's name; by default the machine's.
    #[arg(long)]
    node_name: Option<String>,
    /// The node's address, or one of each family joined by a comma; by default those that packets to
    /// others carry, of the families that pods have.
    #[arg(long, value_parser = addresses)]
    node_ip: Option<Addresses>,
    /// Where pods' addresses are from; two of different families, joined by a comma, for both.
    #[arg(long, default_value = "10.244.0.0/16", value_parser = cidrs)]
    pub cluster_cidr: String,
    /// Where services' addresses are from; two of different families, joined by a comma, for both.
    #[arg(long, visible_alias = "service-cluster-ip-range", default_value = "10.96.0.0/12",
        value_parser = cidrs)]
    pub service_cidr: String,
    /// Encrypt what pods of different nodes say to each other, by WireGuard; on every machine of the cluster.
    #[arg(long)]
    pub encrypt: bool,
    /// A folder of static pods' manifests.
    #[arg(long, default_value = "/etc/kubernetes/manifests")]
    pub pod_manifest_path: PathBuf,
    /// Mirrors, credentials and authorities of registries.
    #[arg(long, default_value = "/etc/skiff/registries.yaml")]
    registries: PathBuf,
    /// The socket of a container runtime that pods run on in the place of the embedded one:
    /// `unix:///run/containerd/containerd.sock`. Images and the pod network (CNI) are then that runtime's.
    #[arg(long, value_parser = crate::node::socket)]
    pub container_runtime_endpoint: Option<PathBuf>,
    /// The port at which this node serves Ingresses.
    #[arg(long, default_value_t = 80)]
    pub ingress_http_port: u16,
    /// The port at which this node serves Ingresses by TLS.
    #[arg(long, default_value_t = 443)]
    pub ingress_https_port: u16,
    #[command(flatten)]
    plugins: Plugins,
    #[command(flatten)]
    pub places: NodePlaces,
}

/// Places of the node; upstream's, because drivers rely on them.
#[derive(clap::Args)]
pub struct NodePlaces {
    /// Where pods' folders are.
    #[arg(long, default_value_os_t = crate::places::kubelet_dir())]
    pub kubelet_dir: PathBuf,
    /// Where pods' logs are written.
    #[arg(long, default_value_os_t = crate::places::pod_logs_dir())]
    pub pod_logs_dir: PathBuf,
    /// Where sockets and mounts are; a short path.
    #[arg(long, alias = "state", default_value_os_t = crate::places::state_dir())]
    pub state_dir: PathBuf,
    /// The control group that those of pods are below.
    #[arg(long, default_value = NodePlaces::CGROUP_ROOT)]
    pub cgroup_root: String,
}

/// How often a machine looks at its own address.
const LOOK: Duration = Duration::from_secs(5);

impl NodePlaces {
    pub const CGROUP_ROOT: &str = "/kubepods";
}

/// A node's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Addresses(pub Vec<IpAddr>);

/// One address, or one of each family.
pub fn addresses(text: &str) -> Result<Addresses, String> {
    let parse = |one: &str| one.trim().parse::<IpAddr>().map_err(|_| format!("{one:?} is no IP"));
    let all = text.split(',').map(parse).collect::<Result<Vec<IpAddr>, String>>()?;
    match all[..] {
        [_] => Ok(Addresses(all)),
        [one, other] if one.is_ipv4() != other.is_ipv4() => Ok(Addresses(all)),
        _ => Err("it must be one address, or two of different families".to_owned()),
    }
}

/// One network, or one of each address family.
fn cidrs(text: &str) -> Result<String, String> {
    let parse = |one: &str| one.trim().parse::<Cidr>().map_err(|error| error.to_string());
    let all = text.split(',').map(parse).collect::<Result<Vec<Cidr>, String>>()?;
    match all[..] {
        [_] => {}
        [one, other] if one.is_ipv4() != other.is_ipv4() => {}
        _ => return Err("it must be one CIDR, or two of different address families".to_owned()),
    }
    let all: Vec<String> = all.iter().map(Cidr::to_string).collect();
    Ok(all.join(","))
}

fn parsed(text: &str) -> Vec<Cidr> {
    text.split(',').filter_map(|one| one.parse().ok()).collect()
}

impl Machine {
    pub fn cluster_cidrs(&self) -> Vec<Cidr> {
        parsed(&self.cluster_cidr)
    }

    pub fn service_cidrs(&self) -> Vec<Cidr> {
        parsed(&self.service_cidr)
    }

    /// Where all pods find DNS: the tenth address of each of the services' networks, as every
    /// installer has it.
    pub fn dns_ips(&self) -> Vec<IpAddr> {
        self.service_cidrs().into_iter().map(|cidr| cidr.at(10)).collect()
    }

    /// The API server's own addresses as a service.
    pub fn api_ips(&self) -> Vec<IpAddr> {
        self.service_cidrs().into_iter().map(|cidr| cidr.at(1)).collect()
    }

    /// The container runtime that pods run on.
    pub fn embedded(&self) -> Embedded {
        let places = &self.places;
        let root = self.data_dir.join("runtime");
        let (registries, plugins) = (self.registries.clone(), self.plugins.clone());
        Embedded::at(root, &places.state_dir, &places.cgroup_root, registries, plugins)
    }

    /// Who leaves out the built-in network brings plugins, now or later.
    pub fn leave_network_to_plugins_if(&mut self, disabled: &[String]) {
        self.plugins.always = disabled.iter().any(|name| name == super::components::NETWORK);
    }

    /// Whether the network of pods is for plugins to make that nobody has configured yet.
    pub fn waits_for_plugins(&self) -> bool {
        self.container_runtime_endpoint.is_none()
            && self.plugins.always
            && !self.plugins.are_configured()
    }

    /// Whether pods have the built-in network: plugins, or another runtime, make their own.
    pub fn has_own_network(&self) -> bool {
        self.container_runtime_endpoint.is_none()
            && crate::node::cni(&self.embedded().places).is_none()
    }

    /// The pod network, unless somebody else makes one; whether somebody minds policies in it.
    pub fn network(&self, policies: bool) -> anyhow::Result<Option<NodeNetwork>> {
        if !self.has_own_network() {
            return Ok(None);
        }
        let settings = network::Settings {
            cluster_cidrs: self.cluster_cidrs(),
            policies,
            encrypt: self.encrypt,
            ..network::Settings::new(self.embedded().places.pod_network())
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

    /// What the node is known by, and its address of the other family where pods have both.
    pub fn node_ips(&self) -> Vec<IpAddr> {
        if let Some(Addresses(given)) = &self.node_ip {
            return given.clone();
        }
        let families = self.cluster_cidrs().into_iter().map(Cidr::is_ipv4);
        let own: Vec<IpAddr> = families.filter_map(::apiserver::pki::own_address_of).collect();
        match own.is_empty() {
            true => vec![Ipv4Addr::LOCALHOST.into()],
            false => own,
        }
    }

    /// Returns when the machine has another address than it had, for good: what was asked for by
    /// `--node-ip` never changes.
    pub async fn moved(&self, known: &[IpAddr]) {
        if self.node_ip.is_some() {
            return std::future::pending().await;
        }
        // In between a machine may have none.
        let is_other = |now: &[IpAddr]| now != known && !now.iter().any(IpAddr::is_loopback);
        let mut before = known.to_vec();
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.node_ips();
            if is_other(&now) && now == before {
                return;
            }
            before = now;
        }
    }

    pub fn node_ip(&self) -> IpAddr {
        self.node_ips().first().copied().unwrap_or(Ipv4Addr::LOCALHOST.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        machine: Machine,
    }

    #[test]
    fn another_runtime_has_its_own_network() {
        let parse = |typed: &str| Line::try_parse_from([typed]).map(|line| line.machine);
        let endpoint = "--container-runtime-endpoint=unix:///run/other.sock";
        let Ok(machine) = parse(endpoint) else { panic!("{endpoint} is a flag") };
        assert_eq!(machine.container_runtime_endpoint, Some(PathBuf::from("/run/other.sock")));
        assert!(!machine.has_own_network());
        assert!(parse("--container-runtime-endpoint=/run/other.sock").is_err());
    }

    #[test]
    fn without_the_built_in_network_plugins_are_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let flag = format!("--cni-conf-dir={}", folder.path().display());
        let Ok(mut machine) = Line::try_parse_from([flag]).map(|line| line.machine) else {
            panic!("it is a flag")
        };
        assert!(machine.has_own_network() && !machine.waits_for_plugins());
        machine.leave_network_to_plugins_if(&["proxy".to_owned(), "network".to_owned()]);
        assert!(!machine.has_own_network() && machine.waits_for_plugins());
        std::fs::write(folder.path().join("10-other.conflist"), "{}").unwrap();
        assert!(!machine.has_own_network() && !machine.waits_for_plugins());
    }

    #[test]
    fn networks_are_one_or_one_of_each_family() {
        assert_eq!(cidrs("10.244.0.7/16").as_deref(), Ok("10.244.0.0/16"));
        assert_eq!(cidrs("fd00::/48, 10.1.0.0/16").as_deref(), Ok("fd00::/48,10.1.0.0/16"));
        for wrong in ["", "x", "10.1.0.0/16,10.2.0.0/16", "10.1.0.0/16,fd00::/48,fd01::/48"] {
            assert!(cidrs(wrong).is_err(), "{wrong}");
        }
        let given = |text: &str| addresses(text).map(|Addresses(all)| format!("{all:?}"));
        assert_eq!(given("192.0.2.1").as_deref(), Ok("[192.0.2.1]"));
        assert_eq!(given("fd00::1, 192.0.2.1").as_deref(), Ok("[fd00::1, 192.0.2.1]"));
        for wrong in ["", "x", "192.0.2.1,192.0.2.2", "fd00::1,192.0.2.1,fd00::2"] {
            assert!(given(wrong).is_err(), "{wrong}");
        }
        let tenth: Vec<IpAddr> =
            parsed("10.96.0.0/12,fd96::/112").into_iter().map(|cidr| cidr.at(10)).collect();
        assert_eq!(format!("{tenth:?}"), "[10.96.0.10, fd96::a]");
    }
}
