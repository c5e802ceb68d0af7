//! A node's part: the table follows the API, and what it says is served.
use crate::plan::{Places, plan};
use crate::serve::{Listeners, Proxy, Wanted};
use crate::world::Seen;
use api::pool::Pool;
use client::events::{Happening, Recorder, Reporter};
use client::{Client, Context, Source};
use k8s_openapi::api::core::v1::ObjectReference;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UdpSocket};

/// What a node is told.
#[derive(Clone)]
pub struct Config {
    /// Where Ingresses are served.
    pub http_port: u16,
    pub https_port: u16,
    /// Addresses of this machine that Gateways get, each its own.
    pub pool: Pool,
    pub node_name: String,
    pub bind: Bind,
}

impl Config {
    pub(crate) fn places(&self) -> Places {
        Places { http: self.http_port, https: self.https_port, pool: self.pool.clone() }
    }
}

/// How one listens on this node.
#[derive(Clone)]
pub struct Bind {
    /// At a port of every address.
    pub connections: Arc<dyn Fn(u16) -> io::Result<TcpListener> + Send + Sync>,
    /// At one address: who answers must say where he was asked.
    pub datagrams: Arc<dyn Fn(SocketAddr) -> io::Result<UdpSocket> + Send + Sync>,
}

#[derive(Debug, thiserror::Error)]
pub enum IngressError {
    #[error("failed to make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// Changes that come together are looked at together; where a look takes long, they have longer.
const GATHER: Duration = Duration::from_millis(20);
/// After how long a port that was taken is tried again, and connections are looked through.
const LOOK: Duration = Duration::from_secs(10);

/// Serves until the context stops.
pub async fn run(
    context: Context,
    source: Arc<dyn Source>,
    config: Config,
) -> Result<(), IngressError> {
    let client = Client::new(source.clone()).managed_by("skiff-ingress");
    let reporter = Reporter::new("skiff-ingress", &config.node_name);
    let recorder = Recorder::core(&context, client, reporter);
    let proxy = Proxy::new(&context)?;
    let mut listeners = Listeners::new(proxy.clone(), config.bind.clone());
    let seen = Seen::new(&context, source);
    let changes = seen.changes();
    let places = config.places();
    let mut told = BTreeSet::new();
    loop {
        let new = tokio::select! {
            new = changes.next() => Some(new),
            () = tokio::time::sleep(LOOK) => None,
            () = context.stopped() => break,
        };
        tokio::select! {
            () = seen.synced() => {}
            () = context.stopped() => break,
        }
        let begun = Instant::now();
        match new {
            Some(new) if new.plan => {
                let table = plan(&seen.world(), &places, "").table;
                proxy.set_table(table);
                proxy.set_addresses(|to| Some(seen.addresses(to)));
            }
            Some(new) => proxy.set_addresses(|to| {
                let is_new = new.services.contains(&to.service);
                is_new.then(|| seen.addresses(to))
            }),
            None => proxy.sweep(),
        }
        let own = seen.addresses_of_node(&config.node_name);
        let refused = listeners.settle(&Wanted::of(&proxy.table(), &own));
        tell(&recorder, &config.node_name, &mut told, refused);
        if !context.sleep(GATHER.max(4 * begun.elapsed())).await {
            break;
        }
    }
    listeners.drain().await;
    Ok(())
}

/// Says once of each port that it cannot be had.
fn tell(
    recorder: &Recorder,
    node: &str,
    told: &mut BTreeSet<String>,
    refused: Vec<(String, io::Error)>,
) {
    told.retain(|port| refused.iter().any(|(other, _)| other == port));
    for (port, error) in refused {
        if !told.insert(port.clone()) {
            continue;
        }
        let note = format!("failed to listen on port {port}: {error}; trying again");
        tracing::warn!("{note}");
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            uid: Some(node.to_owned()),
            ..ObjectReference::default()
        };
        recorder.record(Happening::warning(regarding, "IngressPortUnavailable", note));
    }
}

#[cfg(test)]
mod tests;
