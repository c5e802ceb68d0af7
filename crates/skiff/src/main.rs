//! The binary: picks the components to run, starts them, waits for a signal, drains. It decides
//! nothing else.
#![forbid(unsafe_code)]

use anyhow::Context;
use apiserver::pki::Pki;
use apiserver::{ApiServer, listen};
use clap::{Parser, Subcommand};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use store::Store;
use store::embedded::{Embedded, Options};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// All of Kubernetes in one binary.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a cluster on this machine. Today that is its API server.
    Up(Up),
}

#[derive(clap::Args)]
struct Up {
    /// Where the cluster's state and keys are kept.
    #[arg(long, default_value = "/var/lib/skiff")]
    data_dir: PathBuf,
    /// The API server's port; 0 takes a free one.
    #[arg(long, default_value_t = 6443)]
    port: u16,
    /// The address to listen on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,
    /// Where to write the administrator's kubeconfig; by default into the data directory.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    // One provider for everything that speaks TLS: a second one would be a panic at run time. It
    // is an error only if one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match cli.command {
        Command::Up(options) => runtime.block_on(up(options)),
    }
}

async fn up(options: Up) -> anyhow::Result<()> {
    let folder = &options.data_dir;
    let pki = Pki::open(&folder.join("pki"))?;
    let engine = Embedded::open(&folder.join("store"), Options::default())
        .with_context(|| format!("failed to open the store in {}", folder.display()))?;
    let api = ApiServer::new(Store::from(engine.clone()));
    apiserver::bootstrap(&api).await?;
    let listener = TcpListener::bind((options.bind_address, options.port))
        .await
        .with_context(|| format!("failed to listen on port {}", options.port))?;
    let address = listener.local_addr()?;
    let kubeconfig = options.kubeconfig.unwrap_or_else(|| folder.join("kubeconfig"));
    pki.write_kubeconfig(&kubeconfig, &format!("https://{address}"))?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let server = tokio::spawn(listen::listen(api.clone(), listener, pki.server_config()?));
    println!("skiff is ready at https://{address}: export KUBECONFIG={}", kubeconfig.display());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    api.stop();
    server.await?;
    engine.close().await;
    Ok(())
}
