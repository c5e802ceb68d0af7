//! `skiff proxy`: the rules of services alone, in the place of upstream's kube-proxy.
use crate::alone;
use ::proxy::{Network, Proxy};
use anyhow::Context as _;
use client::Context;
use client::https::Https;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Options {
    /// A KubeProxyConfiguration; what it says counts before flags, as upstream has it.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Where the API server is and who we are to it; in a pod, its service account by default.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The node's name; by default the machine's.
    #[arg(long)]
    hostname_override: Option<String>,
    /// Where pods are: connections from elsewhere to a cluster IP are masqueraded.
    #[arg(long, value_delimiter = ',')]
    cluster_cidr: Vec<String>,
    /// Which rules to make: nftables; others are taken for it, with a warning.
    #[arg(long, default_value = "nftables")]
    proxy_mode: String,
    /// The node's addresses that have node ports: CIDRs, `primary` (those of its Node, the default)
    /// or `all`.
    #[arg(long, value_delimiter = ',')]
    nodeport_addresses: Vec<String>,
    /// Where /healthz and /livez are served; empty: nowhere.
    #[arg(long, default_value = "0.0.0.0:10256")]
    healthz_bind_address: String,
    /// Where /metrics and /proxyMode are served; empty: nowhere.
    #[arg(long, default_value = "127.0.0.1:10249")]
    metrics_bind_address: String,
    /// Remove all rules of services, and end.
    #[arg(long)]
    cleanup: bool,
}

/// What we know of a KubeProxyConfiguration.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Document {
    client_connection: ClientConnection,
    hostname_override: String,
    healthz_bind_address: Option<String>,
    metrics_bind_address: Option<String>,
    mode: String,
    #[serde(rename = "clusterCIDR")]
    cluster_cidr: String,
    node_port_addresses: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClientConnection {
    kubeconfig: String,
}

pub async fn run(mut options: Options) -> anyhow::Result<()> {
    if options.cleanup {
        return Ok(Proxy::open(::proxy::Config::default())?.teardown()?);
    }
    if let Some(file) = options.config.take() {
        options = options.with(read(&file)?);
    }
    let server = alone::config(options.kubeconfig.as_deref())?;
    let config = options.settings()?;
    let context = Context::new();
    let source = Arc::new(Https::new(&context, server.for_component("kube-proxy"))?);
    alone::until_stopped(&context, ::proxy::run(context.clone(), source, config)).await
}

fn read(file: &Path) -> anyhow::Result<Document> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("failed to read {}", file.display()))?;
    serde_saphyr::from_str(&text)
        .with_context(|| format!("{} is not a KubeProxyConfiguration", file.display()))
}

impl Options {
    fn with(self, document: Document) -> Options {
        let given = |text: String, flag: Option<String>| match text.is_empty() {
            true => flag,
            false => Some(text),
        };
        let list = |text: String| {
            text.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect()
        };
        let kubeconfig = document.client_connection.kubeconfig;
        Options {
            kubeconfig: if kubeconfig.is_empty() {
                self.kubeconfig
            } else {
                Some(kubeconfig.into())
            },
            // The one flag that upstream lets overrule the file.
            hostname_override: self.hostname_override.or(given(document.hostname_override, None)),
            cluster_cidr: list(document.cluster_cidr),
            proxy_mode: document.mode,
            nodeport_addresses: document.node_port_addresses.unwrap_or_default(),
            healthz_bind_address: document
                .healthz_bind_address
                .unwrap_or(self.healthz_bind_address),
            metrics_bind_address: document
                .metrics_bind_address
                .filter(|address| !address.is_empty())
                .unwrap_or(self.metrics_bind_address),
            ..self
        }
    }

    fn settings(self) -> anyhow::Result<::proxy::Config> {
        if !["", "nftables"].contains(&self.proxy_mode.as_str()) {
            tracing::warn!(mode = self.proxy_mode, "services are served by nftables");
        }
        let (node_port_addresses, primary_node_ports) = node_ports(&self.nodeport_addresses)?;
        Ok(::proxy::Config {
            node_name: node_name(self.hostname_override.as_deref())?,
            cluster_cidrs: networks(&self.cluster_cidr)?,
            node_port_addresses,
            primary_node_ports,
            min_sync_period: Duration::from_millis(10),
            healthz: address(&self.healthz_bind_address, 10256)?,
            metrics: address(&self.metrics_bind_address, 10249)?,
        })
    }
}

