//! `skiff agent`: this machine as one more node of a cluster that runs elsewhere.
//!
//! A token says who may join, and of which cluster: the hash of its CA is in it, so that the token is
//! shown to nobody else. With it the node asks for a certificate of its own, which it renews itself;
//! afterwards the token is not needed any more.
use super::components::{self, COMPONENTS, Cluster, OF_NODE};
use super::servers::Servers;
use super::{Machine, join, preflight, running, tunnels, until_end};
use crate::alone::Leading;
use crate::rootless;
use ::apiserver::pki;
use anyhow::Context as _;
use client::https::{Config, Https};
use client::{ApiResource, Client, Context, Informer, Source};
use k8s_openapi::api::core::v1::Node;
use kubelet::identity::{self, Files, Purpose};
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

const KUBELET_PORT: u16 = 10250;

#[derive(clap::Args)]
pub struct Options {
    /// The API server to join: `https://HOST:6443`.
    #[arg(long)]
    server: String,
    /// What `skiff token create` printed there; not needed by a node that has joined before.
    #[arg(long)]
    token: Option<String>,
    /// Whether this node opens a way for the servers to its kubelet, so that logs and commands work though
    /// they cannot dial it.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    tunnel: bool,
    /// Components to leave out on this node, for others to take their place; without `network` pods wait for
    /// a CNI plugin.
    #[arg(long, value_delimiter = ',', value_parser = components::names_of_node())]
    disable: Vec<String>,
    #[command(flatten)]
    machine: Machine,
}

impl Options {
    fn runs(&self, component: &str) -> bool {
        !self.disable.iter().any(|disabled| disabled == component)
    }
}

pub async fn run(mut options: Options) -> anyhow::Result<()> {
    options.machine.leave_network_to_plugins_if(&options.disable);
    let stop = crate::stop_signal()?;
    rootless::begin().context("failed to connect this user's namespaces with the machine")?;
    preflight::check(true, &options.machine)?;
    let runs: Vec<String> =
        OF_NODE.into_iter().filter(|name| options.runs(name)).map(str::to_owned).collect();
    let (machine, context) = (Arc::new(options.machine), Context::new());
    let (node_name, node_ips) = (machine.node_name()?, machine.node_ips());
    let folder = machine.data_dir.join("agent");
    let (ca, files) = (folder.join("ca.crt"), Files::at(&folder, "kubelet-client"));
    if files.renewal(context.now()).is_none() {
        let token = options.token.as_deref().context(
            "this machine has not joined yet: pass --token with what `skiff token create` prints \
             on the server",
        )?;
        let token: join::Token = token.parse()?;
        join::introduce(&context, &options.server, &token, &node_name, &ca, &files).await?;
    }
    let servers = Servers::open(&folder.join("servers"));
    let config =
        Config { others: Some(servers.others()), ..join::config(&options.server, &ca, &files) };
    let source: Arc<dyn Source> =
        Arc::new(Https::new(&context, config.clone().for_component("kubelet"))?);
    // Services and other nodes are read as kube-proxy, as which a node may have a certificate too.
    let proxy_files = Files::at(&folder, "proxy");
    let client = Client::new(source.clone()).managed_by("kubelet");
    identity::introduce(&context, &client, &node_name, &Purpose::Proxy, &proxy_files)
        .await
        .context("the server gave this node's kube-proxy no certificate")?;
    let proxy = Config {
        others: Some(servers.others()),
        ..join::config(&options.server, &ca, &proxy_files)
    };
    servers.follow(
        &context,
        Arc::new(Https::new(&context, proxy.clone().for_component("skiff-servers"))?),
    );
    if options.tunnel {
        let to = (node_ips.first().copied().unwrap_or(Ipv4Addr::LOCALHOST.into()), KUBELET_PORT);
        let named = config.clone().for_component("kubelet");
        tunnels::keep(&context, named, servers.clone(), to.into());
    }
    let mut names = vec![node_name.clone(), "127.0.0.1".to_owned()];
    names.extend(node_ips.iter().map(ToString::to_string));
    let serving = pki::self_signed(&folder, "kubelet", &names)?;
    let renewing = [(Purpose::Client, files), (Purpose::Proxy, proxy_files)];
    keep_certificates(&context, source, &node_name, renewing, &folder);

    let network = match runs.iter().any(|name| name == "kubelet") {
        true => machine.network(runs.iter().any(|name| name == "network-policy"))?,
        false => None,
    };
    let dialing = context.clone();
    let cluster = Cluster {
        machine,
        ca,
        pki: None,
        serving,
        context: context.clone(),
        sources: Arc::new(move |component, user| {
            let config = if user.name == components::PROXY_USER { &proxy } else { &config };
            Ok(Arc::new(Https::new(&dialing, config.clone().for_component(component))?))
        }),
        ways: Arc::new(|_, _| None),
        node_name,
        node_ips,
        api_port: 0,
        leading: Leading::usual(false),
        network,
        dns_here: Default::default(),
        pool: Default::default(),
        gateway_pool: Default::default(),
        runs,
    };
    running::tell(&cluster)?;
    let rows = COMPONENTS.iter().filter(|row| cluster.runs(row.name));
    let running: Vec<_> =
        rows.map(|row| (row, tokio::spawn(components::supervise(row, cluster.clone())))).collect();
    let ready = format!("this machine is node {} of {}", cluster.node_name, options.server);
    let _ = writeln!(std::io::stdout(), "{ready}");
    let end = until_end(stop, &cluster.machine, &cluster.node_ips).await;
    context.stop();
    components::drain(running).await;
    end.follow()
}

fn keep_certificates(
    context: &Context,
    source: Arc<dyn Source>,
    node: &str,
    renewing: [(Purpose, Files); 2],
    folder: &Path,
) {
    let client = Client::new(source.clone()).managed_by("kubelet");
    let own = api::selector::field::Selector::equals("metadata.name", node);
    let of = client::source::Collection::all(ApiResource::of::<Node>()).with_fields(own);
    let nodes = Informer::<Node>::start(context, source, of);
    let serving = Files::at(folder, "kubelet");
    for (purpose, files) in renewing {
        let (context, client, node) = (context.clone(), client.clone(), node.to_owned());
        tokio::spawn(identity::renew(context, client, node, purpose, files));
    }
    tokio::spawn(identity::keep_server(context.clone(), client, nodes, node.to_owned(), serving));
}
