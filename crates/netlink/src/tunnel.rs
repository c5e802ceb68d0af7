//! VXLAN links (`linux/if_link.h`), and what says which machine a frame goes to: neighbours give an
//! address its MAC, the link's forwarding table gives a MAC its machine (`linux/neighbour.h`).
use crate::message::{CREATE, REPLACE, attribute, number};
use crate::route::{LINK_ADDRESS, LINK_MTU};
use crate::{Attributes, Message, NetlinkError, Socket, octets};
use std::net::{IpAddr, Ipv6Addr};

const NEW_NEIGHBOUR: u16 = 28;
const DELETE_NEIGHBOUR: u16 = 29;
const GET_NEIGHBOUR: u16 = 30;

const ID: u16 = 1;
const LEARNING: u16 = 7;
const PORT: u16 = 15;
const LOCAL6: u16 = 17;

const DESTINATION: u16 = 1;
const MAC: u16 = 2;
const FAMILY_BRIDGE: u8 = 7;
/// `struct ndmsg`.
const HEADER: usize = 12;

pub type Mac = [u8; 6];

/// A VXLAN link that is told everything: it learns nothing from what comes.
#[derive(Debug, Clone)]
pub struct Vxlan<'a> {
    pub name: &'a str,
    pub id: u32,
    pub port: u16,
    pub mac: Mac,
    pub mtu: u32,
    /// Which protocol carries it.
    pub over_ipv6: bool,
}

/// An entry of a link's tables: a machine's or an address's MAC.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Neighbour {
    pub address: IpAddr,
    pub mac: Mac,
}

impl Socket {
    /// The link, which is up; its index. One that is there keeps all but its MAC and MTU.
    pub fn ensure_vxlan(&mut self, vxlan: &Vxlan<'_>) -> Result<u32, NetlinkError> {
        let mut data = Attributes::new().u32(ID, vxlan.id).u8(LEARNING, 0).be16(PORT, vxlan.port);
        if vxlan.over_ipv6 {
            data = data.bytes(LOCAL6, &Ipv6Addr::UNSPECIFIED.octets());
        }
        let own = Attributes::new().bytes(LINK_ADDRESS, &vxlan.mac).u32(LINK_MTU, vxlan.mtu);
        self.ensure_link(vxlan.name, "vxlan", Some(data), own)
    }

    /// Who has this address on the link has this MAC, and nobody needs to be asked.
    pub fn set_neighbour(&mut self, link: u32, entry: &Neighbour) -> Result<(), NetlinkError> {
        let message = neighbour(NEW_NEIGHBOUR, CREATE | REPLACE, link, false, entry);
        self.request(&format!("set the neighbour {}", entry.address), message)
    }

    /// What a neighbour may have been, which the next word of it changes.
    #[cfg(test)]
    pub(crate) fn set_stale_neighbour(
        &mut self,
        link: u32,
        entry: &Neighbour,
    ) -> Result<(), NetlinkError> {
        const STALE: u16 = 4;
        let family = if entry.address.is_ipv4() { 2 } else { 10 };
        let mut body = vec![family, 0, 0, 0];
        body.extend(link.to_ne_bytes());
        body.extend(STALE.to_ne_bytes());
        body.extend([0, 0]);
        let attributes =
            Attributes::new().bytes(DESTINATION, &octets(entry.address)).bytes(MAC, &entry.mac);
        self.request(
            "set a neighbour",
            Message::new(NEW_NEIGHBOUR, CREATE | REPLACE, &body, attributes),
        )
    }

    /// Whom the kernel takes for an address on a link.
    #[cfg(test)]
    pub(crate) fn neighbour(
        &mut self,
        link: u32,
        address: IpAddr,
    ) -> Result<Option<Mac>, NetlinkError> {
        let mut body = vec![if address.is_ipv4() { 2 } else { 10 }];
        body.resize(HEADER, 0);
        let message = Message::new(GET_NEIGHBOUR, 0, &body, Attributes::new());
        let answers = self.dump("list neighbours", message)?;
        let of_link = answers.iter().filter(|body| number(body, 4) == Some(link));
        Ok(of_link
            .filter_map(|body| {
                let attributes = body.get(HEADER..)?;
                let is = attribute(attributes, DESTINATION)? == octets(address);
                is.then_some(attribute(attributes, MAC)?.try_into().ok()?)
            })
            .next())
    }

