//! `skiff scheduler`: the scheduler alone, in the place of upstream's.
use crate::alone::{self, Accepted, Leading, Served, Serving, Upstreams};
use ::scheduler::{Config, Configuration, Pending};
use anyhow::Context as _;
use client::https::Https;
use client::pages::{self, Asked, JSON, Page};
use client::{Context, Registry, Source};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;

const NAME: &str = "kube-scheduler";
pub const SERVED: Served = Served { name: NAME, port: 10259 };

#[derive(clap::Args)]
pub struct Options {
    /// Where the API server is and who we are to it; in a pod, its service account by default.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// A KubeSchedulerConfiguration: profiles, plugins, extenders. What it says of the API server counts
    /// instead of the flags; flags about the election count before it.
    #[arg(long)]
    config: Option<PathBuf>,
    /// After how long a pod is tried again, whatever was missed.
    #[arg(long, value_parser = alone::duration, default_value = "5m")]
    pod_max_in_unschedulable_pods_duration: Duration,
    /// Gates that are on or off: `GenericWorkload=true` makes pods of a PodGroup have nodes together.
    #[arg(long, value_delimiter = ',')]
    feature_gates: Vec<String>,
    #[command(flatten)]
    election: Leading,
    #[command(flatten)]
    serving: Serving,
    #[command(flatten)]
    accepted: Accepted<Flags>,
}

/// Flags of upstream's scheduler that mean nothing here.
#[derive(Debug)]
struct Flags;

impl Upstreams for Flags {
    const FLAGS: &[&str] = &[
        "allow-metric-labels",
        "allow-metric-labels-manifest",
        "authentication-kubeconfig",
        "authentication-skip-lookup",
        "authentication-token-webhook-cache-ttl",
        "authentication-tolerate-lookup-failure",
        "authorization-kubeconfig",
        "authorization-webhook-cache-authorized-ttl",
        "authorization-webhook-cache-unauthorized-ttl",
        "cert-dir",
        "contention-profiling",
        "disable-http2-serving",
        "disabled-metrics",
        "emulated-version",
        "http2-max-streams-per-connection",
        "kube-api-burst",
        "kube-api-content-type",
        "kube-api-qps",
        "leader-elect-resource-lock",
        "log-flush-frequency",
        "log-json-info-buffer-size",
        "log-json-split-stream",
        "log-text-info-buffer-size",
        "log-text-split-stream",
        "logging-format",
        "min-compatibility-version",
        "permit-address-sharing",
        "permit-port-sharing",
        "profiling",
        "requestheader-allowed-names",
        "requestheader-client-ca-file",
        "requestheader-extra-headers-prefix",
        "requestheader-group-headers",
        "requestheader-uid-headers",
        "requestheader-username-headers",
        "show-hidden-metrics-for-version",
        "tls-curve-preferences",
        "tls-sni-cert-key",
        "vmodule",
    ];
}

pub async fn run(mut options: Options) -> anyhow::Result<()> {
    options.accepted.warn();
    let configuration = configuration(&mut options)?;
    let config = alone::config(options.kubeconfig.as_deref())?;
    let registry = Arc::new(Registry::default());
    let context = Context::new().with_metrics(registry.clone());
    let source: Arc<dyn Source> = Arc::new(Https::new(&context, config.for_component(NAME))?);
    let settings = Config { configuration, ..Config::new(&alone::hostname()) };
    let pending = settings.pending.clone();
    let page = move |path: &str| page(path, &pending);
    options.serving.start_with(&context, &source, registry, SERVED, page).await?;
    let own = source.clone();
    let work = move |term: Context| {
        // A decision is a large thing to carry about.
        Box::pin(async move { ::scheduler::run(&term, own, settings).await })
    };
    alone::until_stopped(&context, options.election.work(&context, source, NAME, work)).await
}

/// Where `skiff why` asks the scheduler of a whole cluster.
pub fn socket(data_dir: &Path) -> PathBuf {
    data_dir.join("scheduler.sock")
}

