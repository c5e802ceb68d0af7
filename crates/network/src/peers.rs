//! The ways to pods of other nodes. A node that is on a link of ours is a gateway; to one behind
//! routers, which do not know of pods, frames are carried by a tunnel (VXLAN).
//!
//! Nodes tell each other nothing for that: what is at the other end of a tunnel follows from the
//! node's pod CIDRs, which nobody shares with it.
//!
//! Where what pods say is encrypted there is one way to all nodes, and it needs their keys (`encrypted`).
mod encrypted;

pub use encrypted::Encryption;

use crate::{Cidr, Config, PodNetworkError, PublicKey};
use netlink::Socket;
use netlink::route::Route;
use netlink::tunnel::{Mac, Neighbour, Vxlan};
use netlink::wireguard;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

/// Another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    pub addresses: Vec<IpAddr>,
    pub pod_cidrs: Vec<Cidr>,
    /// With which it is spoken to where that is encrypted.
    pub public_key: Option<PublicKey>,
}

/// Nodes whose pods have no way to them, and why.
pub type Unreached = BTreeMap<String, &'static str>;

const NO_ROUTE: &str = "no route leads to it";

/// In whose name our routes are (`rtm_protocol`): nobody's in `/etc/iproute2/rt_protos`.
const OURS: u8 = 0x5f;

/// The tunnel's link, made when the first node needs it.
pub const TUNNEL: &str = "skiff-tunnel";
/// IANA's port of VXLAN, and a number that others are unlikely to have on it.
const TUNNEL_PORT: u16 = 4789;
const TUNNEL_ID: u32 = 0x5f_5f5f;
/// What a tunnel puts before a packet: Ethernet, VXLAN, UDP and IP.
const OVERHEAD_IPV4: u32 = 14 + 8 + 8 + 20;
const OVERHEAD_IPV6: u32 = 14 + 8 + 8 + 40;

/// How a node is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// It is on this link.
    Link(u32),
    /// It is behind a router.
    Routed,
    Nowhere,
}

/// What is to be so.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ways {
    /// A CIDR, and the gateway on a link to it.
    direct: Vec<(Cidr, IpAddr, u32)>,
    /// A CIDR, and the gateway at the other end of the tunnel.
    tunnelled: Vec<(Cidr, IpAddr)>,
    neighbours: Vec<Neighbour>,
    forwarding: Vec<Neighbour>,
    /// CIDRs to which everything goes encrypted, or not at all.
    encrypted: Vec<Cidr>,
    /// Who can read it.
    readers: Vec<wireguard::Peer>,
    unreached: Unreached,
}

/// With the own key, where what pods say is encrypted.
fn plan(peers: &[Peer], own: Option<&PublicKey>, reach: &dyn Fn(IpAddr) -> Reach) -> Ways {
    match own {
        Some(own) => encrypted::plan(peers, own, reach),
        None => in_the_clear(peers, reach),
    }
}

fn in_the_clear(peers: &[Peer], reach: &dyn Fn(IpAddr) -> Reach) -> Ways {
    let mut ways = Ways::default();
    // One tunnel has one protocol that carries it: IPv4 where all nodes that need it have that.
    let routed = |address: &&IpAddr| reach(**address) == Reach::Routed;
    let needs =
        |peer: &&Peer| peer.pod_cidrs.iter().any(|cidr| on_link(peer, *cidr, reach).is_none());
    let over_ipv4 = peers
        .iter()
        .filter(needs)
        .all(|peer| peer.addresses.iter().filter(|one| one.is_ipv4()).any(|one| routed(&one)));
    for peer in peers {
        let mut ends = Vec::new();
        for cidr in &peer.pod_cidrs {
            match on_link(peer, *cidr, reach) {
                Some((address, link)) => ways.direct.push((*cidr, address, link)),
                None => ends.push((*cidr, cidr.tunnel())),
            }
        }
        if ends.is_empty() {
            continue;
        }
        let carrier = peer.addresses.iter().filter(|one| one.is_ipv4() == over_ipv4).find(routed);
        let (Some(carrier), Some(mac)) = (carrier, tunnel_mac(&peer.pod_cidrs)) else {
            ways.unreached.insert(peer.name.clone(), NO_ROUTE);
            continue;
        };
        ways.neighbours
            .extend(ends.iter().map(|(_, address)| Neighbour { address: *address, mac }));
        ways.tunnelled.extend(ends);
        ways.forwarding.push(Neighbour { address: *carrier, mac });
    }
    ways
}

