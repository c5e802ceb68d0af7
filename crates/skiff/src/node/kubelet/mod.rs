//! `skiff kubelet`: pods of this node on the embedded runtime.
mod accepted;
mod bootstrap;
mod configuration;
mod eviction;
mod node;
mod pods;
pub mod serving;

use super::Embedded;
use crate::alone::Accepted;
use crate::up::{Addresses, addresses};
use anyhow::Context as _;
use clap::Parser as _;
use client::https::{Config, Https};
use client::{Context, Source};
use k8s_openapi::api::core::v1::Taint;
use network::{Cidr, NodeNetwork};
use runtime::network::Loopback;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Options {
    /// A file with a KubeletConfiguration; flags go before it.
    #[arg(long)]
    config: Option<PathBuf>,
    /// A folder of files (`*.conf`) that change parts of it, one after another.
    #[arg(long)]
    config_dir: Option<PathBuf>,
    /// The socket of a container runtime that runs beside this one's: `unix:///run/containerd/containerd.sock`.
    /// Without it the embedded one is used.
    #[arg(long)]
    container_runtime_endpoint: Option<String>,
    /// The machine's own resolver, for pods that use it.
    #[arg(long, default_value = "/etc/resolv.conf")]
    resolv_conf: PathBuf,
    /// Taints that the node registers with: `key=value:NoSchedule`.
    #[arg(long, value_delimiter = ',', value_parser = taint)]
    register_with_taints: Vec<Taint>,
    /// Where the API server is and who we are to it.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The node's name; by default the machine's.
    #[arg(long)]
    hostname_override: Option<String>,
    /// The node's address, or one of each family joined by a comma; by default the one that packets to
    /// others carry.
    #[arg(long, value_parser = addresses)]
    node_ip: Option<Addresses>,
    /// Where pods' folders are.
    #[arg(long, default_value = "/var/lib/kubelet")]
    root_dir: PathBuf,
    /// Where pods' logs are written.
    #[arg(long, default_value = "/var/log/pods")]
    pod_logs_dir: PathBuf,
    /// A folder of static pods' manifests.
    #[arg(long)]
    pod_manifest_path: Option<PathBuf>,
    /// A URL of static pods' manifests.
    #[arg(long)]
    manifest_url: Option<String>,
    /// Headers to ask for them with: `NAME:VALUE`.
    #[arg(long, value_delimiter = ',', value_parser = header)]
    manifest_url_header: Vec<(String, String)>,
    /// The addresses of the cluster's DNS.
    #[arg(long, value_delimiter = ',')]
    cluster_dns: Vec<IpAddr>,
    #[arg(long, default_value = "cluster.local")]
    cluster_domain: String,
    /// Where all pods of the cluster are: what goes there keeps its source address. By default
    /// where the nodes say that theirs are.
    #[arg(long, value_delimiter = ',')]
    cluster_cidr: Vec<Cidr>,
    /// Whether pods get links and addresses from the node's pod CIDR, or loopback only.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        default_value_t = true, action = clap::ArgAction::Set)]
    pod_network: bool,
    /// Labels that the node registers with.
    #[arg(long, value_delimiter = ',', value_parser = pair)]
    node_labels: Vec<(String, String)>,
    /// Kept from pods for Kubernetes itself: `cpu=100m,memory=100Mi`.
    #[arg(long, value_delimiter = ',', value_parser = pair)]
    kube_reserved: Vec<(String, String)>,
    /// Kept from pods for the rest of the system.
    #[arg(long, value_delimiter = ',', value_parser = pair)]
    system_reserved: Vec<(String, String)>,
    /// Whether guaranteed pods that ask for whole processors have them for themselves.
    #[arg(long, default_value = "none", value_parser = ["none", "static"])]
    cpu_manager_policy: String,
    /// How that is done: `full-pcpus-only=true`, `strict-cpu-reservation=true`,
    /// `distribute-cpus-across-numa=true`, `prefer-align-cpus-by-uncorecache=true`; behind the gate
    /// `CPUManagerPolicyAlphaOptions` also `align-by-socket=true`, `distribute-cpus-across-cores=true`.
    #[arg(long, value_delimiter = ',')]
    cpu_manager_policy_options: Vec<String>,
    /// Processors that no container has for itself: `0-1`. Without it as many as are reserved.
    #[arg(long, value_parser = kubelet::cpus::topology::parse)]
    reserved_cpus: Option<std::collections::BTreeSet<u32>>,
    /// Whether groups of QoS classes and pods are made and limited.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    cgroups_per_qos: bool,
    /// A longer log is rotated.
    #[arg(long, default_value = "10Mi")]
    container_log_max_size: String,
    /// Files of a log that are kept.
    #[arg(long, default_value_t = 5)]
    container_log_max_files: usize,
    /// Seconds between two looks at the sizes of logs.
    #[arg(long, default_value_t = 10)]
    container_log_monitor_interval: u64,
    /// Per cent of the disk that images are on, above which images go that nobody uses.
    #[arg(long, default_value_t = 85, value_parser = clap::value_parser!(u8).range(0..=100))]
    image_gc_high_threshold: u8,
    /// Per cent of that disk at which that ends.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u8).range(0..=100))]
    image_gc_low_threshold: u8,
    #[command(flatten)]
    bootstrap: bootstrap::Bootstrap,
    #[command(flatten)]
    node: node::Node,
    #[command(flatten)]
    pods: pods::Pods,
    #[command(flatten)]
    eviction: eviction::Eviction,
    #[command(flatten)]
    serving: serving::Serving,
    /// `external`: somebody else says what the cloud knows of the node; until then no pod comes.
    #[arg(long, default_value = "", value_parser = ["", "external"], hide_default_value = true)]
    cloud_provider: String,
    #[command(flatten)]
    embedded: Embedded,
    #[command(flatten)]
    accepted: Accepted<accepted::Kubelet>,
}

