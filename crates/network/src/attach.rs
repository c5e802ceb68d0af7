//! Sandboxes come and go.
use crate::peers::{self, Peer};
use crate::records::{Record, Records};
use crate::{BRIDGE, Cidr, Config, INTERFACE, PodNetworkError, Sandbox, TABLES, rules, sysctl};
use netlink::nftables::{AddressFamily, Transaction};
use netlink::route::{Route, Veth};
use netlink::{Family, Socket, namespace};
use parking_lot::Mutex;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// The pod network of the host in whose namespace it was opened. Cheap to clone.
#[derive(Clone)]
pub struct PodNetwork {
    /// One caller at a time: the kernel changes links under one lock anyway.
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    config: Config,
    records: Records,
    route: Socket,
    netfilter: Socket,
    bridge: u32,
}

impl PodNetwork {
    /// Makes what all sandboxes share, or takes what is there.
    pub fn open(config: Config) -> Result<PodNetwork, PodNetworkError> {
        let records = Records::open(&config.state)?;
        let mut route = Socket::open(Family::Route)?;
        let bridge = route.ensure_bridge(BRIDGE, config.mtu)?;
        let netfilter = Socket::open(Family::Netfilter)?;
        let mut inner = Inner { config, records, route, netfilter, bridge };
        inner.share()?;
        Ok(PodNetwork { inner: Arc::new(Mutex::new(inner)) })
    }

    /// From now on addresses are from here; who has one keeps it. Called in the namespace in
    /// which the network was opened.
    pub fn set_pod_cidrs(&self, pod_cidrs: Vec<Cidr>) -> Result<(), PodNetworkError> {
        let mut inner = self.inner.lock();
        if inner.config.pod_cidrs == pod_cidrs {
            return Ok(());
        }
        inner.config.pod_cidrs = pod_cidrs;
        inner.share()
    }

    /// What goes there keeps its source address.
    pub fn set_cluster_cidrs(&self, cluster_cidrs: Vec<Cidr>) -> Result<(), PodNetworkError> {
        let mut inner = self.inner.lock();
        if inner.config.cluster_cidrs == cluster_cidrs {
            return Ok(());
        }
        inner.config.cluster_cidrs = cluster_cidrs;
        inner.write_rules()
    }

    pub fn pod_cidrs(&self) -> Vec<Cidr> {
        self.inner.lock().config.pod_cidrs.clone()
    }

    /// The ways to the pods of other nodes: these and no others.
    pub fn set_peers(&self, peers: &[Peer]) -> Result<(), PodNetworkError> {
        let Inner { config, route, .. } = &mut *self.inner.lock();
        peers::set(route, peers, &config.pod_cidrs, config.mtu)
    }

    /// The sandbox's addresses. Who is attached already keeps what it has.
    pub fn attach(&self, sandbox: &Sandbox) -> Result<Vec<IpAddr>, PodNetworkError> {
        self.attach_after(sandbox, |_| Ok(()))
    }

    /// The same, with something done between: the sandbox has its addresses and no link yet.
    pub fn attach_after(
        &self,
        sandbox: &Sandbox,
        prepare: impl FnOnce(&[IpAddr]) -> Result<(), PodNetworkError>,
    ) -> Result<Vec<IpAddr>, PodNetworkError> {
        let mut inner = self.inner.lock();
        let record = inner.give(sandbox)?;
        let attached = prepare(&record.addresses).and_then(|()| inner.attach(sandbox, &record));
        if attached.is_err() {
            // Half a network is none. Why it is half is what matters to the caller.
            let _ = inner.detach(&sandbox.id);
        }
        attached.map(|()| record.addresses)
    }

    /// What was never attached is detached.
    pub fn detach(&self, sandbox_id: &str) -> Result<(), PodNetworkError> {
        self.inner.lock().detach(sandbox_id)
    }

    /// Detaches all sandboxes but these: who knows what runs calls it after a restart.
    pub fn retain(&self, sandbox_ids: &[&str]) -> Result<(), PodNetworkError> {
        let mut inner = self.inner.lock();
        let gone: Vec<String> = inner
            .records
            .all()
            .map(|record| record.sandbox_id.clone())
            .filter(|id| !sandbox_ids.contains(&id.as_str()))
            .collect();
        gone.iter().try_for_each(|id| inner.detach(id))
    }

    /// All that have addresses: a sandbox's id, whose it is, its addresses.
    pub fn sandboxes(&self) -> Vec<(String, String, Vec<IpAddr>)> {
        let inner = self.inner.lock();
        let all = inner.records.all();
        all.map(|one| (one.sandbox_id.clone(), one.owner.clone(), one.addresses.clone())).collect()
    }

    /// Removes everything of ours from the calling thread's namespace, and the folder `state`.
    pub fn teardown(state: &Path) -> Result<(), PodNetworkError> {
        // Whoever still gives addresses out is stopped first.
        drop(Records::open(state)?);
        let mut route = Socket::open(Family::Route)?;
        let mut netfilter = Socket::open(Family::Netfilter)?;
        let bridge = route.link(BRIDGE)?.map(|link| link.index);
        let ports = route.links()?.into_iter().filter(|link| {
            link.master.is_some() && link.master == bridge && link.name.starts_with(LINK_PREFIX)
        });
        for port in ports {
            route.remove_link(&port.name)?;
        }
        route.remove_link(BRIDGE)?;
        peers::set(&mut route, &[], &[], 0)?;
        for (family, name) in
            AddressFamily::BOTH.into_iter().flat_map(|family| TABLES.map(|name| (family, name)))
        {
            let mut table = Transaction::new(family, name);
            table.remove_table();
            table.commit(&mut netfilter)?;
        }
        std::fs::remove_dir_all(state).map_err(|source| PodNetworkError::File {
            what: "remove",
            path: state.to_owned(),
            source,
        })
    }
}

