//! WireGuard links (`linux/wireguard.h`): what one is told of its own key and of its peers. To a peer goes
//! what is for its allowed addresses, encrypted; and what comes from it has one of them, or is dropped.
//!
//! A peer that is told again begins a new session only if its key is another. What has not changed is not
//! told at all, so that thousands of peers cost nothing when one of them moves.
use crate::generic::{self, message};
use crate::message::{attribute, attributes};
use crate::route::LINK_MTU;
use crate::{Attributes, Family, Message, NetlinkError, Socket, octets};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

const NAME: &str = "wireguard";

const GET_DEVICE: u8 = 0;
const SET_DEVICE: u8 = 1;

const DEVICE_LINK: u16 = 1;
const DEVICE_PRIVATE_KEY: u16 = 3;
const DEVICE_PORT: u16 = 6;
const DEVICE_PEERS: u16 = 8;

const PEER_PUBLIC_KEY: u16 = 1;
const PEER_FLAGS: u16 = 3;
const PEER_ENDPOINT: u16 = 4;
const PEER_ALLOWED: u16 = 9;
const REMOVE_ME: u32 = 1;
const REPLACE_ALLOWED: u32 = 2;

const ALLOWED_FAMILY: u16 = 1;
const ALLOWED_ADDRESS: u16 = 2;
const ALLOWED_PREFIX: u16 = 3;

/// What stands for the type of something in a list.
const ITEM: u16 = 0;

const INET: u16 = 2;
const INET6: u16 = 10;

/// The peers of one message: with what is around them it must stay below 64 KiB, an attribute's limit.
const PART: usize = 32 << 10;

/// A public or a private key: X25519.
pub type Key = [u8; 32];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub public_key: Key,
    pub endpoint: Option<SocketAddr>,
    /// Networks: an address and the length of its prefix. A few: those of one peer go into one message.
    pub allowed: BTreeSet<(IpAddr, u8)>,
}

/// What a link is to be. It has no `Debug`: nobody is to log a private key.
pub struct Device<'a> {
    /// Clamped, as the kernel keeps it. One that is not would be another key each time, and end all sessions.
    pub private_key: &'a Key,
    /// Of UDP, in both address families.
    pub port: u16,
    pub peers: &'a [Peer],
}

impl Socket {
    /// The link, which is up; its index. One that is there keeps all but its MTU.
    pub fn ensure_wireguard(&mut self, name: &str, mtu: u32) -> Result<u32, NetlinkError> {
        self.ensure_link(name, NAME, None, Attributes::new().u32(LINK_MTU, mtu))
    }
}

/// The conversation about the WireGuard links of one network namespace.
#[derive(Debug)]
pub struct Wireguard {
    socket: Socket,
    family: u16,
}

impl Wireguard {
    /// In the network namespace of the calling thread.
    pub fn open() -> Result<Wireguard, NetlinkError> {
        let mut socket = Socket::open(Family::Generic)?;
        let family = socket.family(NAME)?;
        Ok(Wireguard { socket, family })
    }

    /// Whom the link knows.
    pub fn peers(&mut self, link: u32) -> Result<Vec<Peer>, NetlinkError> {
        let question = Attributes::new().u32(DEVICE_LINK, link);
        let question = message(self.family, GET_DEVICE, question);
        let answers = self.socket.dump("list the peers of a WireGuard link", question)?;
        Ok(listed(&answers))
    }

    /// The link knows these peers and no others.
    pub fn set(&mut self, link: u32, device: &Device<'_>) -> Result<(), NetlinkError> {
        let there = self.peers(link)?;
        for message in requests(self.family, link, device, &there) {
            self.socket.request("set the keys and peers of a WireGuard link", message)?;
        }
        Ok(())
    }
}

/// What makes the link what it is to be: its own settings, and the peers that differ.
fn requests(family: u16, link: u32, device: &Device<'_>, there: &[Peer]) -> Vec<Message> {
    let mut parts: Vec<Attributes> = Vec::new();
    for change in changes(there, device.peers) {
        let item = Attributes::new().nested(ITEM, change);
        match parts.pop() {
            Some(part) if part.len() + item.len() <= PART => parts.push(part.and(item)),
            full => {
                parts.extend(full);
                parts.push(item);
            }
        }
    }
    if parts.is_empty() {
        parts.push(Attributes::new());
    }
    let key = Attributes::new().bytes(DEVICE_PRIVATE_KEY, device.private_key);
    let mut own = Some(key.u16(DEVICE_PORT, device.port));
    let request = |part: Attributes| {
        let device = Attributes::new().u32(DEVICE_LINK, link).and(own.take().unwrap_or_default());
        message(family, SET_DEVICE, device.nested(DEVICE_PEERS, part))
    };
    parts.into_iter().map(request).collect()
}

