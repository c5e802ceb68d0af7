//! Ports that are open: those that the table has, as long as it has them.
use super::{Proxy, connection, datagrams};
use crate::live::Bind;
use crate::table::{Site, Table};
use client::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A pause after a connection could not be taken: the process has no files left.
const PAUSE: Duration = Duration::from_millis(100);
/// How long clients have to finish when their port closes.
const DRAIN: Duration = Duration::from_secs(5);

/// What is to be listened on.
#[derive(Debug, Default)]
pub struct Wanted {
    pub connections: BTreeSet<u16>,
    /// Each at the addresses that this node has of it.
    pub datagrams: BTreeMap<Site, Vec<SocketAddr>>,
}

impl Wanted {
    /// `own`: the node's addresses.
    pub fn of(table: &Table, own: &[IpAddr]) -> Wanted {
        let at = |site: &Site| -> Vec<SocketAddr> {
            let shared = own.iter().copied().filter(|one| !table.own.contains(one));
            match site.address {
                Some(address) => vec![SocketAddr::new(address, site.port)],
                None => shared.map(|address| SocketAddr::new(address, site.port)).collect(),
            }
        };
        let datagrams = table.datagrams.keys().map(|site| (*site, at(site)));
        Wanted { connections: table.open(), datagrams: datagrams.collect() }
    }
}

pub struct Listeners {
    proxy: Arc<Proxy>,
    bind: Bind,
    /// By port, and where that really is.
    open: BTreeMap<u16, (Context, SocketAddr)>,
    datagrams: BTreeMap<(Site, SocketAddr), (Context, SocketAddr)>,
    tasks: JoinSet<()>,
}

impl Listeners {
    pub fn new(proxy: Arc<Proxy>, bind: Bind) -> Listeners {
        let (open, datagrams) = (BTreeMap::new(), BTreeMap::new());
        Listeners { proxy, bind, open, datagrams, tasks: JoinSet::new() }
    }

    /// Opens and closes ports until these are open; those that could not be are told.
    pub fn settle(&mut self, wanted: &Wanted) -> Vec<(String, io::Error)> {
        while self.tasks.try_join_next().is_some() {}
        let is_wanted = |at: &(Site, SocketAddr)| {
            wanted.datagrams.get(&at.0).is_some_and(|all| all.contains(&at.1))
        };
        keep(&mut self.open, |port| wanted.connections.contains(port));
        keep(&mut self.datagrams, is_wanted);
        let mut refused = Vec::new();
        for &port in &wanted.connections {
            if !self.open.contains_key(&port)
                && let Err(error) = self.open_port(port)
            {
                refused.push((port.to_string(), error));
            }
        }
        for (site, addresses) in &wanted.datagrams {
            for address in addresses {
                if !self.datagrams.contains_key(&(*site, *address))
                    && let Err(error) = self.open_datagrams(*site, *address)
                    // Another machine has it, or the node is known by an address of somebody before it.
                    && error.kind() != io::ErrorKind::AddrNotAvailable
                {
                    refused.push((format!("{} of UDP", site.port), error));
                }
            }
        }
        refused
    }

    fn open_port(&mut self, port: u16) -> io::Result<()> {
        let listener = (self.bind.connections)(port)?;
        let address = listener.local_addr()?;
        let context = self.proxy.context.part();
        self.open.insert(port, (context.clone(), address));
        tracing::info!(%address, "ingress listens");
        self.tasks.spawn(accept(self.proxy.clone(), context, listener, port));
        Ok(())
    }

    fn open_datagrams(&mut self, site: Site, wanted: SocketAddr) -> io::Result<()> {
        let socket = (self.bind.datagrams)(wanted)?;
        let address = socket.local_addr()?;
        let context = self.proxy.context.part();
        self.datagrams.insert((site, wanted), (context.clone(), address));
        tracing::info!(%address, "ingress listens for datagrams");
        self.tasks.spawn(datagrams::serve(self.proxy.clone(), context, socket, site));
        Ok(())
    }

    /// Where a port is served.
    #[cfg(test)]
    pub fn address(&self, port: u16) -> Option<SocketAddr> {
        self.open.get(&port).map(|(_, address)| *address)
    }

    /// Where datagrams for a port are taken.
    #[cfg(test)]
    pub fn address_of_datagrams(&self, port: u16) -> Option<SocketAddr> {
        let mut all = self.datagrams.iter().filter(|((site, _), _)| site.port == port);
        all.next().map(|(_, (_, address))| *address)
    }

    /// Until all clients are gone, or have had their time.
    pub async fn drain(mut self) {
        let all = self.open.values().chain(self.datagrams.values());
        all.for_each(|(context, _)| context.stop());
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Closes all but these.
fn keep<K: Ord>(open: &mut BTreeMap<K, (Context, SocketAddr)>, is_wanted: impl Fn(&K) -> bool) {
    open.retain(|key, (context, _)| {
        let stays = is_wanted(key);
        if !stays {
            context.stop();
        }
        stays
    });
}

async fn accept(proxy: Arc<Proxy>, context: Context, listener: TcpListener, port: u16) {
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
                let site = site(&proxy, &stream, port);
                let peer = peer.ip().to_canonical();
                let client = connection::Client { proxy: proxy.clone(), peer, site };
                let serving = connection::serve(client, context.clone(), stream);
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

/// What a connection is for: the address that its client looked for says so.
fn site(proxy: &Proxy, stream: &TcpStream, port: u16) -> Site {
    let address = stream.local_addr().map(|address| address.ip());
    address.map_or(Site::shared(port), |address| proxy.table().site(address, port))
}
