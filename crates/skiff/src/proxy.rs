//! `skiff proxy`: the rules of services alone, in the place of upstream's kube-proxy.
use crate::alone;
use crate::alone::{Accepted, Upstreams};
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
    /// Masquerade whoever connects to a cluster IP, pods too.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, action = clap::ArgAction::Set)]
    masquerade_all: bool,
    /// The least time between two changes of the rules.
    #[arg(long, default_value = "10ms", value_parser = duration)]
    iptables_min_sync_period: Duration,
    /// Connections that the kernel remembers at most, for each processor; 0 leaves it as it is.
    #[arg(long, default_value_t = 32768)]
    conntrack_max_per_core: u64,
    /// The least that is.
    #[arg(long, default_value_t = 131_072)]
    conntrack_min: u64,
    /// How long an idle connection is remembered; 0 leaves it as it is.
    #[arg(long, default_value = "24h", value_parser = duration)]
    conntrack_tcp_timeout_established: Duration,
    /// How long one is remembered that one side has closed; 0 leaves it as it is.
    #[arg(long, default_value = "1h", value_parser = duration)]
    conntrack_tcp_timeout_close_wait: Duration,
    /// Set the kernel's limits as far as they need rights, and end.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, action = clap::ArgAction::Set)]
    init_only: bool,
    /// Remove all rules of services, and end.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, action = clap::ArgAction::Set)]
    cleanup: bool,
    #[command(flatten)]
    accepted: Accepted<ProxyFlags>,
}

/// Upstream's flags that mean nothing to flat maps of nftables, or to a program like ours.
pub struct ProxyFlags;

impl Upstreams for ProxyFlags {
    const FLAGS: &[&str] = &[
        "bind-address",
        "bind-address-hard-fail",
        "config-sync-period",
        "conntrack-tcp-be-liberal",
        "conntrack-udp-timeout",
        "conntrack-udp-timeout-stream",
        "detect-local-mode",
        "feature-gates",
        "iptables-localhost-nodeports",
        "iptables-masquerade-bit",
        "iptables-sync-period",
        "ipvs-exclude-cidrs",
        "ipvs-min-sync-period",
        "ipvs-scheduler",
        "ipvs-strict-arp",
        "ipvs-sync-period",
        "ipvs-tcp-timeout",
        "ipvs-tcpfin-timeout",
        "ipvs-udp-timeout",
        "kube-api-burst",
        "kube-api-content-type",
        "kube-api-qps",
        "log-flush-frequency",
        "log-json-info-buffer-size",
        "log-json-split-stream",
        "log-text-info-buffer-size",
        "log-text-split-stream",
        "logging-format",
        "master",
        "oom-score-adj",
        "pod-bridge-interface",
        "pod-interface-name-prefix",
        "profiling",
        "show-hidden-metrics-for-version",
        "vmodule",
        "write-config-to",
    ];
}

/// As Go writes one: `1h30m`, `10ms`.
fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let wrong = || format!("{text:?} is no duration: it is like 1h30m or 10ms");
    let (mut rest, mut all) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let end = rest.find(|letter: char| letter.is_ascii_alphabetic()).ok_or_else(wrong)?;
        let number: f64 = rest[..end].parse().map_err(|_| wrong())?;
        rest = &rest[end..];
        let end = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
        let seconds = match &rest[..end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" => 1e-6,
            _ => return Err(wrong()),
        };
        all += Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        rest = &rest[end..];
    }
    Ok(all)
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
    nftables: RulesSettings,
    iptables: RulesSettings,
    conntrack: Conntrack,
}

