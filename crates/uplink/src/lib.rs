//! What leaves a network that has no way out, carried in connections of a process that has one.
//!
//! ```text
//!  pods ─ rules ─ link ═ packets ═ flow ─ socket of this process ─ the machine's network
//! ```
//! A user may make a network of their own, but may not connect it with the machine's. So the link by which
//! everything leaves has a program at its other end, and for each connection that is begun there the program
//! begins one of its own: it answers the packets as the far end would ([`tcp`], [`udp`]), and passes on
//! what they carry. It sees nothing that the user's own programs could not do.
//!
//! May not know: pods, services, where the link is. IPv4 alone; what is neither TCP nor UDP goes
//! nowhere, so that nobody who asks for an echo is told of a machine that is not there.
#![deny(unsafe_code)]

mod packet;
mod tcp;
mod udp;

use packet::{Key, Protocol};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// The network of the link, of which nothing but the resolver is anywhere.
const OWN: [u8; 3] = [10, 0, 2];
/// Stands for the machine's own servers, which may be where only the machine itself can ask them.
pub const RESOLVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
const DNS: u16 = 53;

/// Most connections at a time; what is begun beyond that goes unanswered.
const FLOWS: usize = 4096;
/// Packets that wait for one connection; more are lost, as on any link.
const WAITING: usize = 64;
/// The largest that the link carries.
const MTU: usize = 1500;

/// The link's other end. A packet that cannot be written is lost.
struct Link(AsyncFd<OwnedFd>);

impl Link {
    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            let read = ready.try_io(|link| Ok(rustix::io::read(link.get_ref(), &mut *buffer)?));
            if let Ok(read) = read {
                return read;
            }
        }
    }

    fn write(&self, packet: &[u8]) {
        let _ = rustix::io::write(self.0.get_ref(), packet);
    }
}

/// Carries what comes by the link until it is gone, in the runtime that this is called in.
pub fn carry(link: OwnedFd) -> io::Result<()> {
    let link = Arc::new(Link(registered(link)?));
    tokio::spawn(async move {
        if let Err(error) = dispatch(link).await {
            tracing::warn!(%error, "nothing leaves any more");
        }
    });
    Ok(())
}

#[allow(unsafe_code)]
fn registered(link: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is the same descriptor for as long as it lives, and is closed by nobody else.
    Ok(unsafe { AsyncFd::register(link) }?)
}

async fn dispatch(link: Arc<Link>) -> io::Result<()> {
    let mut flows: HashMap<Key, mpsc::Sender<Vec<u8>>> = HashMap::new();
    let mut buffer = vec![0; 65536];
    loop {
        let length = link.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let packet = &buffer[..length];
        let Some(key) = packet::key(packet) else { continue };
        if let Some(flow) = flows.get(&key) {
            match flow.try_send(packet.to_vec()) {
                Err(mpsc::error::TrySendError::Closed(_)) => drop(flows.remove(&key)),
                Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => continue,
            }
        }
        if flows.len() >= FLOWS {
            flows.retain(|_, flow| !flow.is_closed());
        }
        let begins = key.protocol == Protocol::Udp || packet::begins_connection(packet);
        let (true, Some(to)) = (begins && flows.len() < FLOWS, destination(key.to)) else {
            continue;
        };
        let (packets, incoming) = mpsc::channel(WAITING);
        // There is room for the first one.
        let _ = packets.try_send(packet.to_vec());
        flows.insert(key, packets);
        let link = link.clone();
        match key.protocol {
            Protocol::Tcp => drop(tokio::spawn(tcp::carry(link, key, to, incoming))),
            Protocol::Udp => drop(tokio::spawn(udp::carry(link, key, to, incoming))),
        }
    }
}

/// Where a packet's destination is, for this process. The machine's own loopback is nobody's.
fn destination(to: SocketAddrV4) -> Option<SocketAddr> {
    let address = to.ip();
    if *address == RESOLVER && to.port() == DNS {
        let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        return Some(SocketAddr::new(first_server(&text)?, DNS));
    }
    let is_nowhere = address.octets()[..3] == OWN
        || address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_broadcast();
    (!is_nowhere).then_some(SocketAddr::V4(to))
}

fn first_server(text: &str) -> Option<IpAddr> {
    let mut servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.find_map(|address| address.trim().parse().ok())
}

#[cfg(test)]
mod tests;
