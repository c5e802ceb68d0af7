//! What a kubelet is told at its start.
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Debug, Clone)]
pub struct Config {
    pub node_name: String,
    /// `/var/lib/kubelet`: pods' folders are below it.
    pub root: PathBuf,
    /// `/var/log/pods`: where containers' logs are written.
    pub log_root: PathBuf,
    /// Manifests of static pods; none without a folder.
    pub manifests: Option<PathBuf>,
    pub node_ip: IpAddr,
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: String,
    /// The machine's own resolver, for pods that use it.
    pub resolv_conf: PathBuf,
    pub max_pods: u32,
    /// Control groups of pods are below this one: `/kubepods`.
    pub cgroup_root: String,
    /// How often the status of an unchanged node is written, and its lease renewed.
    pub status_period: Duration,
    pub lease_period: Duration,
    /// Labels to register with besides the usual ones.
    pub labels: Vec<(String, String)>,
    /// Rung by whoever knows that the node's conditions have changed: its network has come up.
    pub look_again: Arc<Notify>,
}

impl Config {
    /// Upstream's places and periods.
    pub fn new(node_name: &str, node_ip: IpAddr) -> Config {
        Config {
            node_name: node_name.to_owned(),
            root: PathBuf::from("/var/lib/kubelet"),
            log_root: PathBuf::from("/var/log/pods"),
            manifests: None,
            node_ip,
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            max_pods: 110,
            cgroup_root: "/kubepods".to_owned(),
            status_period: Duration::from_secs(300),
            lease_period: Duration::from_secs(10),
            labels: Vec::new(),
            look_again: Arc::default(),
        }
    }

    pub fn pod_folder(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }
}