impl Inner {
    /// Makes what all sandboxes share, as the configuration says.
    fn share(&mut self) -> Result<(), PodNetworkError> {
        let cidrs = &self.config.pod_cidrs;
        let families: Vec<_> = cidrs.iter().map(|cidr| cidr.is_ipv4()).collect();
        if families.is_empty() || families.len() > 2 || families.get(1) == families.first() {
            return Err(PodNetworkError::Cidrs);
        }
        for cidr in cidrs {
            if cidr.is_ipv4() {
                sysctl::set("ipv4/ip_forward", "1")?;
                // Answers of pods to 127.0.0.1 and a host port.
                sysctl::set(&format!("ipv4/conf/{BRIDGE}/route_localnet"), "1")?;
            } else {
                sysctl::set("ipv6/conf/all/forwarding", "1")?;
            }
            self.route.add_address(self.bridge, cidr.gateway(), cidr.prefix())?;
        }
        self.write_rules()
    }

    fn give(&mut self, sandbox: &Sandbox) -> Result<Record, PodNetworkError> {
        self.records.give(&sandbox.id, &sandbox.owner, &sandbox.ports, &self.config.pod_cidrs)
    }

    fn attach(&mut self, sandbox: &Sandbox, record: &Record) -> Result<(), PodNetworkError> {
        let name = link_name(&sandbox.id);
        let mut inside = enter(&sandbox.namespace_path, record)?;
        let (here, there) = (self.route.link(&name)?, inside.link(INTERFACE)?);
        if here.is_none() || there.is_none() {
            // Left by an attachment that was broken off, or by one to another namespace.
            self.route.remove_link(&name)?;
            let path = &sandbox.namespace_path;
            let file = File::open(path).map_err(|source| PodNetworkError::File {
                what: "open",
                path: path.clone(),
                source,
            })?;
            let (name, peer, namespace) = (name.as_str(), INTERFACE, file.as_fd());
            let (master, mtu) = (self.bridge, self.config.mtu);
            self.route.create_veth(&Veth { name, peer, namespace, master, mtu })?;
        }
        if let Some(link) = self.route.link(&name)? {
            self.route.set_hairpin(link.index)?;
            self.route.describe_link(link.index, &sandbox.owner)?;
        }
        inside_links(&mut inside, &self.config, record)?;
        if !record.ports.is_empty() {
            self.write_rules()?;
        }
        Ok(())
    }

    fn detach(&mut self, sandbox_id: &str) -> Result<(), PodNetworkError> {
        self.route.remove_link(&link_name(sandbox_id))?;
        // The address is free only now that nobody has it.
        let record = self.records.take_back(sandbox_id)?;
        match record {
            Some(record) if !record.ports.is_empty() => self.write_rules(),
            _ => Ok(()),
        }
    }

    fn write_rules(&mut self) -> Result<(), PodNetworkError> {
        for family in AddressFamily::BOTH {
            let ports = rules::host_ports(self.records.all(), family)?;
            rules::table(&self.config, family, &ports).commit(&mut self.netfilter)?;
        }
        Ok(())
    }
}

/// A socket in the sandbox's namespace, which is made ready for links.
fn enter(path: &Path, record: &Record) -> Result<Socket, PodNetworkError> {
    let ipv4 = record.addresses.iter().any(IpAddr::is_ipv4);
    namespace::within(path, move || {
        // The host sends a pod's packets to a neighbour back out of the bridge, and would tell the
        // pod of the shorter way, which passes by the rules.
        if ipv4 {
            sysctl::set("ipv4/conf/all/accept_redirects", "0")?;
            sysctl::set("ipv4/conf/default/accept_redirects", "0")?;
        }
        if record.addresses.iter().any(IpAddr::is_ipv6) {
            sysctl::set("ipv6/conf/all/accept_redirects", "0")?;
            sysctl::set("ipv6/conf/default/accept_redirects", "0")?;
        }
        Ok(Socket::open(Family::Route)?)
    })?
}

/// Loopback, the pod's own addresses, and the way out.
fn inside_links(
    inside: &mut Socket,
    config: &Config,
    record: &Record,
) -> Result<(), PodNetworkError> {
    for name in ["lo", INTERFACE] {
        if let Some(link) = inside.link(name)? {
            inside.set_link_up(link.index)?;
        }
    }
    let Some(link) = inside.link(INTERFACE)?.map(|link| link.index) else { return Ok(()) };
    for address in &record.addresses {
        let Some(cidr) = config.pod_cidrs.iter().find(|cidr| cidr.contains(*address)) else {
            continue;
        };
        let (whole, any): (u8, IpAddr) = match address {
            IpAddr::V4(_) => (32, Ipv4Addr::UNSPECIFIED.into()),
            IpAddr::V6(_) => (128, Ipv6Addr::UNSPECIFIED.into()),
        };
        let gateway = cidr.gateway();
        inside.add_address(link, *address, whole)?;
        inside.set_route(&Route { destination: (gateway, whole), gateway: None, link })?;
        inside.set_route(&Route { destination: (any, 0), gateway: Some(gateway), link })?;
    }
    Ok(())
}

const LINK_PREFIX: &str = "skiff";

/// A link's name has at most 15 letters: of the sandbox's id it is a hash (FNV-1a).
fn link_name(sandbox_id: &str) -> String {
    let hash = sandbox_id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{LINK_PREFIX}{:010x}", hash >> 24)
}
