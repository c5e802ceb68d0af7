//! What the one inside has done outside.
use super::{Ask, Reply, is_inside};
use netlink::route::Route;
use netlink::{Family, Socket};
use parking_lot::Mutex;
use runtime::shim::protocol::{receive, send};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use tokio::net::TcpStream;

static OUTSIDE: OnceLock<Mutex<UnixStream>> = OnceLock::new();

/// The link by which everything leaves, and what the machine is known by on it.
const LINK: &str = "uplink";
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 100);

/// Connects the namespaces with the machine's network, if this is inside of some.
pub fn begin() -> anyhow::Result<()> {
    if !is_inside() || OUTSIDE.get().is_some() {
        return Ok(());
    }
    let channel = io::stdin().as_fd().try_clone_to_owned()?;
    let _ = OUTSIDE.set(Mutex::new(channel.into()));
    let mut socket = Socket::open(Family::Route)?;
    let tun = match netlink::tun::open(LINK) {
        Ok(tun) => Some(tun),
        Err(error) => {
            tracing::warn!(
                "nothing leaves the cluster, for which users need /dev/net/tun: {error}"
            );
            socket.ensure_bridge(LINK, 1500)?;
            None
        }
    };
    let link = socket.link(LINK)?.map(|link| link.index).unwrap_or_default();
    socket.add_address(link, IpAddr::V4(OWN), 24)?;
    socket.set_link_up(link)?;
    let everywhere = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    socket.set_route(&Route { destination: everywhere, link, gateway: None })?;
    if let Some(tun) = tun {
        ask(&Ask::Carry, &[tun.as_fd()])?;
    }
    Ok(())
}

fn ask(ask: &Ask, descriptors: &[BorrowedFd<'_>]) -> io::Result<Option<OwnedFd>> {
    let Some(outside) = OUTSIDE.get() else {
        return Err(io::Error::other("this is not a user's own network"));
    };
    let outside = outside.lock();
    send(&outside, ask, descriptors)?;
    match receive(&outside)? {
        Some((Reply::Done, descriptors)) => Ok(descriptors.into_iter().next()),
        Some((Reply::Failed(text), _)) => Err(io::Error::other(text)),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// A listener in the machine's network.
pub fn listen(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    let listener = ask(&Ask::Listen(address), &[])?;
    let listener: TcpListener = listener.ok_or(io::ErrorKind::InvalidData)?.into();
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Brings the machine's port to the same port in here, for as long as the process lives.
pub fn publish(address: SocketAddr) -> anyhow::Result<()> {
    if is_inside() {
        let listener = listen(address)?;
        tokio::spawn(bring(listener, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port())));
    }
    Ok(())
}

/// Whatever comes to a listener goes to an address in here.
pub async fn bring(listener: tokio::net::TcpListener, to: SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((mut from, _)) => drop(tokio::spawn(async move {
                if let Ok(mut to) = TcpStream::connect(to).await {
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                }
            })),
            // Too many files are open: some will be closed.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    }
}
