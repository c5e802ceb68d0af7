//! `skiff up`: a cluster on this machine, with nothing to configure.
//!
//! ```text
//!  preflight      what the machine lacks, said before anything is touched
//!  keys           what several servers of one cluster have in common
//!  control_plane  the store and the API server
//!  components     everything else, one row each: started in order, left out with `--disable`
//!  machine        this machine as a node
//!  agent, join    the same components of a node, for a cluster that runs elsewhere
//!  checklist      what is ready, and what is waited for
//! ```
//! Components meet in the API alone. Here they reach it within the process, each as whom upstream's
//! would be and with no right more.
mod addons;
pub mod agent;
mod checklist;
mod components;
mod control_plane;
pub mod given;
mod images;
mod ingress;
pub mod join;
mod keys;
mod local_storage;
mod machine;
pub mod manifests;
mod metrics_server;
mod preflight;
pub mod running;
mod servers;
mod stand_ins;
mod taken_back;
mod tunnels;

use crate::alone::Leading;
use crate::rootless;
use ::apiserver::pki::Pki;
use ::proxy::balancer::Pool;
use anyhow::Context as _;
use checklist::Checklist;
use client::Context;
use components::{COMPONENTS, Cluster, give_rights};
use control_plane::ControlPlane;
pub use machine::{Addresses, Machine, NodePlaces, addresses};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(clap::Args)]
pub struct Options {
    /// The API server's port; 0 takes a free one.
    #[arg(long, default_value_t = 6443)]
    pub port: u16,
    /// The address the API server listens on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,
    /// More names and addresses that the API server is found by, for its certificate; may be repeated.
    #[arg(long, value_delimiter = ',', value_parser = found_by)]
    tls_san: Vec<FoundBy>,
    /// Where to write the administrator's kubeconfig; by default into the data directory.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Addresses that services of type LoadBalancer get, announced by the nodes:
    /// `192.0.2.100-192.0.2.120,2001:db8::/120`. Without it they get the nodes' own.
    #[arg(long, default_value = "")]
    load_balancer_pool: Pool,
    /// Addresses of the servers that Gateways get, one of each family for each Gateway:
    /// `192.0.2.100-192.0.2.120,2001:db8::/120`. Without it all Gateways share the nodes' own.
    #[arg(long, default_value = "")]
    gateway_pool: Pool,
    /// Components to leave out, for others to take their place; their kubeconfigs are written into
    /// the data directory. `*` is all of them; without `network` pods wait for a CNI plugin.
    #[arg(long, value_delimiter = ',', value_parser = components::names())]
    pub disable: Vec<String>,
    /// What the servers of one cluster know, with --etcd-servers; the first one makes it, and keeps it in
    /// `server-token` in its data directory.
    #[arg(long)]
    token: Option<String>,
    #[command(flatten)]
    etcd: crate::etcd::Flags,
    #[command(flatten)]
    machine: Machine,
}

impl Options {
    /// Whether this machine is a node of its cluster.
    pub fn is_node(&self) -> bool {
        OF_NODE.iter().any(|name| self.runs(name))
    }

    fn runs(&self, component: &str) -> bool {
        // What is on the machine's own network has its ports already.
        let is_of_use = component != rootless::ports::NAME || rootless::is_inside();
        is_of_use && !self.disable.iter().any(|disabled| disabled == component || disabled == "*")
    }
}

/// What a certificate says of where a server is.
#[derive(Debug, Clone, PartialEq)]
enum FoundBy {
    Address(IpAddr),
    Name(String),
}

/// An address, or a name as DNS has it; `*` may be the first part of one.
fn found_by(text: &str) -> Result<FoundBy, String> {
    if let Ok(address) = text.parse() {
        return Ok(FoundBy::Address(address));
    }
    let name = text.to_ascii_lowercase();
    let is_part = |part: &str| {
        let is_inside = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        !part.is_empty() && part.len() < 64 && part.chars().all(is_inside)
    };
    let rest = name.strip_prefix("*.").unwrap_or(&name);
    match rest.len() < 254 && rest.split('.').all(is_part) {
        true => Ok(FoundBy::Name(name)),
        false => Err(format!("{text:?} is neither an address nor a name of DNS")),
    }
}

/// Components that act on the machine itself.
const OF_NODE: &[&str] = &["kubelet", "proxy"];

