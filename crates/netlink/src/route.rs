//! Links, addresses and routes (`linux/if_link.h`, `if_addr.h`, `rtnetlink.h`).
use crate::message::{CREATE, EXCLUSIVE, REPLACE, attribute, number};
use crate::{Attributes, Message, NetlinkError, Socket, octets};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const SET_LINK: u16 = 19;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;

const ROUTE_DESTINATION: u16 = 1;
const ROUTE_LINK: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const TABLE_MAIN: u8 = 254;
/// Who made a route: "boot" is what `ip route` says of routes that nobody's daemon minds.
const PROTOCOL_BOOT: u8 = 3;
/// `struct rtmsg`.
const ROUTE_HEADER: usize = 12;

const UP: u32 = 1;

const LINK_NAME: u16 = 3;
pub(crate) const LINK_MTU: u16 = 4;
const LINK_MASTER: u16 = 10;
const LINK_PROTOCOL: u16 = 12;
const LINK_INFO: u16 = 18;
const LINK_ALIAS: u16 = 20;
const LINK_NAMESPACE: u16 = 28;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;
const PORT_HAIRPIN: u16 = 4;
pub(crate) const LINK_ADDRESS: u16 = 1;

const FAMILY_BRIDGE: u8 = 7;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub master: Option<u32>,
    pub mtu: u32,
    pub up: bool,
    pub mac: Option<[u8; 6]>,
}