    pub fn remove_neighbour(&mut self, link: u32, entry: &Neighbour) -> Result<(), NetlinkError> {
        let message = neighbour(DELETE_NEIGHBOUR, 0, link, false, entry);
        missing_is_removed(self.request("remove a neighbour", message))
    }

    /// Frames to this MAC go to the machine with this address.
    pub fn set_forwarding(&mut self, link: u32, entry: &Neighbour) -> Result<(), NetlinkError> {
        let message = neighbour(NEW_NEIGHBOUR, CREATE | REPLACE, link, true, entry);
        self.request(&format!("set the tunnel to {}", entry.address), message)
    }

    pub fn remove_forwarding(&mut self, link: u32, entry: &Neighbour) -> Result<(), NetlinkError> {
        let message = neighbour(DELETE_NEIGHBOUR, 0, link, true, entry);
        missing_is_removed(self.request("remove a tunnel", message))
    }

    /// Frames to this MAC leave a bridge by this port, whether anybody was heard there or not.
    pub fn set_port_mac(&mut self, port: u32, mac: Mac) -> Result<(), NetlinkError> {
        /// Not `PERMANENT`, by which a bridge means itself.
        const STATIC: u16 = 0x40;
        const OF_THE_BRIDGE: u8 = 4;
        let mut body = vec![FAMILY_BRIDGE, 0, 0, 0];
        body.extend(port.to_ne_bytes());
        body.extend(STATIC.to_ne_bytes());
        body.extend([OF_THE_BRIDGE, 0]);
        let attributes = Attributes::new().bytes(MAC, &mac);
        let message = Message::new(NEW_NEIGHBOUR, CREATE | REPLACE, &body, attributes);
        self.request("set the MAC behind a bridge's port", message)
    }

    /// The neighbours that were set on a link.
    pub fn neighbours(&mut self, link: u32) -> Result<Vec<Neighbour>, NetlinkError> {
        self.entries(link, 0)
    }

    pub fn forwarding(&mut self, link: u32) -> Result<Vec<Neighbour>, NetlinkError> {
        self.entries(link, FAMILY_BRIDGE)
    }

    fn entries(&mut self, link: u32, family: u8) -> Result<Vec<Neighbour>, NetlinkError> {
        let mut body = vec![family];
        body.resize(HEADER, 0);
        let message = Message::new(GET_NEIGHBOUR, 0, &body, Attributes::new());
        let answers = self.dump("list neighbours", message)?;
        let of_link = answers.iter().filter(|body| number(body, 4) == Some(link));
        Ok(of_link.filter_map(|body| entry(body)).collect())
    }
}

const PERMANENT: u16 = 0x80;

fn neighbour(kind: u16, flags: u16, link: u32, forwards: bool, entry: &Neighbour) -> Message {
    const OF_THE_LINK_ITSELF: u8 = 2;
    let (family, own) = match (forwards, entry.address) {
        (true, _) => (FAMILY_BRIDGE, OF_THE_LINK_ITSELF),
        (false, IpAddr::V4(_)) => (2, 0),
        (false, IpAddr::V6(_)) => (10, 0),
    };
    let mut body = vec![family, 0, 0, 0];
    body.extend(link.to_ne_bytes());
    body.extend(PERMANENT.to_ne_bytes());
    body.extend([own, 0]);
    let attributes =
        Attributes::new().bytes(DESTINATION, &octets(entry.address)).bytes(MAC, &entry.mac);
    Message::new(kind, flags, &body, attributes)
}