/// The node's address on a link of ours, of the CIDR's family.
fn on_link(peer: &Peer, cidr: Cidr, reach: &dyn Fn(IpAddr) -> Reach) -> Option<(IpAddr, u32)> {
    let addresses = peer.addresses.iter().filter(|one| one.is_ipv4() == cidr.is_ipv4());
    addresses.copied().find_map(|address| match reach(address) {
        Reach::Link(link) => Some((address, link)),
        Reach::Routed | Reach::Nowhere => None,
    })
}

/// The MAC of a node's end of the tunnel: its IPv4 CIDR as it is, or a hash of that of IPv6.
fn tunnel_mac(pod_cidrs: &[Cidr]) -> Option<Mac> {
    const LOCALLY_ADMINISTERED: u8 = 2;
    let ipv4 = pod_cidrs.iter().find(|cidr| cidr.is_ipv4());
    let bytes = netlink::octets(ipv4.or(pod_cidrs.first())?.address());
    let rest: [u8; 5] = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok([a, b, c, d]) => [OURS, a, b, c, d],
        Err(_) => {
            let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
            let [_, _, _, a, b, c, d, e] = hash.to_be_bytes();
            [a, b, c, d, e]
        }
    };
    let [a, b, c, d, e] = rest;
    Some([LOCALLY_ADMINISTERED, a, b, c, d, e])
}

/// Sets the ways to these nodes' pods, and removes those to others'; says to whom there is none.
pub fn set(
    socket: &mut Socket,
    encryption: Option<&mut Encryption>,
    peers: &[Peer],
    config: &Config,
) -> Result<Unreached, PodNetworkError> {
    let mut reached = HashMap::new();
    for address in peers.iter().flat_map(|peer| &peer.addresses) {
        let reach = match socket.route_to(*address)? {
            Some(Route { gateway: None, link, .. }) => Reach::Link(link),
            Some(_) => Reach::Routed,
            None => Reach::Nowhere,
        };
        reached.insert(*address, reach);
    }
    let own = encryption.as_ref().map(|encryption| encryption.public_key());
    let reach = |address: IpAddr| *reached.get(&address).unwrap_or(&Reach::Nowhere);
    let ways = plan(peers, own.as_ref(), &reach);
    let direct = ways.direct.iter();
    let mut wanted: Vec<Route> =
        direct.map(|(cidr, gateway, link)| route(*cidr, Some(*gateway), *link)).collect();
    if !ways.tunnelled.is_empty() {
        let link = set_tunnel(socket, &ways, &config.pod_cidrs, config.mtu)?;
        let tunnelled = ways.tunnelled.iter();
        wanted.extend(tunnelled.map(|(cidr, end)| route(*cidr, Some(*end), link)));
    }
    if let Some(encryption) = encryption {
        wanted.extend(encryption.set(socket, &ways, config)?);
    }
    lead(socket, wanted)?;
    // Afterwards: a link takes its routes with it, and what they led there would leave in the clear.
    if ways.tunnelled.is_empty() {
        socket.remove_link(TUNNEL)?;
    }
    if own.is_none() {
        socket.remove_link(encrypted::LINK)?;
    }
    Ok(ways.unreached)
}

/// Removes all ways.
pub fn remove(socket: &mut Socket) -> Result<(), PodNetworkError> {
    lead(socket, Vec::new())?;
    for link in [TUNNEL, encrypted::LINK] {
        socket.remove_link(link)?;
    }
    Ok(())
}

fn route(cidr: Cidr, gateway: Option<IpAddr>, link: u32) -> Route {
    Route { destination: (cidr.address(), cidr.prefix()), gateway, link }
}

