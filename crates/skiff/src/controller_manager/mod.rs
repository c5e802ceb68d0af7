//! `skiff controller-manager`: the control loops alone, in the place of upstream's.
mod accounts;
mod flags;
mod signing;

use crate::alone::{self, Accepted, Leading, Served, Serving, duration, span};
use ::apiserver::admission::policy::type_checking;
use ::apiserver::service_account::Keys;
use anyhow::{Context as _, ensure};
use client::https::Https;
use client::{Context, Registry, Source};
use controllers::{Settings, Sources, autoscaler, node_lifecycle, policy_status, tokens};
use flags::{Flags, Workers};
use jiff::SignedDuration;
use signing::Signing;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "kube-controller-manager";
pub const SERVED: Served = Served { name: NAME, port: 10257 };

#[derive(clap::Args)]
pub struct Options {
    /// Where the API server is and who we are to it; in a pod, its service account by default.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Which control loops run: `*` for all, a name for one, `-name` for all but one.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Whether each loop writes with its own service account, and that one's rights.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        default_value_t = false, action = clap::ArgAction::Set)]
    use_service_account_credentials: bool,
    /// The key that tokens of service accounts are signed with, if they live in Secrets.
    #[arg(long)]
    service_account_private_key_file: Option<PathBuf>,
    /// The certificates that pods trust the API server by.
    #[arg(long)]
    root_ca_file: Option<PathBuf>,
    /// Whether nodes get a part of the pods' addresses.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        default_value_t = false, action = clap::ArgAction::Set)]
    allocate_node_cidrs: bool,
    /// Where pods' addresses are from: one range, or one of each family.
    #[arg(long, default_value = "")]
    cluster_cidr: String,
    /// How many bits of an address are the node's; 24, or 64 of the sixth version.
    #[arg(long)]
    node_cidr_mask_size: Option<u32>,
    #[arg(long)]
    node_cidr_mask_size_ipv4: Option<u32>,
    #[arg(long)]
    node_cidr_mask_size_ipv6: Option<u32>,
    #[command(flatten)]
    signing: Signing,
    /// After how long without use a token of old is taken away.
    #[arg(long, value_parser = span, default_value = "8760h")]
    legacy_service_account_token_clean_up_period: SignedDuration,
    /// A node that is lost keeps its volumes until somebody says that it is out of service.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        default_value_t = false, action = clap::ArgAction::Set)]
    disable_force_detach_on_timeout: bool,
    /// As many pods that have ended stay; 0: all of them.
    #[arg(long, default_value_t = 12_500)]
    terminated_pod_gc_threshold: usize,
    #[command(flatten)]
    autoscaler: Autoscaler,
    #[command(flatten)]
    nodes: Nodes,
    #[command(flatten)]
    workers: Workers,
    #[command(flatten)]
    election: Leading,
    #[command(flatten)]
    serving: Serving,
    #[command(flatten)]
    accepted: Accepted<Flags>,
}

#[derive(clap::Args)]
struct Autoscaler {
    /// How often autoscalers look.
    #[arg(long, value_parser = duration, default_value = "15s")]
    horizontal_pod_autoscaler_sync_period: Duration,
    /// For how long the highest recommendation counts before pods go.
    #[arg(long, value_parser = span, default_value = "5m0s")]
    horizontal_pod_autoscaler_downscale_stabilization: SignedDuration,
    /// For how long the use of processors by a pod that starts does not count.
    #[arg(long, value_parser = span, default_value = "5m0s")]
    horizontal_pod_autoscaler_cpu_initialization_period: SignedDuration,
    /// Within which time a pod that is not ready has never been.
    #[arg(long, value_parser = span, default_value = "30s")]
    horizontal_pod_autoscaler_initial_readiness_delay: SignedDuration,
    /// How far from its target a metric may be.
    #[arg(long, default_value_t = 0.1)]
    horizontal_pod_autoscaler_tolerance: f64,
}

impl Autoscaler {
    fn settings(&self) -> autoscaler::Settings {
        autoscaler::Settings {
            sync_period: self.horizontal_pod_autoscaler_sync_period,
            downscale_stabilization: self.horizontal_pod_autoscaler_downscale_stabilization,
            cpu_initialization_period: self.horizontal_pod_autoscaler_cpu_initialization_period,
            initial_readiness_delay: self.horizontal_pod_autoscaler_initial_readiness_delay,
            tolerance: self.horizontal_pod_autoscaler_tolerance,
        }
    }
}

#[derive(clap::Args)]
struct Nodes {
    /// For how long a node may not be heard of.
    #[arg(long, value_parser = span, default_value = "50s")]
    node_monitor_grace_period: SignedDuration,
    /// From how many nodes a second pods may have to leave, in a zone that is well.
    #[arg(long, default_value_t = 0.1)]
    node_eviction_rate: f64,
    /// And in a large zone that is not.
    #[arg(long, default_value_t = 0.01)]
    secondary_node_eviction_rate: f64,
    /// The share of nodes that are not ready from which on a zone is not well.
    #[arg(long, default_value_t = 0.55)]
    unhealthy_zone_threshold: f64,
    /// A zone with more nodes than that is large.
    #[arg(long, default_value_t = 50)]
    large_cluster_size_threshold: usize,
}

