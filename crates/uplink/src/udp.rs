//! Datagrams between two places, for as long as some come.
use super::packet::{self, Key};
use super::{Link, MTU};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

/// After that nobody waits for an answer any more.
const QUIET: Duration = Duration::from_secs(60);

pub async fn carry(
    link: Arc<Link>,
    key: Key,
    to: SocketAddr,
    mut packets: mpsc::Receiver<Vec<u8>>,
) {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let Ok(socket) = UdpSocket::bind(any).await else { return };
    if socket.connect(to).await.is_err() {
        return;
    }
    // One that the link does not carry would have to be cut up; few send such, and none is meant to.
    let mut answer = [0; MTU - 28];
    loop {
        tokio::select! {
            packet = packets.recv() => match packet {
                Some(packet) => if let Some(payload) = packet::payload(&packet) {
                    let _ = socket.send(payload).await;
                },
                None => return,
            },
            read = socket.recv(&mut answer) => if let Ok(length) = read {
                link.write(&packet::datagram(&key, &answer[..length]));
            },
            () = tokio::time::sleep(QUIET) => return,
        }
    }
}
