//! One way to the pods of all other nodes, by which nobody reads along: a WireGuard link whose peers are the
//! nodes that have told their public keys.
//!
//! What is for pods of other nodes goes there, or nowhere. To a node without a key, and to pods whose node
//! nobody knows yet, routes lead to the link as well: it has no peer for them, and refuses what it gets.
//! Without such routes that would leave the machine by its usual way, in the clear.
use super::{NO_ROUTE, OURS, Peer, Reach, Ways, add_ends, route};
use crate::{Cidr, Config, PodNetworkError, PrivateKey, PublicKey};
use netlink::Socket;
use netlink::route::Route;
use netlink::wireguard::{self, Device, Wireguard};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

pub const LINK: &str = "skiff-wg";
/// That of everybody who has no reason for another.
const PORT: u16 = 51820;
/// What is put around a packet: IP, UDP, WireGuard.
const OVERHEAD_IPV4: u32 = 20 + 8 + 32;
const OVERHEAD_IPV6: u32 = 40 + 8 + 32;

const NO_KEY: &str = "it has no key: every node needs --encrypt";
const OWN_KEY: &str = "it has the key of this node";

pub(super) fn plan(peers: &[Peer], own: &PublicKey, reach: &dyn Fn(IpAddr) -> Reach) -> Ways {
    let mut ways = Ways::default();
    let mut readers = BTreeMap::new();
    for peer in peers.iter().filter(|peer| !peer.pod_cidrs.is_empty()) {
        ways.encrypted.extend(&peer.pod_cidrs);
        let (public_key, endpoint) = match reader(peer, own, reach) {
            Ok(found) => found,
            Err(reason) => {
                ways.unreached.insert(peer.name.clone(), reason);
                continue;
            }
        };
        // A machine that has been given another name is two Nodes until somebody removes the old one.
        let reader = readers.entry(public_key).or_insert_with(|| wireguard::Peer {
            public_key,
            endpoint: Some(endpoint),
            allowed: BTreeSet::new(),
        });
        let networks = peer.pod_cidrs.iter().map(|cidr| (cidr.address(), cidr.prefix()));
        reader.allowed.extend(networks);
    }
    ways.readers = readers.into_values().collect();
    ways
}

/// With which key, and where a node is spoken to; or why it is not.
fn reader(
    peer: &Peer,
    own: &PublicKey,
    reach: &dyn Fn(IpAddr) -> Reach,
) -> Result<(PublicKey, SocketAddr), &'static str> {
    let key = peer.public_key.ok_or(NO_KEY)?;
    if key == *own {
        return Err(OWN_KEY);
    }
    // A Node names first the address by which it is known.
    let mut addresses = peer.addresses.iter().copied();
    let address = addresses.find(|address| reach(*address) != Reach::Nowhere).ok_or(NO_ROUTE)?;
    Ok((key, SocketAddr::new(address, PORT)))
}

/// What a node needs to encrypt.
pub struct Encryption {
    wireguard: Wireguard,
    key: PrivateKey,
    public_key: PublicKey,
}

impl Encryption {
    /// In the network namespace of the calling thread.
    pub fn open(key: PrivateKey) -> Result<Encryption, PodNetworkError> {
        Ok(Encryption { wireguard: Wireguard::open()?, public_key: key.public(), key })
    }

    pub fn public_key(&self) -> PublicKey {
        self.public_key
    }

    /// Before there are pods, and before anybody has told of other nodes: what is for other nodes' pods waits
    /// for them here.
    pub fn close(&self, socket: &mut Socket, config: &Config) -> Result<(), PodNetworkError> {
        let link = match socket.link(LINK)? {
            Some(link) => link.index,
            None => socket.ensure_wireguard(LINK, config.mtu.saturating_sub(OVERHEAD_IPV6))?,
        };
        for cidr in rest(config) {
            socket.set_route_as(OURS, &route(cidr, None, link))?;
        }
        Ok(())
    }

    /// The link with everything that it is to know; the routes that lead there.
    pub(super) fn set(
        &mut self,
        socket: &mut Socket,
        ways: &Ways,
        config: &Config,
    ) -> Result<Vec<Route>, PodNetworkError> {
        let mut endpoints = ways.readers.iter().filter_map(|reader| reader.endpoint);
        let over_ipv6 = endpoints.any(|endpoint| endpoint.is_ipv6());
        let overhead = if over_ipv6 { OVERHEAD_IPV6 } else { OVERHEAD_IPV4 };
        // Longer packets are sent back to their pod, which learns of it.
        let link = socket.ensure_wireguard(LINK, config.mtu.saturating_sub(overhead))?;
        add_ends(socket, link, &config.pod_cidrs)?;
        let (private_key, peers) = (self.key.as_bytes(), &ways.readers[..]);
        self.wireguard.set(link, &Device { private_key, port: PORT, peers })?;
        let all = ways.encrypted.iter().copied().chain(rest(config));
        Ok(all.map(|cidr| route(cidr, None, link)).collect())
    }
}

/// Where pods of nodes may be of which nobody has told yet: all of the cluster's networks, in which those of
/// nodes that are known are smaller ones. A network that is not larger than the node's own is left out: its
/// route would lead the node's own pods away.
fn rest(config: &Config) -> impl Iterator<Item = Cidr> {
    let is_usable = move |cidr: &Cidr| {
        let mut own = config.pod_cidrs.iter().filter(|own| own.is_ipv4() == cidr.is_ipv4());
        let is_larger = |own: &Cidr| !own.contains(cidr.address()) || own.prefix() > cidr.prefix();
        own.clone().next().is_some() && own.all(is_larger)
    };
    config.cluster_cidrs.iter().copied().filter(is_usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_nobody_has_told_of_are_not_sent_to_in_the_clear() {
        let check = |own: &[&str], cluster: &[&str], expected: &str| {
            let parse = |all: &[&str]| -> Vec<Cidr> {
                all.iter().map(|one| one.parse().unwrap()).collect()
            };
            let config = Config {
                pod_cidrs: parse(own),
                cluster_cidrs: parse(cluster),
                mtu: 1500,
                state: "/nowhere".into(),
                key: None,
            };
            let rest: Vec<String> = rest(&config).map(|cidr| cidr.to_string()).collect();
            assert_eq!(rest.join(" "), expected);
        };
        let both = ["10.244.0.0/16", "fd44::/48"];
        check(&["10.244.3.0/24", "fd44:0:0:3::/64"], &both, "10.244.0.0/16 fd44::/48");
        check(&["10.244.0.0/24"], &both, "10.244.0.0/16");
        // Its own, or others' as nodes tell them.
        check(&["10.244.0.0/24"], &["10.244.0.0/24", "10.244.1.0/24"], "10.244.1.0/24");
        check(&["10.244.0.0/16"], &["10.244.0.0/16"], "");
        check(&["10.244.0.0/16"], &["10.244.7.0/24"], "");
    }
}