/// One that somebody set: what the kernel found out by itself is not permanent.
fn entry(body: &[u8]) -> Option<Neighbour> {
    let state = u16::from_ne_bytes(body.get(8..10)?.try_into().ok()?);
    if state & PERMANENT == 0 {
        return None;
    }
    let attributes = body.get(HEADER..)?;
    let address = attribute(attributes, DESTINATION)?;
    let address: IpAddr = match <[u8; 4]>::try_from(address) {
        Ok(address) => address.into(),
        Err(_) => <[u8; 16]>::try_from(address).ok()?.into(),
    };
    Some(Neighbour { address, mac: attribute(attributes, MAC)?.try_into().ok()? })
}

fn missing_is_removed(outcome: Result<(), NetlinkError>) -> Result<(), NetlinkError> {
    match outcome {
        Err(error) if error.is_missing() => Ok(()),
        other => other,
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
    fn a_bridge_is_told_who_is_behind_a_port() {
        isolated(|| {
            let mut socket = Socket::open(Family::Route).unwrap();
            let other = Held::new();
            let namespace = std::fs::File::open(&other.path).unwrap();
            let master = socket.ensure_bridge("br0", 1500).unwrap();
            let (name, peer, namespace) = ("v0", "eth0", namespace.as_fd());
            socket.create_veth(&Veth { name, peer, namespace, master, mtu: 1500 }).unwrap();
            let port = socket.link("v0").unwrap().unwrap().index;
            let mac = [2, 0, 0, 0, 0, 7];
            socket.set_port_mac(port, mac).unwrap();
            socket.set_port_mac(port, mac).unwrap();
            let mut body = vec![FAMILY_BRIDGE];
            body.resize(HEADER, 0);
            let message = Message::new(GET_NEIGHBOUR, 0, &body, Attributes::new());
            let all = socket.dump("list neighbours", message).unwrap();
            let is_told = |body: &Vec<u8>| {
                let attributes = body.get(HEADER..).unwrap();
                number(body, 4) == Some(port)
                    && body.get(8..10) == Some(&0x40_u16.to_ne_bytes()[..])
                    && attribute(attributes, MAC) == Some(&mac[..])
            };
            assert_eq!(all.iter().filter(|body| is_told(body)).count(), 1);
        });
    }

    #[test]
    fn a_tunnel_is_told_who_is_where() {
        isolated(|| {
            let mut socket = Socket::open(Family::Route).unwrap();
            for over_ipv6 in [false, true] {
                let (name, id, port, mac) = ("tunnel0", 7, 4789, [2, 0, 0, 0, 0, 1]);
                let mut vxlan = Vxlan { name, id, port, mac, mtu: 1400, over_ipv6 };
                let link = socket.ensure_vxlan(&vxlan).unwrap();
                vxlan.mac[5] = 2;
                assert_eq!(socket.ensure_vxlan(&vxlan).unwrap(), link, "twice is once");
                let entry = |address: &str, last| Neighbour {
                    address: address.parse().unwrap(),
                    mac: [2, 0, 0, 0, 0, last],
                };
                let inner = [entry("10.1.0.0", 9), entry("fd00::9", 9)];
                for entry in &inner {
                    socket.set_neighbour(link, entry).unwrap();
                    socket.set_neighbour(link, entry).unwrap();
                }
                assert_eq!(socket.neighbours(link).unwrap(), inner);
                let outer = if over_ipv6 {
                    ["2001:db8::1", "2001:db8::2"]
                } else {
                    ["192.0.2.1", "192.0.2.2"]
                };
                for address in outer {
                    socket.set_forwarding(link, &entry(address, 9)).unwrap();
                }
                assert_eq!(socket.forwarding(link).unwrap(), [entry(outer[1], 9)], "replaced");
                for _ in 0..2 {
                    socket.remove_forwarding(link, &entry(outer[1], 9)).unwrap();
                    inner.iter().for_each(|one| socket.remove_neighbour(link, one).unwrap());
                }
                assert_eq!(socket.forwarding(link).unwrap(), []);
                assert_eq!(socket.neighbours(link).unwrap(), []);
                socket.remove_link("tunnel0").unwrap();
            }
        });
    }
}