/// `/debug/pending/UID`: why a pod waits, by node. Names of nodes are not for everybody, so on the port it
/// is for those who may read such paths.
pub fn page(path: &str, pending: &Pending) -> Option<Page> {
    let uid = path.strip_prefix("/debug/pending/")?;
    let Some(said) = pending.of(uid) else { return Some(Page::not_found()) };
    let body = json!({ "time": said.at.to_string(), "nodes": said.nodes });
    Some(Page::new(200, JSON, body.to_string()))
}

/// The same page at a path of the machine that nobody else may open.
pub async fn tell(context: Context, path: PathBuf, pending: Pending) -> anyhow::Result<()> {
    // What a scheduler that was killed left.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)
        .with_context(|| format!("failed to listen at {}", path.display()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let page = move |asked: Asked<'_>| page(asked.path, &pending).unwrap_or_else(Page::not_found);
    pages::serve_local(context, listener, page).await;
    let _ = std::fs::remove_file(&path);
    Ok(())
}

/// What the file says, where it says something; it counts instead of most flags.
fn configuration(options: &mut Options) -> anyhow::Result<Configuration> {
    let mut configuration = match &options.config {
        Some(path) => read(path)?,
        None => Configuration::default(),
    };
    configuration.gangs = gangs(&options.feature_gates)?;
    configuration.longest_wait = options.pod_max_in_unschedulable_pods_duration;
    if options.config.is_some() {
        let kubeconfig = &configuration.kubeconfig;
        options.kubeconfig = (!kubeconfig.is_empty()).then(|| kubeconfig.into());
        let (given, file) = (&mut options.election, configuration.leader_election.clone());
        given.leader_elect = given.leader_elect.or(file.leader_elect);
        let lease = given.leader_elect_lease_duration.or(file.lease_duration);
        given.leader_elect_lease_duration = lease;
        let renew = given.leader_elect_renew_deadline.or(file.renew_deadline);
        given.leader_elect_renew_deadline = renew;
        given.leader_elect_retry_period = given.leader_elect_retry_period.or(file.retry_period);
        let name = given.leader_elect_resource_name.take().or(file.resource_name);
        given.leader_elect_resource_name = name;
        let namespace = given.leader_elect_resource_namespace.take().or(file.resource_namespace);
        given.leader_elect_resource_namespace = namespace;
    }
    Ok(configuration)
}

/// Whether pod groups mean something. Other gates are as upstream has them by default.
fn gangs(gates: &[String]) -> anyhow::Result<bool> {
    let mut are_on = false;
    for gate in gates {
        let (name, value) =
            gate.split_once('=').with_context(|| format!("missing bool value for {gate}"))?;
        let value: bool =
            value.parse().with_context(|| format!("invalid value of {name}={value}"))?;
        match name {
            "GenericWorkload" => are_on = value,
            other => tracing::warn!("--feature-gates: {other} has no effect here"),
        }
    }
    Ok(are_on)
}

fn read(path: &Path) -> anyhow::Result<Configuration> {
    let bytes =
        std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    Configuration::read(&bytes).map_err(|problem| anyhow::anyhow!("{}: {problem}", path.display()))
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
    }

    #[test]
    fn a_file_counts_and_flags_of_the_election_count_before_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.yaml");
        let text = "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /there}
leaderElection: {leaderElect: false, resourceName: other}
profiles: [{schedulerName: a}, {schedulerName: b}]
";
        std::fs::write(&path, text).expect("written");
        let words = ["scheduler", "--kubeconfig=/here", "--leader-elect-resource-name=mine"];
        let words = words.map(str::to_owned).into_iter();
        let words = words.chain([format!("--config={}", path.display())]);
        let mut options = Cli::try_parse_from(words).expect("they are understood").options;
        let found = configuration(&mut options).expect("a configuration");
        assert_eq!(found.profiles.len(), 2);
        assert_eq!(options.kubeconfig, Some(PathBuf::from("/there")));
        assert_eq!(options.election.leader_elect, Some(false));
        assert_eq!(options.election.leader_elect_resource_name.as_deref(), Some("mine"));
        std::fs::write(&path, text.replace("profiles", "profile")).expect("written");
        let said = configuration(&mut options).expect_err("it is refused").to_string();
        assert!(said.ends_with("strict decoding error: unknown field \"profile\""), "{said}");
    }
}
