//! Ways from the cluster's servers to this node's kubelet, for when it cannot be dialled: it may be behind
//! a router, or have an address that means nothing to others. There is one from the server that was named,
//! and one from each that is known.
use super::servers::{NAME, Servers};
use client::Context;
use client::https::{Config, Https};
use client::tunnel;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// How often servers are looked for that have come or gone.
const LOOK: Duration = Duration::from_secs(10);

pub fn keep(context: &Context, named: Config, servers: Servers, to: SocketAddr) {
    let context = context.clone();
    tokio::spawn(async move {
        let open = |context: &Context, config: Config| match Https::new(context, config) {
            Ok(server) => drop(tokio::spawn(tunnel::keep(context.clone(), server, to))),
            Err(error) => tracing::warn!(%error, "no tunnel is opened"),
        };
        open(&context, Config { others: None, ..named.clone() });
        let mut known: HashMap<SocketAddr, Context> = HashMap::new();
        loop {
            let addresses = (servers.others().addresses)();
            known.retain(|address, way| {
                let stays = addresses.contains(address);
                if !stays {
                    way.stop();
                }
                stays
            });
            for address in addresses {
                known.entry(address).or_insert_with(|| {
                    let own = context.part();
                    let (address, server_name) = (Some(address), Some(NAME.to_owned()));
                    open(&own, Config { address, server_name, others: None, ..named.clone() });
                    own
                });
            }
            if !context.sleep(LOOK).await {
                return;
            }
        }
    });
}