/// Of a mode.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RulesSettings {
    masquerade_all: bool,
    min_sync_period: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Conntrack {
    max_per_core: Option<u64>,
    min: Option<u64>,
    tcp_established_timeout: Option<String>,
    tcp_close_wait_timeout: Option<String>,
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
        options = options.with(read(&file)?)?;
    }
    options.accepted.warn();
    options.limits();
    if options.init_only {
        return Ok(());
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
    fn with(self, document: Document) -> anyhow::Result<Options> {
        let given = |text: String, flag: Option<String>| match text.is_empty() {
            true => flag,
            false => Some(text),
        };
        let list = |text: String| {
            text.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect()
        };
        let kubeconfig = document.client_connection.kubeconfig;
        let of_mode = match document.mode.as_str() {
            "iptables" => document.iptables,
            _ => document.nftables,
        };
        let time = |text: Option<String>, flag: Duration| match text {
            Some(text) => duration(&text).map_err(anyhow::Error::msg),
            None => Ok(flag),
        };
        let conntrack = document.conntrack;
        Ok(Options {
            masquerade_all: of_mode.masquerade_all,
            iptables_min_sync_period: time(of_mode.min_sync_period, self.iptables_min_sync_period)?,
            conntrack_max_per_core: conntrack.max_per_core.unwrap_or(self.conntrack_max_per_core),
            conntrack_min: conntrack.min.unwrap_or(self.conntrack_min),
            conntrack_tcp_timeout_established: time(
                conntrack.tcp_established_timeout,
                self.conntrack_tcp_timeout_established,
            )?,
            conntrack_tcp_timeout_close_wait: time(
                conntrack.tcp_close_wait_timeout,
                self.conntrack_tcp_timeout_close_wait,
            )?,
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
        })
    }

    /// What the kernel remembers of connections, as upstream sets it: never less than it does already.
    fn limits(&self) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let most = (self.conntrack_max_per_core * cores).max(self.conntrack_min);
        let seconds = [
            ("nf_conntrack_tcp_timeout_established", self.conntrack_tcp_timeout_established),
            ("nf_conntrack_tcp_timeout_close_wait", self.conntrack_tcp_timeout_close_wait),
        ];
        let most = (self.conntrack_max_per_core > 0).then_some(("nf_conntrack_max", most));
        let wanted = seconds.map(|(name, time)| (name, time.as_secs()));
        for (name, value) in most.into_iter().chain(wanted).filter(|(_, value)| *value > 0) {
            let path = Path::new("/proc/sys/net/netfilter").join(name);
            let is = std::fs::read_to_string(&path).ok().and_then(|is| is.trim().parse().ok());
            let is_enough = match is {
                Some(is) if name == "nf_conntrack_max" => value <= is,
                is => is == Some(value),
            };
            if !is_enough && let Err(error) = std::fs::write(&path, value.to_string()) {
                tracing::warn!(%error, name, value, "a limit of connections stays as it is");
            }
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
            masquerade_all: self.masquerade_all,
            min_sync_period: self.iptables_min_sync_period,
            healthz: address(&self.healthz_bind_address, 10256)?,
            metrics: address(&self.metrics_bind_address, 10249)?,
            flags: crate::alone::flags::given(),
            ..::proxy::Config::default()
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
            text => options.with(serde_saphyr::from_str(text).unwrap()).unwrap(),
        };
        let ::proxy::Config { node_name, cluster_cidrs, healthz, metrics, .. } =
            options.settings().unwrap();
        let shown = |address: Option<SocketAddr>| address.map(|one| one.to_string());
        let (healthz, metrics) = (shown(healthz), shown(metrics));
        assert_eq!(format!("{node_name} {cluster_cidrs:?} {healthz:?} {metrics:?}"), expected);
    }

    #[test]
    fn durations_are_gos() {
        let check = |text: &str, millis: u128| {
            assert_eq!(duration(text).map(|it| it.as_millis()), Ok(millis), "{text}");
        };
        check("0", 0);
        check("0s", 0);
        check("1h30m", 5_400_000);
        check("1.5s", 1500);
        check("10ms", 10);
        for wrong in ["", "1", "x", "1d", "-1s", "1h-"] {
            assert!(wrong.is_empty() || duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_flag_of_upstreams_is_taken() {
        let given = "proxy --masquerade-all --conntrack-min=1 --ipvs-scheduler=rr --oom-score-adj=-5 --detect-local-mode=ClusterCIDR --feature-gates=A=true --iptables-min-sync-period=1s";
        let options = Cli::parse_from(given.split_whitespace()).options;
        assert!(options.masquerade_all);
        let config = Options { hostname_override: Some("n".to_owned()), ..options }.settings();
        let config = config.unwrap();
        assert!(config.masquerade_all);
        assert_eq!(config.min_sync_period, Duration::from_secs(1));
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
