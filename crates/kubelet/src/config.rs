//! What a kubelet is told at its start.
use crate::container::resources::Enforcement;
use crate::cpus;
use crate::eviction;
use crate::identity;
use crate::node::Facts;
use crate::numa;
use crate::pulls::providers::Providers;
use crate::pulls::records;
use crate::server::ServerConfig;
use crate::shutdown;
use crate::users;
use crate::volumes::iscsi;
use client::Registry;
use client::zpages::Flags;
use k8s_openapi::api::core::v1::Taint;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How the facts of the machine are read; tests say what they like.
#[derive(Clone)]
pub struct Machine(pub(crate) Arc<dyn Fn(&Path) -> Facts + Send + Sync>);

impl Machine {
    pub(crate) fn read(&self, root: &Path) -> Facts {
        (self.0)(root)
    }
}

impl Default for Machine {
    fn default() -> Machine {
        Machine(Arc::new(Facts::read))
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Machine")
    }
}

#[derive(Debug, Clone)]
pub struct Config {
    pub node_name: String,
    /// `/var/lib/kubelet`: pods' folders are below it.
    pub root: PathBuf,
    /// `/var/log/pods`: where containers' logs are written.
    pub log_root: PathBuf,
    /// Manifests of static pods; none without a folder.
    pub manifests: Option<PathBuf>,
    /// Static pods behind a URL, asked for with these headers.
    pub manifest_url: Option<String>,
    pub manifest_url_header: Vec<(String, String)>,
    /// The node's own addresses: one, or one of each family; the first is what it is known by.
    pub node_ips: Vec<IpAddr>,
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: String,
    /// The machine's own resolver, for pods that use it.
    pub resolv_conf: PathBuf,
    pub max_pods: u32,
    /// Kept from pods for the system and for us, by resource: processors in thousandths.
    pub reserved: Vec<(String, i64)>,
    /// Control groups of pods are below this one: `/kubepods`.
    pub cgroup_root: String,
    /// Whether systemd makes them. Counts only where the runtime does not say it.
    pub by_systemd: bool,
    /// Whether containers may have processors for themselves, and which: `--cpu-manager-policy`.
    pub cpu_policy: Option<cpus::Policy>,
    /// Whether containers may have memory for themselves: `--memory-manager-policy`.
    pub memory_policy: Option<numa::memory::Policy>,
    /// Whether what containers have for themselves is near each other: `--topology-manager-policy`.
    pub topology: numa::Settings,
    /// How limits are enforced, as far as the configuration says it; the machine says the rest.
    pub enforcement: Enforcement,
    /// Processes that a pod may have: `podPidsLimit`.
    pub pod_pids: Option<i64>,
    /// Settings of the kernel that pods may have besides the safe ones.
    pub allowed_sysctls: Vec<String>,
    /// Users of a pod that has its own.
    pub users_per_pod: u32,
    /// The longest pause before a container is started again: `crashLoopBackOff`.
    pub longest_backoff: Duration,
    /// Whether containers that ask for no filter of system calls get the runtime's.
    pub seccomp_default: bool,
    /// What the cloud calls this machine.
    pub provider_id: Option<String>,
    /// The kubelet's own certificates, as far as it renews them.
    pub renewed: identity::Renewed,
    /// Images that the Node names at most; no bound without it.
    pub status_images: Option<usize>,
    /// Whether groups of QoS classes and pods are made and limited: `--cgroups-per-qos`.
    pub cgroups_per_qos: bool,
    /// Whether the kubelet makes its Node, or waits for somebody who does: `registerNode`.
    pub registers: bool,
    /// How often the node is looked at, and how often the status of an unchanged one is written.
    pub look_period: Duration,
    pub status_period: Duration,
    /// A node that does not renew its lease for so long is given up; it does four times as often.
    pub lease_duration: Duration,
    /// A longer log is rotated, and so many files of it are kept.
    pub log_max_size: u64,
    pub log_max_files: usize,
    /// How often logs are looked at: `containerLogMonitorInterval`.
    pub log_period: Duration,
    /// Per cent of the images' disk: above the one images go until it is at the other.
    pub image_gc_high: u8,
    pub image_gc_low: u8,
    /// An image younger than the one is not removed; one that was not used for the other is.
    pub image_min_age: Duration,
    pub image_max_age: Option<Duration>,
    /// Which images a pod must be able to pull itself: `imagePullCredentialsVerificationPolicy`.
    pub pull_policy: records::Policy,
    /// Programs that know registries' credentials.
    pub credential_providers: Option<Arc<Providers>>,
    /// How long the runtime has for an answer: `runtimeRequestTimeout`.
    pub runtime_patience: Duration,
    /// Pulls at once: `maxParallelImagePulls`.
    pub parallel_pulls: Option<usize>,
    /// How often pods' volumes are measured, if they are: `volumeStatsAggPeriod`.
    pub volume_stats_period: Option<Duration>,
    /// When pods have to go for the sake of the node.
    pub eviction: eviction::Config,
    /// How the machine is looked at.
    pub machine: Machine,
    /// Programs and devices of the machine that disks of iSCSI targets need.
    pub iscsi_host: iscsi::Host,
    /// What pods have of the machine's last seconds.
    pub shutdown: shutdown::Settings,
    /// Taints to register with.
    pub taints: Vec<Taint>,
    /// Labels to register with besides the usual ones.
    pub labels: Vec<(String, String)>,
    /// How the kubelet itself is reached; without it by nobody.
    pub server: Option<ServerConfig>,
    /// Rung by whoever knows that the node's conditions have changed: its network has come up.
    pub look_again: Arc<Notify>,
    /// What is counted while the kubelet runs, besides what its pages read when they are asked for.
    pub registry: Arc<Registry>,
    /// What `/flagz` says.
    pub flags: Flags,
}