/// Our routes are these and no others.
fn lead(socket: &mut Socket, wanted: Vec<Route>) -> Result<(), PodNetworkError> {
    // By destination: of thousands of nodes, only those are touched that changed.
    let by_destination = |routes: Vec<Route>| -> HashMap<(IpAddr, u8), Route> {
        routes.into_iter().map(|route| (route.destination, route)).collect()
    };
    let (there, wanted) = (by_destination(socket.routes_of(OURS)?), by_destination(wanted));
    // Replaced before others are removed: a node that changed its address is never out of reach.
    for (destination, route) in &wanted {
        if there.get(destination) != Some(route) {
            socket.set_route_as(OURS, route)?;
        }
    }
    for (_, route) in there.iter().filter(|(destination, _)| !wanted.contains_key(destination)) {
        socket.remove_route_of(OURS, route)?;
    }
    Ok(())
}

/// The host's own addresses at a link's end: what the host itself sends to pods comes from there, so that
/// answers come back the same way.
fn add_ends(socket: &mut Socket, link: u32, own_cidrs: &[Cidr]) -> Result<(), PodNetworkError> {
    for cidr in own_cidrs {
        socket.add_address(link, cidr.tunnel(), if cidr.is_ipv4() { 32 } else { 128 })?;
    }
    Ok(())
}

/// The tunnel's link with everything that it is to know; its index.
fn set_tunnel(
    socket: &mut Socket,
    ways: &Ways,
    own_cidrs: &[Cidr],
    uplink_mtu: u32,
) -> Result<u32, PodNetworkError> {
    let over_ipv6 = ways.forwarding.iter().any(|one| one.address.is_ipv6());
    let overhead = if over_ipv6 { OVERHEAD_IPV6 } else { OVERHEAD_IPV4 };
    let vxlan = Vxlan {
        name: TUNNEL,
        id: TUNNEL_ID,
        port: TUNNEL_PORT,
        mac: tunnel_mac(own_cidrs).ok_or(PodNetworkError::Cidrs)?,
        // Longer packets are sent back to their pod, which learns of it.
        mtu: uplink_mtu.saturating_sub(overhead),
        over_ipv6,
    };
    let mut link = socket.ensure_vxlan(&vxlan)?;
    let there = socket.forwarding(link)?;
    if there.iter().any(|one| one.address.is_ipv6() != over_ipv6) {
        // What carries it cannot be changed.
        socket.remove_link(TUNNEL)?;
        link = socket.ensure_vxlan(&vxlan)?;
    }
    add_ends(socket, link, own_cidrs)?;
    // Machines by the MAC that leads to them, MACs by the address that has them.
    let by_mac = |entries: &[Neighbour]| -> HashMap<Mac, Neighbour> {
        entries.iter().map(|entry| (entry.mac, entry.clone())).collect()
    };
    let (there, wanted) = (by_mac(&socket.forwarding(link)?), by_mac(&ways.forwarding));
    for (mac, entry) in &wanted {
        if there.get(mac) != Some(entry) {
            socket.set_forwarding(link, entry)?;
        }
    }
    for (_, entry) in there.iter().filter(|(mac, _)| !wanted.contains_key(*mac)) {
        socket.remove_forwarding(link, entry)?;
    }
    let there = socket.neighbours(link)?;
    let known: HashSet<&Neighbour> = there.iter().collect();
    for entry in ways.neighbours.iter().filter(|entry| !known.contains(entry)) {
        socket.set_neighbour(link, entry)?;
    }
    let wanted: HashSet<IpAddr> = ways.neighbours.iter().map(|entry| entry.address).collect();
    for entry in there.iter().filter(|entry| !wanted.contains(&entry.address)) {
        socket.remove_neighbour(link, entry)?;
    }
    Ok(link)
}