impl Nodes {
    fn settings(&self) -> node_lifecycle::Settings {
        node_lifecycle::Settings {
            monitor_grace_period: self.node_monitor_grace_period,
            eviction_rate: self.node_eviction_rate,
            secondary_eviction_rate: self.secondary_node_eviction_rate,
            unhealthy_zone_threshold: self.unhealthy_zone_threshold,
            large_cluster_size_threshold: self.large_cluster_size_threshold,
        }
    }
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    options.accepted.warn();
    let config = alone::config(options.kubeconfig.as_deref())?.for_component(NAME);
    let registry = Arc::new(Registry::default());
    let context = Context::new().with_metrics(registry.clone());
    let source: Arc<dyn Source> = Arc::new(Https::new(&context, config.clone())?);
    let settings = options.settings()?;
    // Misspelt names are told before anybody waits to lead.
    let names = options.controllers.clone();
    controllers::select(&names)?;
    options.serving.start(&context, &source, registry, SERVED).await?;
    let sources = match options.use_service_account_credentials {
        true => accounts::each_its_own(&context, &config, source.clone()),
        false => Sources::one(source.clone()),
    };
    let work = move |term: Context| {
        let running = controllers::start(&term, &sources, &names, settings);
        async move {
            match running {
                Ok(running) => running.await,
                Err(error) => tracing::error!(%error, "no control loop runs"),
            }
        }
    };
    alone::until_stopped(&context, options.election.work(&context, source, NAME, work)).await
}

impl Options {
    fn settings(&self) -> anyhow::Result<Settings> {
        let read = |file: &PathBuf| {
            std::fs::read_to_string(file)
                .with_context(|| format!("failed to read {}", file.display()))
        };
        ensure!(
            !self.allocate_node_cidrs || !self.cluster_cidr.is_empty(),
            "--allocate-node-cidrs needs --cluster-cidr"
        );
        let mask = |own: Option<u32>, usual| own.or(self.node_cidr_mask_size).unwrap_or(usual);
        let is_dual = self.cluster_cidr.contains(',');
        ensure!(
            !is_dual || self.node_cidr_mask_size.is_none(),
            "usage of --node-cidr-mask-size is not allowed with dual-stack clusters"
        );
        let key = self.service_account_private_key_file.as_deref();
        Ok(Settings {
            root_ca: self.root_ca_file.as_ref().map(read).transpose()?.unwrap_or_default(),
            cluster_cidr: self.cluster_cidr.clone(),
            allocate_node_cidrs: self.allocate_node_cidrs,
            node_cidr_mask_ipv4: mask(self.node_cidr_mask_size_ipv4, 24),
            node_cidr_mask_ipv6: mask(self.node_cidr_mask_size_ipv6, 64),
            signers: self.signing.signers()?,
            token_signer: key.map(signer).transpose()?,
            policy_check: Some(policy_check()),
            legacy_token_clean_up_period: self.legacy_service_account_token_clean_up_period,
            keep_attached: self.disable_force_detach_on_timeout,
            terminated_pod_gc_threshold: self.terminated_pod_gc_threshold,
            autoscaler: self.autoscaler.settings(),
            nodes: self.nodes.settings(),
            workers: self.workers.0.clone(),
            ..Settings::default()
        })
    }
}

/// Reads the expressions of policies.
pub fn policy_check() -> policy_status::Check {
    policy_status::Check(Arc::new(type_checking::warnings))
}

/// Signs with the private key of a file.
pub fn signer(key: &std::path::Path) -> anyhow::Result<tokens::Signer> {
    let keys = Keys::read(key, &[])?;
    Ok(tokens::Signer(Arc::new(move |claims| keys.sign(claims).ok())))
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

    fn settings(flags: &str) -> Result<Settings, String> {
        let words = std::iter::once("kcm").chain(flags.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        cli.options.settings().map_err(|error| error.to_string())
    }

    /// As kubeadm's manifest has them.
    #[test]
    fn a_stock_clusters_flags_are_understood() {
        let flags = "--allocate-node-cidrs=true --authentication-kubeconfig=/etc/kubernetes/controller-manager.conf \
            --authorization-kubeconfig=/etc/kubernetes/controller-manager.conf --bind-address=127.0.0.1 \
            --client-ca-file=/etc/kubernetes/pki/ca.crt --cluster-cidr=10.244.0.0/16 --cluster-name=kubernetes \
            --controllers=*,bootstrap-signer-controller,token-cleaner-controller \
            --kubeconfig=/etc/kubernetes/controller-manager.conf --leader-elect=true \
            --requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt \
            --service-cluster-ip-range=10.96.0.0/12 --use-service-account-credentials=true \
            --tls-min-version=VersionTLS13 --concurrent-deployment-syncs=7 --kube-api-qps=100 --feature-gates=A=true";
        let found = settings(&flags.replace('\\', "")).expect("they are understood");
        assert_eq!(found.cluster_cidr, "10.244.0.0/16");
        assert_eq!(found.workers.get("deployment-controller"), Some(&7));
        assert_eq!((found.node_cidr_mask_ipv4, found.node_cidr_mask_ipv6), (24, 64));
    }

    #[test]
    fn ranges_and_masks_go_together() {
        let dual = "--allocate-node-cidrs --cluster-cidr=10.0.0.0/16,fd00::/48";
        let found = settings(&format!("{dual} --node-cidr-mask-size-ipv6=80")).expect("good");
        assert_eq!((found.node_cidr_mask_ipv4, found.node_cidr_mask_ipv6), (24, 80));
        assert!(settings(&format!("{dual} --node-cidr-mask-size=25")).is_err());
        assert!(settings("--allocate-node-cidrs").is_err());
        assert!(settings("--horizontal-pod-autoscaler-sync-period=soon").is_err());
        assert!(settings("--nonsense").is_err());
    }
}