impl Config {
    /// Upstream's places and periods.
    pub fn new(node_name: &str, node_ip: IpAddr) -> Config {
        Config {
            node_name: node_name.to_owned(),
            root: PathBuf::from("/var/lib/kubelet"),
            log_root: PathBuf::from("/var/log/pods"),
            manifests: None,
            manifest_url: None,
            manifest_url_header: Vec::new(),
            node_ips: vec![node_ip],
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            max_pods: 110,
            reserved: Vec::new(),
            cgroup_root: "/kubepods".to_owned(),
            by_systemd: false,
            cpu_policy: None,
            memory_policy: None,
            topology: numa::Settings::default(),
            enforcement: Enforcement { ends_together: true, ..Enforcement::default() },
            pod_pids: None,
            allowed_sysctls: Vec::new(),
            users_per_pod: users::LENGTH,
            longest_backoff: Duration::from_secs(300),
            seccomp_default: false,
            provider_id: None,
            renewed: identity::Renewed::default(),
            status_images: Some(50),
            cgroups_per_qos: true,
            registers: true,
            look_period: Duration::from_secs(10),
            status_period: Duration::from_secs(300),
            lease_duration: Duration::from_secs(40),
            log_max_size: 10 << 20,
            log_max_files: 5,
            log_period: Duration::from_secs(10),
            image_gc_high: 85,
            image_gc_low: 80,
            image_min_age: Duration::from_secs(120),
            image_max_age: None,
            pull_policy: records::Policy::default(),
            credential_providers: None,
            runtime_patience: Duration::from_secs(120),
            parallel_pulls: None,
            volume_stats_period: Some(Duration::from_secs(60)),
            eviction: eviction::Config::default(),
            machine: Machine::default(),
            iscsi_host: iscsi::Host::default(),
            shutdown: shutdown::Settings::default(),
            taints: Vec::new(),
            labels: Vec::new(),
            server: None,
            look_again: Arc::default(),
            registry: Arc::default(),
            flags: Flags::new(),
        }
    }

    pub fn pod_folder(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }
}
