//! `skiff dns`: the cluster's DNS alone, in the place of CoreDNS.
use crate::alone;
use crate::proxy::address;
use anyhow::Context as _;
use client::Context;
use client::https::Https;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(clap::Args)]
pub struct Options {
    /// Where the API server is and who we are to it; in a pod, its service account by default.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Where to listen, by UDP and TCP.
    #[arg(long, value_delimiter = ',', default_value = "0.0.0.0:53")]
    listen: Vec<SocketAddr>,
    /// What all names of the cluster end with.
    #[arg(long, default_value = "cluster.local")]
    cluster_domain: String,
    /// How long clients may remember names of the cluster, in seconds.
    #[arg(long, default_value_t = ::dns::SECONDS)]
    ttl: u32,
    /// Who knows other names; by default the servers in --resolv-conf.
    #[arg(long, value_delimiter = ',')]
    upstream: Vec<SocketAddr>,
    /// A Corefile, of which the usual plugins are understood; in place of --upstream and --ttl.
    #[arg(long)]
    corefile: Option<PathBuf>,
    /// A ConfigMap (`kube-system/coredns`) whose Corefile counts while there is one.
    #[arg(long)]
    config_map: Option<String>,
    /// The machine's own resolver's configuration.
    #[arg(long, default_value = "/etc/resolv.conf")]
    resolv_conf: PathBuf,
    /// Where /health is served, if anywhere; CoreDNS's is :8080.
    #[arg(long, default_value = "")]
    health_address: String,
    /// Where /ready is served, if anywhere; CoreDNS's is :8181.
    #[arg(long, default_value = "")]
    ready_address: String,
    /// Where /metrics is served, if anywhere; CoreDNS's is :9153.
    #[arg(long, default_value = "")]
    metrics_address: String,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let server = alone::config(options.kubeconfig.as_deref())?;
    let mut upstreams = options.upstream;
    if upstreams.is_empty() {
        let file = &options.resolv_conf;
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        upstreams = ::dns::name_servers(&text);
    }
    let corefile = options.corefile.as_ref().map(|file| {
        std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))
    });
    let config_map = match options.config_map.as_deref().map(|text| text.split_once('/')) {
        Some(Some((namespace, name))) => Some((namespace.to_owned(), name.to_owned())),
        Some(None) => anyhow::bail!("--config-map is NAMESPACE/NAME"),
        None => None,
    };
    let config = ::dns::Config {
        corefile: corefile.transpose()?,
        config_map,
        domain: options.cluster_domain,
        seconds: options.ttl,
        upstreams,
        health: address(&options.health_address, 8080)?,
        ready: address(&options.ready_address, 8181)?,
        metrics: address(&options.metrics_address, 9153)?,
        ..::dns::Config::new(options.listen)
    };
    let context = Context::new();
    let source = Arc::new(Https::new(&context, server.for_component("coredns"))?);
    alone::until_stopped(&context, ::dns::run(context.clone(), source, config)).await
}
