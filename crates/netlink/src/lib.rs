//! The kernel's tables of links, addresses, routes, packet rules and connections, by netlink: the
//! few messages that we need, built and read by hand, so that a fresh machine needs no program.
//!
//! **It may not know** what anything is for: no pod, no service, no name that we give to things.
//!
//! ```text
//!  Socket      one conversation with the kernel of one network namespace
//!  Message     a request: header, attributes
//!  route       links, bridges, veth pairs, addresses, routes
//!  addresses   those that somebody gave, and how neighbours hear of them
//!  tunnel      VXLAN, and who is where behind it
//!  wireguard   links that encrypt, and for whom
//!  generic     how families are found that have a name instead of a number
//!  shaping     how fast a link may be
//!  nftables    tables, chains, rules, sets and maps, changed as one transaction
//!  log         packets that rules tell of
//!  conntrack   connections that are to be forgotten
//!  namespace   doing something in another network namespace
//! ```
//!
//! A socket belongs to the namespace in which it was opened, whatever thread uses it later.
#![deny(unsafe_code)]

pub mod addresses;
pub mod conntrack;
mod generic;
pub mod log;
mod message;
pub mod namespace;
pub mod nftables;
pub mod route;
mod shaping;
mod socket;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tun;
pub mod tunnel;
pub mod wireguard;

pub use message::{Attributes, Message};
pub use socket::{Family, NetlinkError, Socket};

use std::net::IpAddr;

/// The bytes of an address as they go over the wire.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