/// Networks, and whether the node's own addresses are among them.
fn node_ports(given: &[String]) -> anyhow::Result<(Vec<Network>, bool)> {
    let mut cidrs = Vec::new();
    let mut primary = given.is_empty();
    for word in given.iter().map(|word| word.trim()) {
        match word {
            "primary" => primary = true,
            "all" => cidrs.extend(["0.0.0.0/0".to_owned(), "::/0".to_owned()]),
            "localhost" => tracing::warn!("node ports are not served on loopback addresses"),
            cidr => cidrs.push(cidr.to_owned()),
        }
    }
    // Nothing but what is not served: the node's own addresses are the default.
    primary |= cidrs.is_empty();
    Ok((networks(&cidrs)?, primary))
}

/// As the kubelet calls it.
pub fn node_name(given: Option<&str>) -> anyhow::Result<String> {
    let name = match given {
        Some(name) => name.to_owned(),
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("failed to read the machine's name")?,
    };
    Ok(name.trim().to_lowercase())
}

/// An address with its port, or the usual one; nothing at all if it is empty.
pub fn address(text: &str, port: u16) -> anyhow::Result<Option<SocketAddr>> {
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = text.parse().or_else(|_| text.parse::<IpAddr>().map(|ip| (ip, port).into()));
    Ok(Some(parsed.with_context(|| format!("{text:?} is no address: it is like 0.0.0.0:{port}"))?))
}

fn networks(texts: &[String]) -> anyhow::Result<Vec<Network>> {
    let parse = |text: &String| {
        let cidr: network::Cidr = text.trim().parse()?;
        Ok((cidr.address(), cidr.prefix()))
    };
    texts.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn check(flags: &str, document: &str, expected: &str) {
        let words = std::iter::once("proxy").chain(flags.split_whitespace());
        let options = Cli::parse_from(words).options;
        let options = match document {
            "" => options,
            text => options.with(serde_saphyr::from_str(text).unwrap()),
        };
        let ::proxy::Config { node_name, cluster_cidrs, healthz, metrics, .. } =
            options.settings().unwrap();
        let shown = |address: Option<SocketAddr>| address.map(|one| one.to_string());
        let (healthz, metrics) = (shown(healthz), shown(metrics));
        assert_eq!(format!("{node_name} {cluster_cidrs:?} {healthz:?} {metrics:?}"), expected);
    }

    #[test]
    fn node_ports_are_on_the_nodes_own_addresses_unless_others_are_named() {
        let check = |words: &str, expected: &str| {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            assert_eq!(format!("{:?}", node_ports(&words).unwrap()), expected, "{words:?}");
        };
        check("", "([], true)");
        check("primary", "([], true)");
        check("localhost", "([], true)");
        check("all", "([(0.0.0.0, 0), (::, 0)], false)");
        check("10.0.0.0/8", "([(10.0.0.0, 8)], false)");
        check("primary 10.0.0.0/8", "([(10.0.0.0, 8)], true)");
        assert!(node_ports(&["nonsense".to_owned()]).is_err());
    }

    #[test]
    fn flags_and_documents_are_upstreams() {
        check(
            "--hostname-override=N --cluster-cidr=10.1.0.0/16,fd00::/48 --proxy-mode=iptables",
            "",
            r#"n [(10.1.0.0, 16), (fd00::, 48)] Some("0.0.0.0:10256") Some("127.0.0.1:10249")"#,
        );
        check(
            "--hostname-override=n --healthz-bind-address= --metrics-bind-address=::",
            "",
            r#"n [] None Some("[::]:10249")"#,
        );
        let document = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclientConnection:\n  kubeconfig: /x\nhostnameOverride: a\nclusterCIDR: 10.2.0.0/16\nmode: nftables\nmetricsBindAddress: \"\"\nhealthzBindAddress: 127.0.0.1:1\nconntrack:\n  min: 1\nnodePortAddresses: null\n";
        check("", document, r#"a [(10.2.0.0, 16)] Some("127.0.0.1:1") Some("127.0.0.1:10249")"#);
    }
}