/// Peers that are new or other than they were, then those that are gone: a network that moves from one to
/// another is always somebody's.
fn changes(there: &[Peer], wanted: &[Peer]) -> Vec<Attributes> {
    let known: HashMap<&Key, &Peer> = there.iter().map(|peer| (&peer.public_key, peer)).collect();
    let keys: HashSet<&Key> = wanted.iter().map(|peer| &peer.public_key).collect();
    let is_other = |peer: &&Peer| known.get(&peer.public_key) != Some(peer);
    let gone = there.iter().filter(|peer| !keys.contains(&peer.public_key)).map(removed);
    wanted.iter().filter(is_other).map(set).chain(gone).collect()
}

fn set(peer: &Peer) -> Attributes {
    let mut attributes =
        Attributes::new().bytes(PEER_PUBLIC_KEY, &peer.public_key).u32(PEER_FLAGS, REPLACE_ALLOWED);
    if let Some(endpoint) = peer.endpoint {
        attributes = attributes.bytes(PEER_ENDPOINT, &socket_address(endpoint));
    }
    let allowed = peer.allowed.iter().fold(Attributes::new(), |all, (address, prefix)| {
        let family = if address.is_ipv4() { INET } else { INET6 };
        let one = Attributes::new()
            .u16(ALLOWED_FAMILY, family)
            .bytes(ALLOWED_ADDRESS, &octets(*address))
            .u8(ALLOWED_PREFIX, *prefix);
        all.nested(ITEM, one)
    });
    attributes.nested(PEER_ALLOWED, allowed)
}

fn removed(peer: &Peer) -> Attributes {
    Attributes::new().bytes(PEER_PUBLIC_KEY, &peer.public_key).u32(PEER_FLAGS, REMOVE_ME)
}

/// `struct sockaddr_in`, `struct sockaddr_in6`.
fn socket_address(endpoint: SocketAddr) -> Vec<u8> {
    let family = if endpoint.is_ipv4() { INET } else { INET6 };
    let mut bytes = family.to_ne_bytes().to_vec();
    bytes.extend(endpoint.port().to_be_bytes());
    match endpoint.ip() {
        IpAddr::V4(address) => {
            bytes.extend(address.octets());
            bytes.extend([0; 8]);
        }
        IpAddr::V6(address) => {
            bytes.extend([0; 4]);
            bytes.extend(address.octets());
            bytes.extend([0; 4]);
        }
    }
    bytes
}

/// The peers of an answer's messages. One whose networks do not fit into a message goes on in the next.
fn listed(answers: &[Vec<u8>]) -> Vec<Peer> {
    let lists = answers.iter().filter_map(|body| {
        let body = body.get(generic::HEADER..)?;
        attribute(body, DEVICE_PEERS)
    });
    let mut all: Vec<Peer> = Vec::new();
    for peer in lists.flat_map(attributes).filter_map(|(_, item)| peer(item)) {
        match all.last_mut() {
            Some(last) if last.public_key == peer.public_key => last.allowed.extend(peer.allowed),
            _ => all.push(peer),
        }
    }
    all
}

fn peer(item: &[u8]) -> Option<Peer> {
    let allowed = attribute(item, PEER_ALLOWED).unwrap_or_default();
    Some(Peer {
        public_key: attribute(item, PEER_PUBLIC_KEY)?.try_into().ok()?,
        endpoint: attribute(item, PEER_ENDPOINT).and_then(endpoint),
        allowed: attributes(allowed).filter_map(|(_, one)| network(one)).collect(),
    })
}