pub async fn run(mut options: Options) -> anyhow::Result<()> {
    options.machine.leave_network_to_plugins_if(&options.disable);
    let stop = crate::stop_signal()?;
    let mut checklist = Checklist::start();
    rootless::begin().context("failed to connect this user's namespaces with the machine")?;
    preflight::check(options.is_node(), &options.machine)?;
    let (node_name, node_ips) = (options.machine.node_name()?, options.machine.node_ips());
    let mut addresses = vec![options.bind_address];
    addresses.extend(node_ips.iter().copied().chain(options.machine.api_ips()));
    let mut names = Vec::new();
    for one in &options.tls_san {
        match one {
            FoundBy::Address(address) => addresses.push(*address),
            FoundBy::Name(name) => names.push(name.clone()),
        }
    }
    let store = options.etcd.store().await?;
    let is_one_of_several = store.is_some();
    if let Some(store) = &store {
        keys::share(store, &options.machine.data_dir, options.token.as_deref()).await?;
    }
    let pki = Pki::open_for(&options.machine.data_dir.join("pki"), &addresses)?;
    let pki = Arc::new(pki.with_names(&names)?.with_node(&node_name)?);
    let control_plane = ControlPlane::start(&options, &pki, store).await?;
    rootless::publish(SocketAddr::new(options.bind_address, control_plane.address.port()))?;
    let server = format!("https://{}", control_plane.address);
    let folder = options.machine.data_dir.clone();
    let kubeconfig = options.kubeconfig.clone().unwrap_or_else(|| folder.join("kubeconfig"));
    let mut files = vec![("admin", kubeconfig.clone())];
    for row in COMPONENTS.iter().filter(|row| !options.runs(row.name)) {
        files.extend(row.client.map(|client| (client, folder.join(format!("{}.conf", row.name)))));
    }
    // Where somebody said where it is to be, it is theirs to give.
    let caller = given::caller().filter(|_| options.kubeconfig.is_none());
    let mut shown = kubeconfig.clone();
    let write = {
        let (server, caller) = (server.clone(), caller.clone());
        move |pki: &Pki| -> Result<(), ::apiserver::pki::Error> {
            files
                .iter()
                .try_for_each(|(client, path)| pki.write_kubeconfig(path, &server, client))?;
            if let Some(caller) = &caller
                && let Err(error) = given::give(&folder, &kubeconfig, caller)
            {
                tracing::warn!(%error, "who called sudo has no kubeconfig");
            }
            Ok(())
        }
    };
    write(&pki)?;
    if caller.is_some()
        && let Some((path, ..)) = given::given(&options.machine.data_dir)
    {
        shown = path;
    }
    let keeping = pki.clone();
    tokio::spawn(async move { keeping.keep(write).await });
    checklist.done("api-server");

    let context = Context::new();
    let network = match options.runs("kubelet") {
        true => options.machine.network(options.runs("network-policy"))?,
        false => None,
    };
    let runs = COMPONENTS.iter().map(|row| row.name).filter(|name| options.runs(name));
    let control_plane = Arc::new(control_plane);
    let cluster = Cluster {
        runs: runs.map(str::to_owned).collect(),
        machine: Arc::new(options.machine),
        ca: pki.ca(),
        pki: Some(pki.clone()),
        serving: pki.pair("kubelet"),
        context: context.clone(),
        sources: {
            let (context, control_plane) = (context.clone(), control_plane.clone());
            Arc::new(move |component, user| control_plane.source(&context, component, user))
        },
        ways: control_plane.ways(),
        node_name,
        node_ips,
        api_port: control_plane.address.port(),
        leading: Leading::usual(is_one_of_several),
        network,
        dns_here: Default::default(),
        pool: options.load_balancer_pool,
        gateway_pool: options.gateway_pool,
    };
    give_rights(&cluster).await?;
    running::tell(&cluster)?;
    let running: Vec<_> = COMPONENTS
        .iter()
        .filter(|row| cluster.runs(row.name))
        .map(|row| (row, tokio::spawn(components::supervise(row, cluster.clone()))))
        .collect();
    let readiness = async {
        for row in COMPONENTS.iter().filter(|row| cluster.runs(row.name)) {
            checklist.wait_for(row.waits_for);
            (row.ready)(cluster.clone()).await;
            checklist.done(row.name);
        }
        checklist.end();
        // Whoever waited for it may have gone since, with the other end of the pipe.
        let ready = format!("skiff is ready at {server}: export KUBECONFIG={}", shown.display());
        let _ = writeln!(std::io::stdout(), "{ready}");
    };
    let (machine, known) = (cluster.machine.clone(), cluster.node_ips.clone());
    let ends = until_end(stop, &machine, &known);
    tokio::pin!(ends);
    let end = tokio::select! {
        end = &mut ends => end,
        () = readiness => ends.await,
    };
    context.stop();
    components::drain(running).await;
    drop(cluster);
    // If somebody did not end, what was acknowledged is on the disk all the same.
    if let Ok(control_plane) = Arc::try_unwrap(control_plane) {
        control_plane.stop().await?;
    }
    end.follow()
}

/// Why a cluster's process ends.
enum End {
    Stopped,
    /// The machine has another address.
    Moved,
}

async fn until_end(stop: impl Future<Output = ()>, machine: &Machine, known: &[IpAddr]) -> End {
    tokio::select! {
        () = stop => End::Stopped,
        () = machine.moved(known) => End::Moved,
    }
}

impl End {
    /// Everything that knows the machine's address is made anew, by the same program as the same process:
    /// certificates, sockets, what the node says of itself. Pods run on meanwhile.
    fn follow(self) -> anyhow::Result<()> {
        if let End::Stopped = self {
            return Ok(());
        }
        tracing::warn!("this machine has another address: starting again with it");
        let mut arguments = std::env::args_os();
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command.arg0(arguments.next().unwrap_or_default()).args(arguments);
        Err(anyhow::Error::new(command.exec()).context("failed to start again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_by_names_and_addresses() {
        let name = |text: &str| Ok(FoundBy::Name(text.to_owned()));
        assert_eq!(found_by("API.example.com"), name("api.example.com"));
        assert_eq!(found_by("*.example.com"), name("*.example.com"));
        assert_eq!(found_by("fd00::1"), Ok(FoundBy::Address("fd00::1".parse().unwrap())));
        for wrong in ["", "a..b", "https://a", "a b", "*", "a.*.b"] {
            assert!(found_by(wrong).is_err(), "{wrong}");
        }
    }
}