/// Brings the pod network up when the node's Node says where, and tells the kubelet.
pub fn attend(
    context: &Context,
    source: Arc<dyn Source>,
    peers: Option<Arc<dyn Source>>,
    config: &kubelet::Config,
    network: &NodeNetwork,
) {
    let node = config.node_name.clone();
    tokio::spawn(network::run(context.clone(), source, peers, node, network.clone()));
    let (up, look_again) = (network.clone(), config.look_again.clone());
    tokio::spawn(async move {
        up.gateways().await;
        look_again.notify_one();
    });
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it must be NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("it must be NAME:VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn amount(name: &str, text: &str) -> anyhow::Result<i64> {
    let quantity = api::quantity::Quantity::parse(text)
        .map_err(|error| anyhow::anyhow!("{text:?} is no amount of {name}: {error}"))?;
    Ok(if name == "cpu" { quantity.milli_value() } else { quantity.value() })
}

fn taint(text: &str) -> Result<Taint, String> {
    let (rest, effect) = text.rsplit_once(':').ok_or("it must be KEY=VALUE:EFFECT")?;
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return Err(format!("invalid taint effect: {effect}"));
    }
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    Ok(Taint {
        key: key.to_owned(),
        value: (!value.is_empty()).then(|| value.to_owned()),
        effect: effect.to_owned(),
        ..Taint::default()
    })
}

/// The flags once more, with those that the configuration says.
#[derive(clap::Parser)]
#[command(name = "kubelet", no_binary_name = true)]
struct Configured {
    #[arg(short, long = "v")]
    _verbosity: Option<u8>,
    #[command(flatten)]
    options: Options,
}

fn configured(options: Options) -> anyhow::Result<Options> {
    if options.config.is_none() && options.config_dir.is_none() {
        return Ok(options);
    }
    let arguments = typed(std::env::args());
    let (file, folder) = (options.config.as_deref(), options.config_dir.as_deref());
    let arguments = configuration::extend(&arguments, file, folder)?;
    Ok(Configured::try_parse_from(arguments)?.options)
}

