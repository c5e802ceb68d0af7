//! `skiff kubelet`: pods of this node on the embedded runtime.
use super::Embedded;
use anyhow::Context as _;
use client::Context;
use client::https::{Config, Https};
use network::{Cidr, NodeNetwork};
use runtime::network::Loopback;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(clap::Args)]
pub struct Options {
    /// Where the API server is and who we are to it.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The node's name; by default the machine's.
    #[arg(long)]
    hostname_override: Option<String>,
    /// The node's address; by default the one that packets to others carry.
    #[arg(long)]
    node_ip: Option<IpAddr>,
    /// Where pods' folders are.
    #[arg(long, default_value = "/var/lib/kubelet")]
    root_dir: PathBuf,
    /// Where pods' logs are written.
    #[arg(long, default_value = "/var/log/pods")]
    pod_logs_dir: PathBuf,
    /// A folder of static pods' manifests.
    #[arg(long)]
    pod_manifest_path: Option<PathBuf>,
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
    #[command(flatten)]
    embedded: Embedded,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let stop = crate::stop_signal()?;
    let name = match &options.hostname_override {
        Some(name) => name.clone(),
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("failed to read the machine's name")?,
    };
    let address = options.node_ip.or_else(::apiserver::pki::own_address);
    let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let config = kubelet::Config {
        root: options.root_dir,
        log_root: options.pod_logs_dir,
        manifests: options.pod_manifest_path,
        cluster_dns: options.cluster_dns,
        cluster_domain: options.cluster_domain,
        ..kubelet::Config::new(&name.trim().to_lowercase(), address)
    };
    let context = Context::new();
    let server = Config::from_kubeconfig(&options.kubeconfig, None)?.for_component("kubelet");
    let source = Arc::new(Https::new(&context, server)?);
    let places = &options.embedded.places;
    let network = match super::cni(places) {
        Some(plugins) => plugins,
        None if !options.pod_network => Arc::new(Loopback),
        None => {
            let network = NodeNetwork::open(network::Settings {
                cluster_cidrs: options.cluster_cidr,
                ..network::Settings::new(places.pod_network())
            })?;
            let (node, source) = (config.node_name.clone(), source.clone());
            tokio::spawn(network::run(context.clone(), source, node, network.clone()));
            let (up, look_again) = (network.clone(), config.look_again.clone());
            tokio::spawn(async move {
                up.gateways().await;
                look_again.notify_one();
            });
            Arc::new(network)
        }
    };
    let runtime = Arc::new(super::open(&options.embedded, network).await?);
    let work = kubelet::run(config, source, context.clone(), runtime);
    tokio::pin!(work);
    tokio::select! {
        () = stop => context.stop(),
        ended = &mut work => return Ok(ended?),
    }
    Ok(work.await?)
}
