//! Sandboxes come and go.
use crate::peers::{self, Encryption, Peer, Unreached};
use crate::records::{Record, Records};
use crate::sources::{self, Sources};
use crate::{
    BRIDGE, Bandwidth, Cidr, Config, EGRESS_PREFIX, INTERFACE, LINK_PREFIX, PodNetworkError,
    Sandbox, TABLE, TABLES, bandwidth, egress_name, link_name, neighbours, rules, sysctl,
};
use netlink::nftables::{AddressFamily, Transaction};
use netlink::route::{Route, Veth};
use netlink::tunnel::{Mac, Neighbour};
use netlink::{Family, Socket, namespace};
use parking_lot::Mutex;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// A bridge is alone on its node: all may have the same.
const BRIDGE_MAC: Mac = [2, 0x5f, 0x5f, 0, 0, 1];

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
    /// The bridge's own, which pods remember.
    mac: Mac,
    sources: Sources,
    /// Where what goes to other nodes' pods is encrypted.
    encryption: Option<Encryption>,
    /// What was told of last.
    unreached: Unreached,
}

impl PodNetwork {
    /// Makes what all sandboxes share, or takes what is there.
    pub fn open(config: Config) -> Result<PodNetwork, PodNetworkError> {
        let records = Records::open(&config.state)?;
        PodNetwork::with(config, records)
    }

    /// The same, after whoever holds it now: of programs that each attach one sandbox.
    pub fn open_in_turn(config: Config) -> Result<PodNetwork, PodNetworkError> {
        let records = Records::open_in_turn(&config.state)?;
        PodNetwork::with(config, records)
    }

