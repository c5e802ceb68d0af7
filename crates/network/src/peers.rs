//! The ways to pods of other nodes: a route to each node that is on a link of ours.
use crate::{Cidr, PodNetworkError};
use netlink::Socket;
use netlink::route::Route;
use std::net::IpAddr;

/// Another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    pub addresses: Vec<IpAddr>,
    pub pod_cidrs: Vec<Cidr>,
}

/// In whose name our routes are (`rtm_protocol`): nobody's in `/etc/iproute2/rt_protos`.
const OURS: u8 = 0x5f;

/// Sets the routes to these nodes' pods, and removes those to others'.
pub fn set(socket: &mut Socket, peers: &[Peer]) -> Result<(), PodNetworkError> {
    let mut wanted = Vec::new();
    for (cidr, address) in peers.iter().flat_map(ways) {
        match socket.route_to(address)? {
            Some(Route { gateway: None, link, .. }) => {
                let destination = (cidr.address(), cidr.prefix());
                wanted.push(Route { destination, gateway: Some(address), link });
            }
            // Routers on the way do not know of pods: that is for an overlay to solve.
            _ => {
                tracing::warn!(%cidr, node = %address, "a node is not on a link of this one: its pods are not reached")
            }
        }
    }
    let there = socket.routes_of(OURS)?;
    // Replaced before others are removed: a node that changed its address is never out of reach.
    for route in wanted.iter().filter(|route| !there.contains(route)) {
        socket.set_route_as(OURS, route)?;
    }
    let kept = |route: &Route| wanted.iter().any(|one| one.destination == route.destination);
    for route in there.iter().filter(|route| !kept(route)) {
        socket.remove_route_of(OURS, route)?;
    }
    Ok(())
}

/// Where the routes lead that there are.
#[cfg(feature = "live")]
pub fn destinations(socket: &mut Socket) -> Result<Vec<Cidr>, PodNetworkError> {
    let there = socket.routes_of(OURS)?.into_iter().map(|route| route.destination);
    let cidrs = there.filter_map(|(address, prefix)| format!("{address}/{prefix}").parse().ok());
    Ok(cidrs.collect())
}

/// Each CIDR of a node with the node's address in that family.
fn ways(peer: &Peer) -> impl Iterator<Item = (Cidr, IpAddr)> {
    peer.pod_cidrs.iter().filter_map(|cidr| {
        let mut addresses = peer.addresses.iter();
        let address = addresses.find(|address| address.is_ipv4() == cidr.is_ipv4())?;
        Some((*cidr, *address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_has_one_address_family() {
        let peer = |addresses: &[&str], cidrs: &[&str]| Peer {
            name: "b".to_owned(),
            addresses: addresses.iter().map(|one| one.parse().unwrap()).collect(),
            pod_cidrs: cidrs.iter().map(|one| one.parse().unwrap()).collect(),
        };
        let check = |addresses: &[&str], cidrs: &[&str], expected: &str| {
            let peer = peer(addresses, cidrs);
            let ways: Vec<String> = ways(&peer).map(|(to, by)| format!("{to} {by}")).collect();
            assert_eq!(ways.join(", "), expected);
        };
        check(&["192.0.2.2"], &["10.1.0.0/24"], "10.1.0.0/24 192.0.2.2");
        check(&["192.0.2.2"], &["fd00::/64"], "");
        check(
            &["192.0.2.2", "2001:db8::2"],
            &["10.1.0.0/24", "fd00::/64"],
            "10.1.0.0/24 192.0.2.2, fd00::/64 2001:db8::2",
        );
        check(&[], &["10.1.0.0/24"], "");
    }
}
