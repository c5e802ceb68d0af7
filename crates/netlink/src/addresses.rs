//! Addresses of links that somebody gave, told apart by in whose name (`IFA_PROTO`, Linux 5.18), and
//! how neighbours hear of one at once.
use crate::message::{CREATE, REPLACE, attribute, number};
use crate::tunnel::Mac;
use crate::{Attributes, Message, NetlinkError, Socket, octets};
use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{self, AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sockopt};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};

const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const PROTOCOL: u16 = 11;
/// `struct ifaddrmsg`.
const HEADER: usize = 8;

/// One address of a link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    pub address: IpAddr,
    pub prefix: u8,
    pub link: u32,
}

impl Socket {
    /// An address in the name of somebody who can find it again; one that is there is left.
    pub fn add_address_as(&mut self, protocol: u8, one: &Address) -> Result<(), NetlinkError> {
        let attributes = own(one).u8(PROTOCOL, protocol);
        let message = Message::new(NEW_ADDRESS, CREATE | REPLACE, &header(one), attributes);
        self.request(&format!("add the address {}", one.address), message)
    }

    /// One that is not there is removed.
    pub fn remove_address(&mut self, one: &Address) -> Result<(), NetlinkError> {
        let message = Message::new(DELETE_ADDRESS, 0, &header(one), own(one));
        match self.request(&format!("remove the address {}", one.address), message) {
            Err(error) if error.is_missing() => Ok(()),
            other => other,
        }
    }

    /// The addresses that were given in somebody's name; `None`: all.
    pub fn addresses_of(&mut self, protocol: Option<u8>) -> Result<Vec<Address>, NetlinkError> {
        let message = Message::new(GET_ADDRESS, 0, &[0; HEADER], Attributes::new());
        let answers = self.dump("list addresses", message)?;
        let found = answers.iter().filter_map(|body| {
            let (prefix, link) = (*body.get(1)?, number(body, 4)?);
            let attributes = body.get(HEADER..)?;
            let by = attribute(attributes, PROTOCOL).and_then(|by| by.first().copied());
            if protocol.is_some() && by != protocol {
                return None;
            }
            let bytes = attribute(attributes, LOCAL).or(attribute(attributes, ADDRESS))?;
            let address: IpAddr = match <[u8; 4]>::try_from(bytes) {
                Ok(address) => address.into(),
                Err(_) => <[u8; 16]>::try_from(bytes).ok()?.into(),
            };
            Some(Address { address, prefix, link })
        });
        Ok(found.collect())
    }
}

fn header(one: &Address) -> Vec<u8> {
    const NO_DUPLICATE_DETECTION: u8 = 2;
    let (family, flags) = match one.address {
        IpAddr::V4(_) => (2, 0),
        IpAddr::V6(_) => (10, NO_DUPLICATE_DETECTION),
    };
    let mut body = vec![family, one.prefix, flags, 0];
    body.extend(one.link.to_ne_bytes());
    body
}

fn own(one: &Address) -> Attributes {
    let bytes = octets(one.address);
    Attributes::new().bytes(LOCAL, &bytes).bytes(ADDRESS, &bytes)
}

/// Tells everybody on a link of the calling thread's namespace that an address is at this MAC now: a
/// gratuitous ARP (RFC 5227), or an unsolicited advertisement (RFC 4861).
pub fn announce(link: u32, mac: Mac, address: IpAddr) -> Result<(), NetlinkError> {
    let sent = match address {
        IpAddr::V4(address) => announce_ipv4(link, mac, address),
        IpAddr::V6(address) => announce_ipv6(link, mac, address),
    };
    sent.map_err(|error| NetlinkError::Refused {
        what: format!("announce the address {address}"),
        source: error.into(),
    })
}

const BROADCAST: Mac = [0xff; 6];

fn announce_ipv4(link: u32, mac: Mac, address: Ipv4Addr) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None)?;
    let to = LinkAddress { link };
    net::sendto(&socket, &arp(mac, address), SendFlags::empty(), &to)?;
    Ok(())
}

/// A request for one's own address: those who know it take the MAC, nobody answers.
fn arp(mac: Mac, address: Ipv4Addr) -> Vec<u8> {
    // Ethernet, IPv4, lengths of their addresses, request.
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
    packet.extend(mac);
    packet.extend(address.octets());
    packet.extend([0; 6]);
    packet.extend(address.octets());
    packet
}

fn announce_ipv6(link: u32, mac: Mac, address: Ipv6Addr) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC;
    let (domain, kind) = (AddressFamily::INET6, SocketType::RAW);
    let socket = net::socket_with(domain, kind, flags, Some(ipproto::ICMPV6))?;
    // Neighbours believe only what comes from the same link.
    sockopt::set_ipv6_multicast_hops(&socket, 255)?;
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let to = SocketAddrV6::new(all_nodes, 0, 0, link);
    net::sendto(&socket, &advertisement(mac, address), SendFlags::empty(), &to)?;
    Ok(())
}