/// Where the routes lead that there are.
#[cfg(feature = "live")]
pub fn destinations(socket: &mut Socket) -> Result<Vec<Cidr>, PodNetworkError> {
    let there = socket.routes_of(OURS)?.into_iter().map(|route| route.destination);
    let cidrs = there.filter_map(|(address, prefix)| format!("{address}/{prefix}").parse().ok());
    Ok(cidrs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// Nodes as lines: `name cidr… address…`, and `key=` with a byte of which the key is made. On link 3 are
    /// 192.0.2.0/24 and 2001:db8::/64, nowhere 203.0.113.0/24, behind routers all others.
    fn planned(lines: &str, own: Option<&PublicKey>) -> Ways {
        let peers: Vec<Peer> = lines
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| {
                let mut words = line.split_whitespace();
                let name = words.next().unwrap().to_owned();
                let words: Vec<&str> = words.collect();
                let pod_cidrs = words.iter().filter_map(|word| word.parse().ok()).collect();
                let addresses = words.iter().filter_map(|word| word.parse().ok()).collect();
                let key = words.iter().find_map(|word| word.strip_prefix("key=")?.parse().ok());
                Peer { name, addresses, pod_cidrs, public_key: key.map(|key| [key; 32]) }
            })
            .collect();
        let within = |cidr: &str, address| cidr.parse::<Cidr>().unwrap().contains(address);
        plan(&peers, own, &|address| {
            if within("192.0.2.0/24", address) || within("2001:db8::/64", address) {
                Reach::Link(3)
            } else if within("203.0.113.0/24", address) {
                Reach::Nowhere
            } else {
                Reach::Routed
            }
        })
    }

    fn shown(ways: &Ways) -> String {
        let mut text = String::new();
        for (cidr, gateway, link) in &ways.direct {
            text += &format!("{cidr} by {gateway} on {link}\n");
        }
        for (cidr, end) in &ways.tunnelled {
            text += &format!("{cidr} by {end} in the tunnel\n");
        }
        for (what, list) in [("neighbour", &ways.neighbours), ("frames", &ways.forwarding)] {
            for Neighbour { address, mac } in list {
                let mac: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
                text += &format!("{what} {address} {}\n", mac.join(":"));
            }
        }
        for cidr in &ways.encrypted {
            text += &format!("{cidr} encrypted\n");
        }
        for reader in &ways.readers {
            let allowed = reader.allowed.iter();
            let allowed: Vec<String> =
                allowed.map(|(at, prefix)| format!("{at}/{prefix}")).collect();
            let (key, endpoint) = (reader.public_key[0], reader.endpoint.unwrap());
            text += &format!("key {key} at {endpoint} reads {}\n", allowed.join(" "));
        }
        for (node, reason) in &ways.unreached {
            text += &format!("unreached {node}: {reason}\n");
        }
        text
    }

    fn check(lines: &str, expected: Expect) {
        expected.assert_eq(&shown(&planned(lines, None)));
    }

    /// The own key is of ones.
    fn check_encrypted(lines: &str, expected: Expect) {
        expected.assert_eq(&shown(&planned(lines, Some(&[1; 32]))));
    }

    #[test]
    fn a_node_on_a_link_is_a_gateway_and_one_behind_routers_has_a_tunnel() {
        check(
            "b 10.1.0.0/24 192.0.2.2",
            expect![[r#"
            10.1.0.0/24 by 192.0.2.2 on 3
        "#]],
        );
        check(
            "b 10.1.0.0/24 192.0.2.2
             c 10.2.0.0/24 198.51.100.2",
            expect![[r#"
                10.1.0.0/24 by 192.0.2.2 on 3
                10.2.0.0/24 by 10.2.0.0 in the tunnel
                neighbour 10.2.0.0 02:5f:0a:02:00:00
                frames 198.51.100.2 02:5f:0a:02:00:00
            "#]],
        );
        check(
            "b 10.1.0.0/24 203.0.113.2",
            expect![[r#"
            unreached b: no route leads to it
        "#]],
        );
        check(
            "b 10.1.0.0/24",
            expect![[r#"
            unreached b: no route leads to it
        "#]],
        );
    }

    #[test]
    fn both_address_families_have_a_way() {
        check(
            "b 10.1.0.0/24 fd00:1::/64 192.0.2.2 2001:db8::2",
            expect![[r#"
                10.1.0.0/24 by 192.0.2.2 on 3
                fd00:1::/64 by 2001:db8::2 on 3
            "#]],
        );
        // A tunnel over IPv4 carries IPv6 too.
        check(
            "b 10.1.0.0/24 fd00:1::/64 198.51.100.2",
            expect![[r#"
                10.1.0.0/24 by 10.1.0.0 in the tunnel
                fd00:1::/64 by fd00:1::ffff:ffff:ffff:ffff in the tunnel
                neighbour 10.1.0.0 02:5f:0a:01:00:00
                neighbour fd00:1::ffff:ffff:ffff:ffff 02:5f:0a:01:00:00
                frames 198.51.100.2 02:5f:0a:01:00:00
            "#]],
        );
        // Over IPv6 where a node has nothing else.
        check(
            "b 10.1.0.0/24 198.51.100.2 2001:db8:1::2
             c fd00:2::/64 2001:db8:1::3",
            expect![[r#"
                10.1.0.0/24 by 10.1.0.0 in the tunnel
                fd00:2::/64 by fd00:2::ffff:ffff:ffff:ffff in the tunnel
                neighbour 10.1.0.0 02:5f:0a:01:00:00
                neighbour fd00:2::ffff:ffff:ffff:ffff 02:93:51:94:03:5e
                frames 2001:db8:1::2 02:5f:0a:01:00:00
                frames 2001:db8:1::3 02:93:51:94:03:5e
            "#]],
        );
    }

    #[test]
    fn an_encrypted_way_leads_to_nodes_on_a_link_and_behind_routers() {
        check_encrypted(
            "b key=2 10.1.0.0/24 192.0.2.2
             c key=3 10.2.0.0/24 198.51.100.2",
            expect![[r#"
                10.1.0.0/24 encrypted
                10.2.0.0/24 encrypted
                key 2 at 192.0.2.2:51820 reads 10.1.0.0/24
                key 3 at 198.51.100.2:51820 reads 10.2.0.0/24
            "#]],
        );
        // Of both families, by the address that the node names first and that a route leads to.
        check_encrypted(
            "b key=2 10.1.0.0/24 fd00:1::/64 203.0.113.2 2001:db8:1::2 192.0.2.2
             c key=3 fd00:2::/64 2001:db8::3
             d key=4 10.3.0.0/24 fd00:3::/64 198.51.100.4 2001:db8::4",
            expect![[r#"
                10.1.0.0/24 encrypted
                fd00:1::/64 encrypted
                fd00:2::/64 encrypted
                10.3.0.0/24 encrypted
                fd00:3::/64 encrypted
                key 2 at [2001:db8:1::2]:51820 reads 10.1.0.0/24 fd00:1::/64
                key 3 at [2001:db8::3]:51820 reads fd00:2::/64
                key 4 at 198.51.100.4:51820 reads 10.3.0.0/24 fd00:3::/64
            "#]],
        );
    }

    #[test]
    fn what_nobody_could_read_is_not_sent_in_the_clear() {
        check_encrypted(
            "b 10.1.0.0/24 192.0.2.2
             c key=3 10.2.0.0/24 203.0.113.2
             d key=1 10.3.0.0/24 192.0.2.4
             e key=5 10.4.0.0/24 192.0.2.5
             f 192.0.2.6",
            expect![[r#"
                10.1.0.0/24 encrypted
                10.2.0.0/24 encrypted
                10.3.0.0/24 encrypted
                10.4.0.0/24 encrypted
                key 5 at 192.0.2.5:51820 reads 10.4.0.0/24
                unreached b: it has no key: every node needs --encrypt
                unreached c: no route leads to it
                unreached d: it has the key of this node
            "#]],
        );
        // Keys are of no use to a node that does not encrypt.
        check(
            "b key=2 10.1.0.0/24 192.0.2.2",
            expect![[r#"
                10.1.0.0/24 by 192.0.2.2 on 3
            "#]],
        );
    }

    #[test]
    fn a_machine_that_was_another_node_before_is_one_reader() {
        check_encrypted(
            "new key=2 10.1.0.0/24 192.0.2.2
             old key=2 10.2.0.0/24 192.0.2.2",
            expect![[r#"
                10.1.0.0/24 encrypted
                10.2.0.0/24 encrypted
                key 2 at 192.0.2.2:51820 reads 10.1.0.0/24 10.2.0.0/24
            "#]],
        );
    }
}
