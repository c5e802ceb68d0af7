//! `skiff scheduler`: the scheduler alone, in the place of upstream's.
use crate::alone::{self, Accepted, Leading, Serving, Upstreams};
use client::https::Https;
use client::{Context, Registry, Source};
use std::path::PathBuf;
use std::sync::Arc;

const NAME: &str = "kube-scheduler";
pub const PORT: u16 = 10259;

#[derive(clap::Args)]
pub struct Options {
    /// Where the API server is and who we are to it; in a pod, its service account by default.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    election: Leading,
    #[command(flatten)]
    serving: Serving,
    #[command(flatten)]
    accepted: Accepted<Flags>,
}

/// Flags of upstream's scheduler that mean nothing here. A configuration file is none of them: whoever
/// gives one wants what it says.
#[derive(Debug)]
struct Flags;

impl Upstreams for Flags {
    const FLAGS: &[&str] = &[
        "authentication-kubeconfig",
        "authentication-skip-lookup",
        "authentication-token-webhook-cache-ttl",
        "authentication-tolerate-lookup-failure",
        "authorization-kubeconfig",
        "authorization-webhook-cache-authorized-ttl",
        "authorization-webhook-cache-unauthorized-ttl",
        "cert-dir",
        "client-ca-file",
        "contention-profiling",
        "emulated-version",
        "feature-gates",
        "http2-max-streams-per-connection",
        "kube-api-burst",
        "kube-api-content-type",
        "kube-api-qps",
        "leader-elect-resource-lock",
        "log-flush-frequency",
        "logging-format",
        "permit-address-sharing",
        "permit-port-sharing",
        "pod-max-in-unschedulable-pods-duration",
        "profiling",
        "requestheader-allowed-names",
        "requestheader-client-ca-file",
        "requestheader-extra-headers-prefix",
        "requestheader-group-headers",
        "requestheader-username-headers",
        "show-hidden-metrics-for-version",
        "tls-cipher-suites",
        "tls-min-version",
        "vmodule",
    ];
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    options.accepted.warn();
    let config = alone::config(options.kubeconfig.as_deref())?;
    let registry = Arc::new(Registry::default());
    let context = Context::new().with_metrics(registry.clone());
    let source: Arc<dyn Source> = Arc::new(Https::new(&context, config.for_component(NAME))?);
    options.serving.start(&context, &source, registry, PORT).await?;
    let own = source.clone();
    let settings = ::scheduler::Config::new(&alone::hostname());
    let work = move |term: Context| async move { ::scheduler::run(&term, own, settings).await };
    alone::until_stopped(&context, options.election.work(&context, source, NAME, work)).await
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

    /// As kubeadm's manifest has them.
    #[test]
    fn a_stock_clusters_flags_are_understood() {
        let parse = |flags: &str| {
            let words = std::iter::once("scheduler").chain(flags.split_whitespace());
            Cli::try_parse_from(words.map(str::to_owned)).map(|cli| cli.options)
        };
        let flags = "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf \
            --authorization-kubeconfig=/etc/kubernetes/scheduler.conf --bind-address=127.0.0.1 \
            --kubeconfig=/etc/kubernetes/scheduler.conf --leader-elect=true";
        let found = parse(&flags.replace('\\', "")).expect("they are understood");
        assert_eq!(found.kubeconfig, Some(PathBuf::from("/etc/kubernetes/scheduler.conf")));
        // What it says would be lost.
        assert!(parse("--config=/etc/kubernetes/scheduler.yaml").is_err());
    }
}
