//! `skiff kubelet`: pods of this node on the embedded runtime.
pub mod serving;

use super::Embedded;
use anyhow::Context as _;
use client::Context;
use client::https::{Config, Https};
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
    #[command(flatten)]
    serving: serving::Serving,
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
    let name = name.trim().to_lowercase();
    let config = kubelet::Config {
        server: Some(options.serving.config(&name, address)?),
        root: options.root_dir,
        log_root: options.pod_logs_dir,
        manifests: options.pod_manifest_path,
        cluster_dns: options.cluster_dns,
        cluster_domain: options.cluster_domain,
        ..kubelet::Config::new(&name, address)
    };
    let context = Context::new();
    let server = Config::from_kubeconfig(&options.kubeconfig, None)?.for_component("kubelet");
    let source = Arc::new(Https::new(&context, server)?);
    let runtime = super::open(&options.embedded).await?;
    runtime.serve_streams().await?;
    let runtime = Arc::new(runtime);
    let work = kubelet::run(config, source, context.clone(), runtime);
    tokio::pin!(work);
    tokio::select! {
        () = stop => context.stop(),
        ended = &mut work => return Ok(ended?),
    }
    Ok(work.await?)
}