impl Socket {
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let message = Message::new(GET_LINK, 0, &header(0, 0, 0), Attributes::new());
        let answers = self.dump("list links", message)?;
        Ok(answers.iter().filter_map(|answer| link(answer)).collect())
    }

    pub fn link(&mut self, name: &str) -> Result<Option<Link>, NetlinkError> {
        Ok(self.links()?.into_iter().find(|link| link.name == name))
    }

    /// A bridge that is up, if it is not there yet; its index.
    pub fn ensure_bridge(&mut self, name: &str, mtu: u32) -> Result<u32, NetlinkError> {
        let index = self.ensure_link(name, "bridge", None, Attributes::new())?;
        // Afterwards: a bridge that is made with an MTU still takes another from its ports.
        self.set_mtu(index, mtu)?;
        Ok(index)
    }

    /// A link of a kind, which is up; its index. `data` is what only this kind has. One that is there
    /// keeps all but what is its `own`.
    pub(crate) fn ensure_link(
        &mut self,
        name: &str,
        kind: &str,
        data: Option<Attributes>,
        own: Attributes,
    ) -> Result<u32, NetlinkError> {
        let what = format!("create the {kind} link {name}");
        let mut info = Attributes::new().text(INFO_KIND, kind);
        if let Some(data) = data {
            info = info.nested(INFO_DATA, data);
        }
        let attributes = own.clone().text(LINK_NAME, name).nested(LINK_INFO, info);
        let message = Message::new(NEW_LINK, CREATE | EXCLUSIVE, &header(0, 0, UP), attributes);
        match self.request(&what, message) {
            Err(error) if !error.is_existing() => return Err(error),
            _ => {}
        }
        let link = self.link(name)?.ok_or(NetlinkError::Silent { what })?;
        self.set_link(link.index, true, own)?;
        Ok(link.index)
    }

    /// A veth pair: `name` here, as a port of `master`, and `peer` in another namespace.
    pub fn create_veth(&mut self, veth: &Veth<'_>) -> Result<(), NetlinkError> {
        let peer = Attributes::new()
            .raw(&header(0, 0, 0))
            .text(LINK_NAME, veth.peer)
            .u32(LINK_MTU, veth.mtu)
            .u32(LINK_NAMESPACE, veth.namespace.as_raw_fd() as u32);
        let data = Attributes::new().nested(VETH_PEER, peer);
        let info = Attributes::new().text(INFO_KIND, "veth").nested(INFO_DATA, data);
        let attributes = Attributes::new()
            .text(LINK_NAME, veth.name)
            .u32(LINK_MTU, veth.mtu)
            .u32(LINK_MASTER, veth.master)
            .nested(LINK_INFO, info);
        let message = Message::new(NEW_LINK, CREATE | EXCLUSIVE, &header(0, 0, UP), attributes);
        self.request(&format!("create the link {}", veth.name), message)
    }

    /// What somebody who lists links reads beside one.
    pub fn describe_link(&mut self, index: u32, text: &str) -> Result<(), NetlinkError> {
        // The kernel takes 255 bytes.
        let end = (0..=text.len().min(255)).rev().find(|end| text.is_char_boundary(*end));
        let text = &text[..end.unwrap_or(0)];
        let alias = Attributes::new().bytes(LINK_ALIAS, text.as_bytes());
        let message = Message::new(NEW_LINK, 0, &header(0, index, 0), alias);
        self.request("describe a link", message)
    }

    pub fn set_link_up(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.set_link(index, true, Attributes::new())
    }

    /// A frame may leave a bridge by the port it came in.
    pub fn set_hairpin(&mut self, index: u32) -> Result<(), NetlinkError> {
        let port = Attributes::new().u8(PORT_HAIRPIN, 1);
        let attributes = Attributes::new().nested(LINK_PROTOCOL, port);
        // Only this message reaches the bridge: another is taken, and changes nothing.
        let message = Message::new(SET_LINK, 0, &header(FAMILY_BRIDGE, index, 0), attributes);
        self.request("set a bridge port's hairpin mode", message)
    }

    /// The link has this MAC for good; a bridge would otherwise take another with every port.
    pub fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> Result<(), NetlinkError> {
        let address = Attributes::new().bytes(LINK_ADDRESS, &mac);
        self.request("set a link's MAC", Message::new(NEW_LINK, 0, &header(0, index, 0), address))
    }

    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        let attributes = Attributes::new().u32(LINK_MTU, mtu);
        self.request(
            "set a link's MTU",
            Message::new(NEW_LINK, 0, &header(0, index, 0), attributes),
        )
    }

    fn set_link(&mut self, index: u32, up: bool, with: Attributes) -> Result<(), NetlinkError> {
        let mut body = header(0, index, if up { UP } else { 0 });
        body[12..16].copy_from_slice(&UP.to_ne_bytes());
        self.request("change a link", Message::new(NEW_LINK, 0, &body, with))
    }

    /// One that is not there is removed.
    pub fn remove_link(&mut self, name: &str) -> Result<(), NetlinkError> {
        let attributes = Attributes::new().text(LINK_NAME, name);
        let message = Message::new(DELETE_LINK, 0, &header(0, 0, 0), attributes);
        match self.request(&format!("remove the link {name}"), message) {
            Err(error) if error.is_missing() => Ok(()),
            other => other,
        }
    }

    /// An address that is there is left as it is.
    pub fn add_address(
        &mut self,
        index: u32,
        address: IpAddr,
        prefix: u8,
    ) -> Result<(), NetlinkError> {
        const LOCAL: u16 = 2;
        const ADDRESS: u16 = 1;
        /// Nobody else has an address that we gave: there is nothing to wait for.
        const NO_DUPLICATE_DETECTION: u8 = 2;
        let flags = if address.is_ipv6() { NO_DUPLICATE_DETECTION } else { 0 };
        let mut body = vec![family(address), prefix, flags, 0];
        body.extend(index.to_ne_bytes());
        let bytes = octets(address);
        let attributes = Attributes::new().bytes(LOCAL, &bytes).bytes(ADDRESS, &bytes);
        let message = Message::new(NEW_ADDRESS, CREATE | REPLACE, &body, attributes);
        self.request(&format!("add the address {address}/{prefix}"), message)
    }

    /// A route by way of a link, and of a gateway on it if there is one. One to the same
    /// destination is replaced.
    pub fn set_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.set_route_as(PROTOCOL_BOOT, route)
    }

    /// The same, in the name of somebody (`rtm_protocol`) who can find it again. The gateway is taken
    /// to be on the link, whatever the link's own addresses are.
    pub fn set_route_as(&mut self, protocol: u8, route: &Route) -> Result<(), NetlinkError> {
        let (destination, prefix) = route.destination;
        let message = route_message(NEW_ROUTE, CREATE | REPLACE, protocol, route);
        self.request(&format!("set the route to {destination}/{prefix}"), message)
    }

    /// One that is not there is removed.
    pub fn remove_route_of(&mut self, protocol: u8, route: &Route) -> Result<(), NetlinkError> {
        let (destination, prefix) = route.destination;
        let message = route_message(DELETE_ROUTE, 0, protocol, route);
        match self.request(&format!("remove the route to {destination}/{prefix}"), message) {
            Err(error) if error.is_missing() => Ok(()),
            other => other,
        }
    }

    /// The routes that were set in somebody's name, in both address families.
    pub fn routes_of(&mut self, protocol: u8) -> Result<Vec<Route>, NetlinkError> {
        let message = Message::new(GET_ROUTE, 0, &[0; ROUTE_HEADER], Attributes::new());
        let answers = self.dump("list routes", message)?;
        let ours = answers.iter().filter(|body| body.get(5) == Some(&protocol));
        Ok(ours.filter_map(|body| route(body)).collect())
    }

    /// How a packet to an address would leave; `None`: there is no way.
    pub fn route_to(&mut self, address: IpAddr) -> Result<Option<Route>, NetlinkError> {
        let mut body = vec![family(address), if address.is_ipv4() { 32 } else { 128 }];
        body.resize(ROUTE_HEADER, 0);
        let attributes = Attributes::new().bytes(ROUTE_DESTINATION, &octets(address));
        let message = Message::new(GET_ROUTE, 0, &body, attributes);
        match self.get(&format!("find the route to {address}"), message) {
            Ok(body) => Ok(route(&body)),
            Err(error) if error.is_unreachable() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn route_message(kind: u16, flags: u16, protocol: u8, route: &Route) -> Message {
    const SCOPE_UNIVERSE: u8 = 0;
    const SCOPE_LINK: u8 = 253;
    const SCOPE_NOWHERE: u8 = 255;
    const UNICAST: u8 = 1;
    let (destination, prefix) = route.destination;
    let scope = match route.gateway {
        // What is removed is found by the rest.
        _ if kind == DELETE_ROUTE => SCOPE_NOWHERE,
        None if destination.is_ipv4() => SCOPE_LINK,
        _ => SCOPE_UNIVERSE,
    };
    let head = [family(destination), prefix, 0, 0, TABLE_MAIN, protocol, scope, UNICAST];
    let mut body = head.to_vec();
    body.resize(ROUTE_HEADER, 0);
    let mut attributes = Attributes::new().u32(ROUTE_LINK, route.link);
    if prefix > 0 {
        attributes = attributes.bytes(ROUTE_DESTINATION, &octets(destination));
    }
    if let Some(gateway) = route.gateway {
        attributes = attributes.bytes(ROUTE_GATEWAY, &octets(gateway));
    }
    if protocol != PROTOCOL_BOOT && kind == NEW_ROUTE && route.gateway.is_some() {
        const ON_LINK: u32 = 4;
        body[8..12].copy_from_slice(&ON_LINK.to_ne_bytes());
    }
    Message::new(kind, flags, &body, attributes)
}

fn route(body: &[u8]) -> Option<Route> {
    let (is_ipv4, prefix) = (*body.first()? == 2, *body.get(1)?);
    let attributes = body.get(ROUTE_HEADER..)?;
    let address = |kind| -> Option<IpAddr> {
        let bytes = attribute(attributes, kind)?;
        match is_ipv4 {
            true => Some(<[u8; 4]>::try_from(bytes).ok()?.into()),
            false => Some(<[u8; 16]>::try_from(bytes).ok()?.into()),
        }
    };
    let any: IpAddr = match is_ipv4 {
        true => [0; 4].into(),
        false => [0; 16].into(),
    };
    let destination = (address(ROUTE_DESTINATION).unwrap_or(any), prefix);
    let link = number(attribute(attributes, ROUTE_LINK)?, 0)?;
    Some(Route { destination, gateway: address(ROUTE_GATEWAY), link })
}

pub struct Veth<'a> {
    pub name: &'a str,
    pub peer: &'a str,
    pub namespace: BorrowedFd<'a>,
    pub master: u32,
    pub mtu: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub destination: (IpAddr, u8),
    pub gateway: Option<IpAddr>,
    pub link: u32,
}

/// `struct ifinfomsg`.
fn header(family: u8, index: u32, flags: u32) -> Vec<u8> {
    let mut body = vec![family, 0, 0, 0];
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 2,
        IpAddr::V6(_) => 10,
    }
}

