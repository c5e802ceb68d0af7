//! The commands about containers on this machine: thin calls into the runtime.
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use runtime::image::RegistriesConfig;
use runtime::network::{Cni, Loopback, Network};
use runtime::{Options, Service};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Subcommand)]
pub enum Command {
    /// Run the container runtime alone, for crictl or upstream's kubelet.
    Cri(Cri),
}

#[derive(clap::Args)]
pub struct Places {
    /// Where images and containers are kept.
    #[arg(long, default_value = "/var/lib/skiff/runtime")]
    root: PathBuf,
    /// Where sockets and mounts are; a short path.
    #[arg(long, default_value = "/run/skiff")]
    state: PathBuf,
    /// Mirrors, credentials and authorities of registries.
    #[arg(long, default_value = "/etc/skiff/registries.yaml")]
    registries: PathBuf,
    /// Networks of sandboxes; without one of these files they have loopback only.
    #[arg(long, default_value = "/etc/cni/net.d")]
    cni_conf_dir: PathBuf,
    /// Where CNI plugins are.
    #[arg(long, default_values = ["/opt/cni/bin", "/usr/lib/cni"])]
    cni_bin_dir: Vec<PathBuf>,
}

#[derive(clap::Args)]
pub struct Cri {
    /// The socket to serve the CRI on.
    #[arg(long, default_value = "unix:///run/skiff/cri.sock")]
    listen: String,
    #[command(flatten)]
    places: Places,
}

/// Where the sandbox is described, if this process is a shim.
pub fn shim_arguments() -> Option<PathBuf> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == "shim").then(|| arguments.next().map(PathBuf::from))?
}

pub async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Cri(options) => cri(options).await,
    }
}

async fn open(places: &Places) -> anyhow::Result<Service> {
    let configured = std::fs::read_dir(&places.cni_conf_dir).is_ok_and(|mut d| d.next().is_some());
    let network: Arc<dyn Network> = match configured {
        true => Arc::new(Cni::new(places.cni_conf_dir.clone(), places.cni_bin_dir.clone())),
        false => Arc::new(Loopback),
    };
    let options = Options {
        root: places.root.clone(),
        state: places.state.clone(),
        registries: RegistriesConfig::read(&places.registries)?,
        network,
        executable: std::env::current_exe().context("failed to find this executable")?,
    };
    Ok(Service::open(options).await?)
}

async fn cri(options: Cri) -> anyhow::Result<()> {
    let socket =
        options.listen.strip_prefix("unix://").context("--listen must start with unix://")?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let service = open(&options.places).await?;
    service.serve_streams().await?;
    println!("the container runtime listens on {}", options.listen);
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    runtime::cri::serve(Arc::new(service), socket.as_ref(), stop).await?;
    Ok(())
}