/// The kernel fills in the checksum.
fn advertisement(mac: Mac, address: Ipv6Addr) -> Vec<u8> {
    const ADVERTISEMENT: u8 = 136;
    const OVERRIDE: u8 = 0x20;
    let mut packet = vec![ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
    packet.extend(address.octets());
    // The target's link-layer address, eight bytes long.
    packet.extend([2, 1]);
    packet.extend(mac);
    packet
}

/// `struct sockaddr_ll` of everybody on a link, for ARP.
struct LinkAddress {
    link: u32,
}

#[repr(C, align(4))]
struct Raw([u8; 20]);

// SAFETY: the pointer is to twenty initialised bytes, which live until `f` has returned, and twenty
// is the length that is said; they are a whole `sockaddr_ll`.
#[allow(unsafe_code)]
unsafe impl SocketAddrArg for LinkAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        const FAMILY: u16 = 17;
        const ARP: u16 = 0x0806;
        let mut raw = Raw([0; 20]);
        raw.0[..2].copy_from_slice(&FAMILY.to_ne_bytes());
        raw.0[2..4].copy_from_slice(&ARP.to_be_bytes());
        raw.0[4..8].copy_from_slice(&self.link.to_ne_bytes());
        raw.0[11] = BROADCAST.len() as u8;
        raw.0[12..18].copy_from_slice(&BROADCAST);
        f(std::ptr::from_ref(&raw).cast(), raw.0.len() as SocketAddrLen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Family;
    use crate::route::Veth;
    use crate::testing::{Held, isolated};
    use std::os::fd::AsFd;

    #[test]
    fn what_is_announced_is_made_by_hand() {
        let mac = [2, 0, 0, 0, 0, 9];
        assert_eq!(
            arp(mac, Ipv4Addr::new(192, 0, 2, 7)),
            [
                0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 192, 0, 2, 7, 0, 0, 0, 0, 0, 0, 192, 0,
                2, 7
            ]
        );
        let said = advertisement(mac, "2001:db8::7".parse().unwrap());
        assert_eq!((said.len(), said[0], said[4], &said[26..]), (32, 136, 0x20, &mac[..]));
    }

    /// A neighbour that has an old MAC of an address learns of the new one without asking.
    #[test]
    fn neighbours_hear_of_an_address_at_once() {
        isolated(|| {
            let mut here = Socket::open(Family::Route).unwrap();
            let there = Held::new();
            let file = std::fs::File::open(&there.path).unwrap();
            let bridge = here.ensure_bridge("br0", 1500).unwrap();
            let (name, peer, namespace) = ("v0", "eth0", file.as_fd());
            here.create_veth(&Veth { name, peer, namespace, master: bridge, mtu: 1500 }).unwrap();
            let mut other = Socket::open_in(Family::Route, &there.path).unwrap();
            let eth0 = other.link("eth0").unwrap().unwrap().index;
            other.set_link_up(eth0).unwrap();
            let mac = here.link("br0").unwrap().unwrap().mac.unwrap();
            for (own, far, prefix) in
                [("192.0.2.1", "192.0.2.2", 24), ("2001:db8::1", "2001:db8::2", 64)]
            {
                let (own, far): (IpAddr, IpAddr) = (own.parse().unwrap(), far.parse().unwrap());
                other.add_address(eth0, far, prefix).unwrap();
                here.add_address(bridge, own, prefix).unwrap();
                let vip: IpAddr = match own {
                    IpAddr::V4(_) => "192.0.2.100".parse().unwrap(),
                    IpAddr::V6(_) => "2001:db8::100".parse().unwrap(),
                };
                let given = Address {
                    address: vip,
                    prefix: if vip.is_ipv4() { 32 } else { 128 },
                    link: bridge,
                };
                here.add_address_as(95, &given).unwrap();
                here.add_address_as(95, &given).unwrap();
                assert_eq!(here.addresses_of(Some(95)).unwrap(), std::slice::from_ref(&given));
                assert!(here.addresses_of(None).unwrap().len() > 1);
                let stale = crate::tunnel::Neighbour { address: vip, mac: [2, 0, 0, 0, 0, 1] };
                other.set_stale_neighbour(eth0, &stale).unwrap();
                announce(bridge, mac, vip).unwrap();
                let begun = std::time::Instant::now();
                while other.neighbour(eth0, vip).unwrap() != Some(mac) {
                    assert!(begun.elapsed().as_secs() < 5, "{vip} was not heard of");
                    announce(bridge, mac, vip).unwrap();
                }
                here.remove_address(&given).unwrap();
                here.remove_address(&given).unwrap();
                assert_eq!(here.addresses_of(Some(95)).unwrap(), []);
            }
        });
    }
}