fn link(body: &[u8]) -> Option<Link> {
    let (index, flags) = (number(body, 4)?, number(body, 8)?);
    let attributes = body.get(16..)?;
    let name = attribute(attributes, LINK_NAME)?;
    let name = String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(name)).into_owned();
    let master = attribute(attributes, LINK_MASTER).and_then(|value| number(value, 0));
    let mtu = attribute(attributes, LINK_MTU).and_then(|value| number(value, 0)).unwrap_or(0);
    let mac = attribute(attributes, LINK_ADDRESS).and_then(|mac| mac.try_into().ok());
    Some(Link { index, name, master, mtu, up: flags & UP != 0, mac })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Held, isolated};
    use crate::{Family, namespace};
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_bridge_with_a_pair_into_another_namespace() {
        isolated(|| {
            let mut socket = Socket::open(Family::Route).unwrap();
            let bridge = socket.ensure_bridge("br0", 1400).unwrap();
            assert_eq!(socket.ensure_bridge("br0", 1400).unwrap(), bridge, "twice is once");
            socket.set_mac(bridge, [2, 0, 0, 0, 0, 1]).unwrap();
            let pod = Held::new();
            let namespace = File::open(&pod.path).unwrap();
            let (name, peer, namespace) = ("v0", "eth0", namespace.as_fd());
            let veth = Veth { name, peer, namespace, master: bridge, mtu: 1400 };
            socket.create_veth(&veth).unwrap();
            assert!(socket.create_veth(&veth).unwrap_err().is_existing());
            let link = socket.link("v0").unwrap().unwrap();
            assert_eq!((link.master, link.mtu, link.up), (Some(bridge), 1400, true));
            socket.set_hairpin(link.index).unwrap();
            let mac = socket.link("br0").unwrap().unwrap().mac;
            assert_eq!(mac, Some([2, 0, 0, 0, 0, 1]), "not the port's");

            let mut inside = Socket::open_in(Family::Route, &pod.path).unwrap();
            let eth0 = inside.link("eth0").unwrap().unwrap();
            assert!(!eth0.up);
            inside.set_link_up(eth0.index).unwrap();
            for (address, gateway, prefix) in
                [("10.1.0.2", "10.1.0.1", 32), ("fd00::2", "fd00::1", 128)]
            {
                let (address, gateway): (IpAddr, IpAddr) =
                    (address.parse().unwrap(), gateway.parse().unwrap());
                inside.add_address(eth0.index, address, prefix).unwrap();
                inside.add_address(eth0.index, address, prefix).unwrap();
                let any = if address.is_ipv4() { "0.0.0.0" } else { "::" };
                let onto =
                    Route { destination: (gateway, prefix), gateway: None, link: eth0.index };
                let rest = Route {
                    destination: (any.parse().unwrap(), 0),
                    gateway: Some(gateway),
                    link: eth0.index,
                };
                for route in [&onto, &rest, &onto, &rest] {
                    inside.set_route(route).unwrap();
                }
            }
            let found = inside.route_to("192.0.2.7".parse().unwrap()).unwrap().unwrap();
            assert_eq!(found.gateway, Some("10.1.0.1".parse().unwrap()));
            let found = inside.route_to("10.1.0.1".parse().unwrap()).unwrap().unwrap();
            assert_eq!((found.gateway, found.link), (None, eth0.index));
            const OURS: u8 = 77;
            let ours = |destination: &str, prefix, gateway: &str| Route {
                destination: (destination.parse().unwrap(), prefix),
                gateway: Some(gateway.parse().unwrap()),
                link: eth0.index,
            };
            let both = [ours("10.2.0.0", 24, "10.1.0.1"), ours("fd02::", 64, "fd00::1")];
            for route in &both {
                inside.set_route_as(OURS, route).unwrap();
            }
            assert_eq!(inside.routes_of(OURS).unwrap(), both);
            for route in both.iter().chain(&both) {
                inside.remove_route_of(OURS, route).unwrap();
            }
            assert_eq!(inside.routes_of(OURS).unwrap(), []);
            assert_eq!(socket.route_to("192.0.2.7".parse().unwrap()).unwrap(), None);
            let names = || namespace::within(&pod.path, || Socket::open(Family::Route));
            assert_eq!(
                names().unwrap().unwrap().links().unwrap().len(),
                inside.links().unwrap().len()
            );
            socket.remove_link("v0").unwrap();
            socket.remove_link("v0").unwrap();
            assert_eq!(inside.link("eth0").unwrap(), None, "the pair goes together");
        });
    }
}