fn endpoint(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let address = match family {
        INET => address(bytes.get(4..8)?)?,
        INET6 => address(bytes.get(8..24)?)?,
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

fn network(one: &[u8]) -> Option<(IpAddr, u8)> {
    let prefix = *attribute(one, ALLOWED_PREFIX)?.first()?;
    Some((address(attribute(one, ALLOWED_ADDRESS)?)?, prefix))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match <[u8; 4]>::try_from(bytes) {
        Ok(address) => Some(address.into()),
        Err(_) => Some(<[u8; 16]>::try_from(bytes).ok()?.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::messages;
    use crate::testing::isolated;
    use expect_test::expect;

    const FAMILY: u16 = 30;
    const LINK: u32 = 7;

    /// A peer with a key of one byte, `-` for no endpoint, and its networks.
    fn peer_of(key: u8, endpoint: &str, allowed: &[&str]) -> Peer {
        let network = |text: &&str| {
            let (address, prefix) = text.split_once('/').unwrap();
            (address.parse().unwrap(), prefix.parse().unwrap())
        };
        let allowed = allowed.iter().map(network).collect();
        Peer { public_key: [key; 32], endpoint: endpoint.parse().ok(), allowed }
    }

    fn asked(there: &[Peer], wanted: &[Peer]) -> Vec<Message> {
        // 248 and 64 are what clamping leaves and sets.
        let mut private_key = [8; 32];
        private_key[31] = 72;
        let device = Device { private_key: &private_key, port: 51820, peers: wanted };
        requests(FAMILY, LINK, &device, there)
    }

    fn written(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.write(&mut bytes, 0, 1);
        bytes
    }

    /// A request as lines, one for each attribute: its type and its bytes, on machines that begin numbers
    /// with the smallest byte.
    fn shown(message: &Message) -> String {
        let bytes = written(message);
        let received = messages(&bytes).next().unwrap();
        let (head, body) = received.body.split_at(generic::HEADER);
        let mut text = format!("family {} command {}\n", received.kind, head[0]);
        show(body, 0, &mut text);
        text
    }

    fn show(bytes: &[u8], depth: usize, text: &mut String) {
        for (kind, value) in attributes(bytes) {
            let indent = "  ".repeat(depth);
            match (depth, kind) {
                (0, DEVICE_PEERS) | (1 | 3, ITEM) | (2, PEER_ALLOWED) => {
                    *text += &format!("{indent}{kind}\n");
                    show(value, depth + 1, text);
                }
                _ if value.len() == 32 && value[..31] == [value[0]; 31] => {
                    *text += &format!("{indent}{kind} {:02x}…{:02x}\n", value[0], value[31]);
                }
                _ => {
                    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                    *text += &format!("{indent}{kind} {hex}\n");
                }
            }
        }
    }

    #[test]
    fn only_what_differs_is_told() {
        let stays = peer_of(0x0b, "[2001:db8::3]:51820", &["fd00:3::/64"]);
        let there = [
            peer_of(0x0a, "192.0.2.9:51820", &["10.1.0.0/24"]),
            stays.clone(),
            peer_of(0x0c, "192.0.2.3:51820", &["10.3.0.0/24"]),
        ];
        let wanted = [
            peer_of(0x0a, "192.0.2.2:51820", &["10.1.0.0/24"]),
            stays,
            peer_of(0x0d, "[2001:db8::4]:51820", &["fd00:4::/64", "10.4.0.0/24"]),
        ];
        let requests = asked(&there, &wanted);
        assert_eq!(requests.len(), 1);
        expect![[r#"
            family 30 command 1
            1 07000000
            3 08…48
            6 6cca
            8
              0
                1 0a…0a
                3 02000000
                4 0200ca6cc00002020000000000000000
                9
                  0
                    1 0200
                    2 0a010000
                    3 18
              0
                1 0d…0d
                3 02000000
                4 0a00ca6c0000000020010db800000000000000000000000400000000
                9
                  0
                    1 0200
                    2 0a040000
                    3 18
                  0
                    1 0a00
                    2 fd000004000000000000000000000000
                    3 40
              0
                1 0c…0c
                3 01000000
        "#]]
        .assert_eq(&shown(&requests[0]));
        let nothing = asked(&wanted, &wanted);
        expect![[r#"
            family 30 command 1
            1 07000000
            3 08…48
            6 6cca
            8
        "#]]
        .assert_eq(&shown(&nothing[0]));
    }

    #[test]
    fn thousands_of_peers_are_told_in_several_messages() {
        let wanted: Vec<Peer> = (0..5000_u32)
            .map(|number| {
                let mut public_key = [1; 32];
                public_key[..4].copy_from_slice(&number.to_be_bytes());
                let networks = ["10.1.0.0/24", "fd00:1::/64"];
                Peer { public_key, ..peer_of(1, "[2001:db8::1]:51820", &networks) }
            })
            .collect();
        let (mut keys, mut told) = (0, Vec::new());
        for request in asked(&[], &wanted) {
            let bytes = written(&request);
            assert!(bytes.len() < 64 << 10, "{}", bytes.len());
            let body = messages(&bytes).next().unwrap().body[generic::HEADER..].to_vec();
            keys += usize::from(attribute(&body, DEVICE_PRIVATE_KEY).is_some());
            let items = attributes(attribute(&body, DEVICE_PEERS).unwrap());
            told.extend(items.map(|(_, item)| peer(item).unwrap()));
        }
        assert_eq!(keys, 1, "the first message alone has it");
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_peer_may_go_on_in_the_next_message() {
        let answer = |peers: Attributes| {
            let device = Attributes::new().u32(DEVICE_LINK, LINK).nested(DEVICE_PEERS, peers);
            [&[GET_DEVICE, 1, 0, 0][..], device.as_bytes()].concat()
        };
        let item = |peer: &Peer| Attributes::new().nested(ITEM, set(peer));
        let begins = peer_of(1, "192.0.2.1:51820", &["10.1.0.0/24"]);
        let goes_on = peer_of(1, "-", &["10.2.0.0/24", "fd00:1::/64"]);
        let next = peer_of(2, "[2001:db8::2]:51820", &["fd00:2::/64"]);
        let mute = peer_of(3, "-", &[]);
        let end = [GET_DEVICE, 1, 0, 0].to_vec();
        let answers = [
            answer(item(&mute).and(item(&begins))),
            answer(item(&goes_on).and(item(&next))),
            end,
            Vec::new(),
        ];
        let whole = ["10.1.0.0/24", "10.2.0.0/24", "fd00:1::/64"];
        assert_eq!(listed(&answers), [mute, peer_of(1, "192.0.2.1:51820", &whole), next]);
    }

    /// On a kernel that has WireGuard; on others, that this is noticed.
    #[test]
    fn a_link_knows_its_peers_and_no_others() {
        isolated(|| {
            let mut route = Socket::open(Family::Route).unwrap();
            let link = match route.ensure_wireguard("wg0", 1420) {
                Ok(link) => link,
                Err(error) => {
                    assert!(error.is_unsupported(), "{error}");
                    assert!(Wireguard::open().unwrap_err().is_missing());
                    eprintln!("skipped: the kernel has no WireGuard");
                    return;
                }
            };
            assert_eq!(route.ensure_wireguard("wg0", 1400).unwrap(), link, "twice is once");
            let found = route.link("wg0").unwrap().unwrap();
            assert_eq!((found.mtu, found.up), (1400, true));
            let mut wireguard = Wireguard::open().unwrap();
            let mut private_key = [8; 32];
            private_key[31] = 72;
            let mut check = |peers: &[Peer]| {
                let device = Device { private_key: &private_key, port: 51820, peers };
                wireguard.set(link, &device).unwrap();
                let mut there = wireguard.peers(link).unwrap();
                there.sort_by_key(|peer| peer.public_key);
                assert_eq!(there, peers);
            };
            let one = peer_of(9, "192.0.2.2:51820", &["10.1.0.0/24", "fd00:1::/64"]);
            let two = peer_of(10, "[2001:db8::3]:51820", &["10.2.0.0/24"]);
            check(&[one.clone(), two.clone()]);
            check(&[one.clone(), two]);
            // One has the other's network now.
            check(&[peer_of(9, "192.0.2.9:51820", &["10.2.0.0/24"])]);
            let many: Vec<Peer> = (0..1000_u16)
                .map(|number| {
                    let mut public_key = [3; 32];
                    public_key[..2].copy_from_slice(&number.to_be_bytes());
                    let network = format!("10.{}.{}.0/24", number / 256, number % 256);
                    Peer { public_key, ..peer_of(3, "192.0.2.3:51820", &[network.as_str()]) }
                })
                .collect();
            check(&many);
            check(&[one]);
            check(&[]);
        });
    }
}
