//! Ports that are open: those that the table has, as long as it has them.
use super::{Proxy, connection};
use crate::live::Bind;
use client::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A pause after a connection could not be taken: the process has no files left.
const PAUSE: Duration = Duration::from_millis(100);
/// How long clients have to finish when their port closes.
const DRAIN: Duration = Duration::from_secs(5);

pub struct Listeners {
    proxy: Arc<Proxy>,
    bind: Bind,
    open: BTreeMap<u16, (Context, SocketAddr)>,
    tasks: JoinSet<()>,
}

impl Listeners {
    pub fn new(proxy: Arc<Proxy>, bind: Bind) -> Listeners {
        Listeners { proxy, bind, open: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Opens and closes ports until these are open; those that could not be are told.
    pub fn settle(&mut self, wanted: &BTreeSet<u16>) -> Vec<(u16, io::Error)> {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|port, (context, _)| {
            let stays = wanted.contains(port);
            if !stays {
                context.stop();
            }
            stays
        });
        let mut refused = Vec::new();
        for &port in wanted {
            if self.open.contains_key(&port) {
                continue;
            }
            if let Err(error) = self.open_port(port) {
                refused.push((port, error));
            }
        }
        refused
    }

    fn open_port(&mut self, port: u16) -> io::Result<()> {
        let listener = (self.bind.0)(port)?;
        let address = listener.local_addr()?;
        let tls = super::tls::server(&self.proxy, port).map_err(io::Error::other)?;
        let context = self.proxy.context.part();
        self.open.insert(port, (context.clone(), address));
        tracing::info!(%address, "ingress listens");
        self.tasks.spawn(accept(self.proxy.clone(), context, listener, port, tls));
        Ok(())
    }

    /// Where a port is served.
    #[cfg(test)]
    pub fn address(&self, port: u16) -> Option<SocketAddr> {
        self.open.get(&port).map(|(_, address)| *address)
    }

    /// Until all clients are gone, or have had their time.
    pub async fn drain(mut self) {
        self.open.values().for_each(|(context, _)| context.stop());
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn accept(
    proxy: Arc<Proxy>,
    context: Context,
    listener: TcpListener,
    port: u16,
    tls: Arc<rustls::ServerConfig>,
) {
    let mut clients = JoinSet::new();
    loop {
        let seat = proxy.clients.clone().acquire_owned();
        let next = async { (seat.await, listener.accept().await) };
        let (seat, accepted) = tokio::select! {
            next = next => next,
            () = context.stopped() => break,
        };
        while clients.try_join_next().is_some() {}
        match accepted {
            Ok((stream, peer)) => {
                let client = connection::Client {
                    proxy: proxy.clone(),
                    peer: peer.ip().to_canonical(),
                    port,
                };
                let serving = connection::serve(client, context.clone(), stream, tls.clone());
                clients.spawn(async move {
                    serving.await;
                    drop(seat);
                });
            }
            Err(_) if !context.sleep(PAUSE).await => break,
            Err(_) => {}
        }
    }
    drop(listener);
    let all = async { while clients.join_next().await.is_some() {} };
    // Who is not done by now is cut off with the set.
    let _ = tokio::time::timeout(DRAIN, all).await;
}