/// What stands after the command: after the program, if that is a link with the command's name.
fn typed(mut words: impl Iterator<Item = String>) -> Vec<String> {
    let is_command =
        |word: &String| Path::new(word).file_name().is_some_and(|name| name == "kubelet");
    match words.next().is_some_and(|program| is_command(&program)) {
        true => words.collect(),
        false => words.skip_while(|word| word != "kubelet").skip(1).collect(),
    }
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let options = configured(options)?;
    options.accepted.warn();
    let name = match &options.hostname_override {
        Some(name) => name.clone(),
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("failed to read the machine's name")?,
    };
    let given = options.node_ip.map(|Addresses(given)| given).unwrap_or_default();
    let node_ips = match given.is_empty() {
        true => {
            let own = ::apiserver::pki::own_address();
            vec![own.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))]
        }
        false => given,
    };
    let address = node_ips[0];
    let name = name.trim().to_lowercase();
    let reserved = options.kube_reserved.iter().chain(&options.system_reserved);
    let reserved = reserved.map(|(name, text)| Ok((name.clone(), amount(name, text)?)));
    let reserved: Vec<(String, i64)> = reserved.collect::<anyhow::Result<_>>()?;
    let milli = reserved.iter().filter(|(name, _)| name == "cpu").map(|(_, amount)| amount).sum();
    let cpu_options = kubelet::cpus::Options::parse(
        &options.cpu_manager_policy_options,
        options.node.allows_alpha_of_cpus(),
    );
    let cpu_options = cpu_options.map_err(anyhow::Error::msg)?;
    let cpu_policy = match options.cpu_manager_policy.as_str() {
        "static" => Some(kubelet::cpus::Policy::new(options.reserved_cpus, milli, cpu_options)),
        _ => None,
    };
    let cpu_policy = cpu_policy.transpose().map_err(anyhow::Error::msg)?;
    let mut config = kubelet::Config {
        server: options.serving.config(&name, address)?,
        root: options.root_dir,
        log_root: options.pod_logs_dir,
        manifests: options.pod_manifest_path,
        manifest_url: options.manifest_url,
        manifest_url_header: options.manifest_url_header,
        cluster_dns: options.cluster_dns,
        cluster_domain: options.cluster_domain,
        labels: options.node_labels,
        taints: options.register_with_taints,
        resolv_conf: options.resolv_conf,
        reserved,
        cpu_policy,
        cgroups_per_qos: options.cgroups_per_qos,
        log_max_size: amount("bytes", &options.container_log_max_size)?.unsigned_abs(),
        log_max_files: options.container_log_max_files.max(2),
        log_period: Duration::from_secs(options.container_log_monitor_interval.max(1)),
        image_gc_high: options.image_gc_high_threshold,
        image_gc_low: options.image_gc_low_threshold,
        eviction: options.eviction.config()?,
        node_ips,
        flags: crate::alone::flags::given(),
        ..kubelet::Config::new(&name, address)
    };
    if options.cloud_provider == "external" {
        config.taints.push(uninitialized());
    }
    options.node.add_to(&mut config)?;
    options.pods.add_to(&mut config)?;
    if let Some(policy) = &config.cpu_policy {
        policy.check(config.topology.policy).map_err(anyhow::Error::msg)?;
    }
    let context = Context::new().with_metrics(config.registry.clone());
    let certificates = &options.serving.cert_dir;
    options.bootstrap.join(&context, &options.kubeconfig, certificates, &name).await?;
    config.renewed = options.bootstrap.renewed(certificates);
    let server = Config::from_kubeconfig(&options.kubeconfig, None)?.for_component("kubelet");
    let source = Arc::new(Https::new(&context, server)?);
    options.bootstrap.keep(&context, source.clone(), certificates, &name);
    if let Some(endpoint) = &options.container_runtime_endpoint {
        // That runtime has its own network, by CNI.
        let runtime = runtime::cri::Client::new(super::socket_path(endpoint)?)?;
        let work = kubelet::run(config, source, context.clone(), Arc::new(runtime));
        return crate::alone::until_stopped(&context, Box::pin(work)).await;
    }
    let places = &options.embedded.places;
    let network = match super::cni(places) {
        Some(plugins) => plugins,
        None if !options.pod_network => Arc::new(Loopback),
        None => {
            let network = NodeNetwork::open(network::Settings {
                cluster_cidrs: options.cluster_cidr,
                ..network::Settings::new(places.pod_network())
            })?;
            attend(&context, source.clone(), None, &config, &network);
            Arc::new(network)
        }
    };
    let runtime = super::open(&options.embedded, network).await?;
    runtime.serve_streams().await?;
    let stopping = context.clone();
    super::listen(&runtime, places, async move { stopping.stopped().await });
    let runtime = Arc::new(runtime);
    let work = kubelet::run(config, source, context.clone(), runtime);
    crate::alone::until_stopped(&context, Box::pin(work)).await
}

/// Until a cloud's controller manager has looked at the node.
fn uninitialized() -> Taint {
    Taint {
        key: "node.cloudprovider.kubernetes.io/uninitialized".to_owned(),
        value: Some("true".to_owned()),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }
}

/// What a part of the flags makes of the usual configuration.
#[cfg(test)]
fn configured_by<T: clap::Args>(
    flags: &[&str],
    add: impl FnOnce(T, &mut kubelet::Config) -> anyhow::Result<()>,
) -> anyhow::Result<kubelet::Config> {
    #[derive(clap::Parser)]
    #[command(no_binary_name = true)]
    struct Line<T: clap::Args> {
        #[command(flatten)]
        part: T,
    }
    let mut config = kubelet::Config::new("n", Ipv4Addr::LOCALHOST.into());
    add(Line::<T>::try_parse_from(flags)?.part, &mut config)?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_after_the_command_are_its() {
        let check = |line: &str, expected: &str| {
            let words = line.split_whitespace().map(str::to_owned);
            assert_eq!(typed(words).join(" "), expected, "{line}");
        };
        check("/usr/bin/kubelet --config /k --v=2", "--config /k --v=2");
        check("/usr/bin/skiff kubelet --config /k", "--config /k");
        check("skiff -v kubelet --hostname-override kubelet", "--hostname-override kubelet");
    }

    /// Upstream's flags are understood: those that mean something, and those that do not.
    #[test]
    fn upstreams_flags_are_taken() {
        let line = [
            "--kubeconfig=/k",
            "--cgroup-driver=systemd",
            "--cloud-provider=external",
            "--fail-swap-on=false",
            "--runtime-request-timeout=30s",
            "--serialize-image-pulls",
            "--v=4",
        ];
        let options = Configured::try_parse_from(line).expect("understood").options;
        assert_eq!(options.pods.runtime_request_timeout, Duration::from_secs(30));
        assert_eq!(uninitialized().key, "node.cloudprovider.kubernetes.io/uninitialized");
        assert!(Configured::try_parse_from(["--kubeconfig=/k", "--cloud-provider=aws"]).is_err());
    }
}
