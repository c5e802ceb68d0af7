//! `skiff flows`: what NetworkPolicies drop on this node, as it happens.
//!
//! The rules of policies always offer it, at most so often in a second; nothing is told, and nothing
//! costs anything, until this command listens.
use crate::alone;
use anyhow::Context as _;
use client::https::Https;
use client::source::Collection;
use client::{ApiResource, Client, Context};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use netlink::{Family, Socket};
use network::policy::{FLOWS_GROUP, Flow, dropped};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(clap::Args)]
pub struct Options {
    /// Who tells which pods and policies there are.
    #[arg(long, default_value_os_t = crate::places::data_dir().join("kubeconfig"))]
    kubeconfig: PathBuf,
    /// End after so many packets.
    #[arg(long)]
    count: Option<usize>,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let config = alone::config(Some(&options.kubeconfig))?;
    let context = Context::new();
    let source = Arc::new(Https::new(&context, config.for_component("skiff-flows"))?);
    let client = Client::new(source);
    let mut socket = Socket::open(Family::Netfilter)?;
    socket.listen(FLOWS_GROUP).context("only root can listen, and one at a time")?;
    eprintln!("listening to what policies drop on this node; Ctrl-C ends");
    let mut told = 0;
    loop {
        let (back, heard) = tokio::task::spawn_blocking(move || {
            let heard = socket.logged();
            (socket, heard)
        })
        .await?;
        socket = back;
        let flows: Vec<Flow> = heard?.iter().filter_map(Flow::read).collect();
        if flows.is_empty() {
            continue;
        }
        // Whoever has an address now: pods come and go.
        let (pods, policies) = (all::<Pod>(&client).await?, all::<NetworkPolicy>(&client).await?);
        for flow in &flows {
            println!("{}", dropped(flow, &pods, &policies));
            told += 1;
            if options.count.is_some_and(|count| told >= count) {
                return Ok(());
            }
        }
    }
}

async fn all<T: api::rules::Form>(client: &Client) -> anyhow::Result<Vec<T>> {
    let listed = client.list(Collection::all(ApiResource::of::<T>())).await;
    let listed = listed.map_err(|status| anyhow::anyhow!(status.message))?;
    listed.items.iter().map(|object| Ok(object.decode::<T>()?)).collect()
}