    fn with(config: Config, records: Records) -> Result<PodNetwork, PodNetworkError> {
        let mut route = Socket::open(Family::Route)?;
        let before = route.link(BRIDGE)?.and_then(|link| link.mac);
        let bridge = route.ensure_bridge(BRIDGE, config.mtu)?;
        // Pods remember it. One that followed the ports, as bridges' do, would go with a pod.
        let mac = before.unwrap_or(BRIDGE_MAC);
        route.set_mac(bridge, mac)?;
        let netfilter = Socket::open(Family::Netfilter)?;
        let sources = Sources::new(mac);
        let encryption = config.key.clone().map(Encryption::open).transpose()?;
        if let Some(encryption) = &encryption {
            encryption.close(&mut route, &config)?;
        }
        let unreached = Unreached::new();
        let mut inner = Inner {
            config,
            records,
            route,
            netfilter,
            bridge,
            mac,
            sources,
            encryption,
            unreached,
        };
        inner.share()?;
        neighbours::set(&mut inner.route, bridge, inner.records.all())?;
        inner.sources.write(&mut inner.netfilter, inner.records.all());
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
        let Inner { config, route, encryption, unreached, .. } = &mut *self.inner.lock();
        let now = peers::set(route, encryption.as_mut(), peers, config)?;
        for (node, reason) in now.iter().filter(|(node, why)| unreached.get(*node) != Some(*why)) {
            tracing::warn!(node, reason, "pods of another node are not reached");
        }
        *unreached = now;
        Ok(())
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

    /// Makes good what somebody did to our rules; whether there was anything.
    pub fn repair(&self) -> Result<bool, PodNetworkError> {
        let mut inner = self.inner.lock();
        let Inner { config, records, netfilter, sources, .. } = &mut *inner;
        let mut is_whole = sources.hold(netfilter, records.all())?;
        for family in AddressFamily::BOTH {
            let ports = rules::host_ports(records.all(), family)?;
            let table = rules::table(config, family, &ports);
            is_whole &= match config
                .pod_cidrs
                .iter()
                .any(|cidr| family == AddressFamily::of(cidr.address()))
            {
                true => table.holds(netfilter)?,
                false => netfilter.table(family, TABLE)?.is_none(),
            };
        }
        if !is_whole {
            inner.write_rules()?;
            let Inner { records, netfilter, sources, .. } = &mut *inner;
            sources.write(netfilter, records.all());
        }
        Ok(!is_whole)
    }

    /// Whose sandbox has an address (`namespace/name`); nobody's, too, while somebody is being attached.
    pub fn owner_of(&self, address: IpAddr) -> Option<String> {
        let inner = self.inner.try_lock()?;
        let mut all = inner.records.all();
        all.find(|one| one.addresses.contains(&address)).map(|one| one.owner.clone())
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
        let egress = route.links()?.into_iter().filter(|link| link.name.starts_with(EGRESS_PREFIX));
        for link in egress {
            route.remove_link(&link.name)?;
        }
        sources::remove(&mut netfilter);
        route.remove_link(BRIDGE)?;
        peers::remove(&mut route)?;
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
        // Before the pod's end is up, so before its first frame.
        let mac = inside.link(INTERFACE)?.and_then(|link| link.mac);
        if let Some(mac) = mac {
            self.know(&sandbox.id, mac)?;
            neighbours::add(&mut self.route, self.bridge, &record.addresses, mac)?;
        }
        if let Some(link) = self.route.link(&name)? {
            if let Some(mac) = mac {
                // A pod that only listens is forgotten otherwise, and what is for it goes to all.
                self.route.set_port_mac(link.index, mac)?;
            }
            self.route.set_hairpin(link.index)?;
            self.route.describe_link(link.index, &sandbox.owner)?;
            self.limit(link.index, &sandbox.id, sandbox.bandwidth)?;
        }
        inside_links(&mut inside, &self.config, self.mac, record)?;
        if !record.ports.is_empty() {
            self.write_rules()?;
        }
        Ok(())
    }

    /// The sandbox's link has this MAC: it may send with it.
    fn know(&mut self, sandbox_id: &str, mac: Mac) -> Result<(), PodNetworkError> {
        let before = self.records.get(sandbox_id).map(|record| record.mac);
        let Some(before) = before.filter(|before| *before != Some(mac)) else { return Ok(()) };
        self.records.set_mac(sandbox_id, mac)?;
        let Inner { records, netfilter, sources, .. } = self;
        match (before, records.get(sandbox_id)) {
            (None, Some(record)) => sources.add(netfilter, record, records.all()),
            _ => sources.write(netfilter, records.all()),
        }
        Ok(())
    }

    /// How fast the sandbox may be: what its link on the host sends is what the sandbox receives.
    fn limit(
        &mut self,
        link: u32,
        sandbox_id: &str,
        Bandwidth { ingress, egress }: Bandwidth,
    ) -> Result<(), PodNetworkError> {
        if let Some(bits) = ingress {
            self.route.shape(link, bits, bandwidth::burst(bits))?;
        }
        if let Some(bits) = egress {
            let through = self.route.ensure_ifb(&egress_name(sandbox_id), self.config.mtu)?;
            self.route.shape(through, bits, bandwidth::burst(bits))?;
            self.route.redirect(link, through)?;
        }
        Ok(())
    }

    fn detach(&mut self, sandbox_id: &str) -> Result<(), PodNetworkError> {
        self.route.remove_link(&link_name(sandbox_id))?;
        self.route.remove_link(&egress_name(sandbox_id))?;
        // The address is free only now that nobody has it.
        let Some(record) = self.records.take_back(sandbox_id)? else { return Ok(()) };
        if record.mac.is_some() {
            neighbours::remove(&mut self.route, self.bridge, &record)?;
            let Inner { records, netfilter, sources, .. } = self;
            sources.remove(netfilter, &record, records.all());
        }
        match record.ports.is_empty() {
            true => Ok(()),
            false => self.write_rules(),
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
        // A way that is narrower than the link, and where nobody says so, is found out. The setting is of both
        // families; who may not write it goes without.
        let _ = sysctl::set("ipv4/tcp_mtu_probing", "1");
        Ok(Socket::open(Family::Route)?)
    })?
}

/// Loopback, the pod's own addresses, and the way out.
fn inside_links(
    inside: &mut Socket,
    config: &Config,
    bridge: Mac,
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
        inside.set_neighbour(link, &Neighbour { address: gateway, mac: bridge })?;
        inside.set_route(&Route { destination: (any, 0), gateway: Some(gateway), link })?;
    }
    Ok(())
}
