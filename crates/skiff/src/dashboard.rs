//! `skiff dashboard`: a page that shows the cluster, for whoever types it.
use crate::places;
use anyhow::Context as _;
use client::Context;
use client::https::{Config, Https};
use dashboard::Door;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;

#[derive(clap::Args)]
pub struct Options {
    /// Whose eyes the page has: those of `$KUBECONFIG`, or else the administrator's.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig that is not its current one.
    #[arg(long)]
    context: Option<String>,
    /// Where to listen. What is sent is not encrypted: beyond this machine, anybody on the way can read it.
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
    /// 0 for any that is free.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let file = options.kubeconfig.clone().or_else(|| {
        let named = std::env::var_os("KUBECONFIG")?;
        std::env::split_paths(&named).find(|file| file.exists())
    });
    let file = file.unwrap_or_else(|| places::kubeconfig(None, &places::data_dir()));
    let config = Config::from_kubeconfig(&file, options.context.as_deref())
        .context("is there a cluster here? `skiff up` makes one")?;
    let server = config.server.clone();
    let context = Context::new();
    let source = Https::new(&context, config.for_component("skiff-dashboard"))?;
    let listener = TcpListener::bind((options.address, options.port))
        .await
        .with_context(|| format!("failed to listen on {}:{}", options.address, options.port))?;
    let door = Door { address: listener.local_addr()?, key: crate::token::secret_word() };
    println!("the dashboard of {server} is at {}", door.url());
    eprintln!("whoever has this address may do there what you may do; Ctrl-C ends it");
    let stop = crate::stop_signal()?;
    let serving = tokio::spawn(dashboard::run(context.clone(), listener, door, Arc::new(source)));
    stop.await;
    context.stop();
    Ok(serving.await?)
}
