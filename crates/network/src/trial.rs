//! What a pod network is made of, tried where nobody sees it: in a network namespace that is gone
//! afterwards. A kernel's configuration says what it was built with, not what we may use of it here.
use crate::{BRIDGE, Config, INTERFACE, rules};
use netlink::nftables::AddressFamily;
use netlink::route::Veth;
use netlink::tunnel::Vxlan;
use netlink::wireguard::Wireguard;
use netlink::{Family, NetlinkError, Socket};
use std::fs::File;
use std::os::fd::AsFd;

/// One thing that a node needs of the kernel's network.
#[derive(Debug)]
pub struct Trial {
    pub name: &'static str,
    /// The kernel's option that brings it.
    pub option: &'static str,
    pub outcome: Result<(), NetlinkError>,
}

type Try = fn(&mut Socket) -> Result<(), NetlinkError>;

const ROWS: &[(&str, &str, Try)] = &[
    ("bridges", "CONFIG_BRIDGE", bridge),
    ("pairs of links", "CONFIG_VETH", pair),
    ("tunnels between nodes", "CONFIG_VXLAN", tunnel),
    ("packet rules", "CONFIG_NF_TABLES, CONFIG_NFT_NAT, CONFIG_NFT_MASQ", packet_rules),
];

/// Tries everything; an error only where no namespace can be made to try it in.
pub fn trial() -> Result<Vec<Trial>, NetlinkError> {
    netlink::namespace::within_new(|| {
        let mut socket = Socket::open(Family::Route)?;
        let rows = ROWS.iter();
        Ok(rows
            .map(|&(name, option, run)| Trial { name, option, outcome: run(&mut socket) })
            .collect())
    })?
}

/// Whether what pods of different nodes say to each other can be encrypted, which not every kernel can and not
/// every cluster wants.
pub fn encryption() -> Result<(), NetlinkError> {
    netlink::namespace::within_new(|| {
        Socket::open(Family::Route)?.ensure_wireguard("skiffwg", MTU)?;
        Wireguard::open().map(drop)
    })?
}

const MTU: u32 = 1500;

fn bridge(socket: &mut Socket) -> Result<(), NetlinkError> {
    socket.ensure_bridge(BRIDGE, MTU).map(drop)
}

fn pair(socket: &mut Socket) -> Result<(), NetlinkError> {
    let master = socket.ensure_bridge(BRIDGE, MTU)?;
    let own = "/proc/thread-self/ns/net";
    let namespace = File::open(own)
        .map_err(|source| NetlinkError::Namespace { path: own.to_owned(), source })?;
    let (name, peer) = ("skifftrial", INTERFACE);
    socket.create_veth(&Veth { name, peer, namespace: namespace.as_fd(), master, mtu: MTU })
}

fn tunnel(socket: &mut Socket) -> Result<(), NetlinkError> {
    let mac = [2, 0, 0, 0, 0, 1];
    let (name, id, port) = ("skiffvxlan", 1, 8472);
    socket.ensure_vxlan(&Vxlan { name, id, port, mac, mtu: MTU, over_ipv6: false }).map(drop)
}

/// Our own table, whole.
fn packet_rules(_: &mut Socket) -> Result<(), NetlinkError> {
    let config = Config {
        pod_cidrs: Vec::new(),
        cluster_cidrs: Vec::new(),
        mtu: MTU,
        state: std::path::PathBuf::new(),
        key: None,
    };
    let table = rules::table(&config, AddressFamily::Ipv4, &rules::HostPorts::new());
    table.commit(&mut Socket::open(Family::Netfilter)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_runs_the_other_tests_has_everything() {
        // Where no namespace can be made, those say that they were skipped.
        let Ok(trials) = trial() else { return };
        for trial in &trials {
            assert!(trial.outcome.is_ok(), "{trial:?}");
        }
        assert_eq!(trials.len(), ROWS.len());
        if let Err(error) = encryption() {
            assert!(error.is_unsupported(), "{error}");
        }
    }
}
