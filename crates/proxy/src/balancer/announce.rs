//! Where the addresses of a pool are: each on one node, which answers for it on its link (ARP, NDP).
//!
//! Every node decides alone, from what all of them see: of those that may have a service's address, the
//! one that a hash of both puts first. So a node that comes or goes moves only what was its own. The
//! kernel answers for an address that a link has; neighbours that knew another node are told at once.
//! What comes to the node is led on by the rules of services, as everywhere.
use super::Pool;
use super::seen::{Seen, World, follow};
use api::codec::DecodeError;
use api::object::{Keep, Object};
use api::selector::field::Selector;
use client::source::{Collection, Source};
use client::{ApiResource, Context, Informer, Informers};
use k8s_openapi::api::core::v1::ConfigMap;
use netlink::addresses::{Address, announce};
use netlink::{Family, NetlinkError, Socket};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Where the pool is written down for all nodes: `data.pool` of a ConfigMap.
pub const NAMESPACE: &str = "kube-system";
pub const CONFIG_MAP: &str = "servicelb";
pub const KEY: &str = "pool";

/// In whose name the addresses are (`ifa_proto`): the same number as our routes'.
const OURS: u8 = 0x5f;
const RETRY: Duration = Duration::from_secs(1);
/// Somebody may have taken an address away, and links come and go.
const LOOK: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq)]
struct PoolFacts(Pool);

impl Keep for PoolFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<PoolFacts>, DecodeError> {
        let map: ConfigMap = object.decode()?;
        let text = map.data.and_then(|mut data| data.remove(KEY)).unwrap_or_default();
        let pool = text.parse().unwrap_or_else(|error| {
            tracing::error!(%error, "the pool of load balancers is not understood: there is none");
            Pool::default()
        });
        Ok(Arc::new(PoolFacts(pool)))
    }
}

/// The addresses of the pool that a node answers for.
pub fn own(world: &World, pool: &Pool, node_name: &str) -> BTreeSet<IpAddr> {
    let mut own = BTreeSet::new();
    for (key, service) in world.services.iter().filter(|(_, service)| service.is_ours) {
        let near = world.endpoints.get(key);
        let may = |name: &str| !service.is_local || near.is_some_and(|nodes| nodes.contains(name));
        let candidates = || {
            let nodes = world.nodes.iter().filter(|(_, node)| node.is_candidate);
            nodes.map(|(name, _)| name.as_str()).filter(|name| may(name))
        };
        let of_pool = service.ingress.iter().filter(|address| pool.contains(**address));
        for address in of_pool {
            let first = candidates().max_by_key(|name| weight(name, *address));
            if first == Some(node_name) {
                own.insert(*address);
            }
        }
    }
    own
}

/// A hash of both (FNV-1a, and then every bit mixed with every other): the same on every node.
fn weight(node: &str, address: IpAddr) -> u64 {
    let bytes = node.bytes().chain([0]).chain(netlink::octets(address));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The links of this machine have these addresses of ours, and no others; those that are new are
/// announced.
pub fn set(socket: &mut Socket, wanted: &BTreeSet<IpAddr>) -> Result<(), NetlinkError> {
    let there = socket.addresses_of(Some(OURS))?;
    for one in there.iter().filter(|one| !wanted.contains(&one.address)) {
        socket.remove_address(one)?;
    }
    let has = |address: &IpAddr| there.iter().any(|one| one.address == *address);
    for address in wanted.iter().filter(|address| !has(address)) {
        let Some(link) = link_towards(socket, *address)? else {
            tracing::warn!(%address, "no link leads to the network of a load balancer's address");
            continue;
        };
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        socket.add_address_as(OURS, &Address { address: *address, prefix, link })?;
        let mac = socket.links()?.into_iter().find(|one| one.index == link).and_then(|one| one.mac);
        if let Some(mac) = mac {
            announce(link, mac, *address)?;
        }
    }
    Ok(())
}

/// The link on which neighbours ask for an address: the one by which it would be reached.
fn link_towards(socket: &mut Socket, address: IpAddr) -> Result<Option<u32>, NetlinkError> {
    Ok(socket.route_to(address)?.map(|route| route.link))
}

/// Takes all of our addresses away.
pub fn clear() -> Result<(), NetlinkError> {
    set(&mut Socket::open(Family::Route)?, &BTreeSet::new())
}

/// Runs until the context stops; then others answer for what was ours.
pub async fn run(
    context: Context,
    source: Arc<dyn Source>,
    node_name: String,
) -> Result<(), NetlinkError> {
    let informers = Informers::new(&context, source);
    let only = Selector::equals("metadata.name", CONFIG_MAP);
    let maps = Collection::all(ApiResource::of::<ConfigMap>()).in_namespace(NAMESPACE);
    let pools: Informer<PoolFacts> = informers.keep(maps.with_fields(only));
    let changed = Arc::new(Notify::new());
    follow(&pools, &changed);
    let seen = Seen::new(&informers, &changed);
    tokio::select! {
        () = informers.synced() => {}
        () = context.stopped() => return Ok(()),
    }
    loop {
        let pool = pools.read().iter().next().map(|(_, one)| one.0.clone());
        let wanted = match pool.filter(|pool| !pool.is_empty()) {
            Some(pool) => own(&seen.world(), &pool, &node_name),
            None => BTreeSet::new(),
        };
        let work = move || set(&mut Socket::open(Family::Route)?, &wanted);
        let pause = match tokio::task::spawn_blocking(work).await {
            Ok(Ok(())) => LOOK,
            Ok(Err(error)) => {
                tracing::error!(%error, "failed to set the addresses of load balancers: trying again");
                RETRY
            }
            Err(_) => return Ok(()),
        };
        tokio::select! {
            () = changed.notified() => {}
            () = tokio::time::sleep(pause) => {}
            () = context.stopped() => return clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::{NodeFacts, ServiceFacts};
    use super::*;
    use api::names::NamespacedName;
    use netlink::testing::isolated;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn world(nodes: &[&str], count: u8, is_local: bool) -> World {
        let mut world = World::default();
        for name in nodes {
            let node = NodeFacts { is_candidate: true, ..NodeFacts::default() };
            world.nodes.insert((*name).to_owned(), Arc::new(node));
        }
        for number in 0..count {
            let key = NamespacedName::new("default", &format!("s{number}"));
            let ingress = vec![ip(&format!("192.0.2.{}", 100 + number)), ip("198.51.100.1")];
            let service =
                ServiceFacts { is_ours: true, is_local, ingress, ..ServiceFacts::default() };
            world.services.insert(key, Arc::new(service));
        }
        world
    }

    fn own(world: &World, node: &str) -> BTreeSet<IpAddr> {
        let pool = "192.0.2.100-192.0.2.199,2001:db8::100-2001:db8::1ff".parse().unwrap();
        super::own(world, &pool, node)
    }

    #[test]
    fn every_address_of_the_pool_is_on_one_node() {
        let all = ["a", "b", "c"];
        let three = world(&all, 50, false);
        let of: Vec<_> = all.iter().map(|node| own(&three, node)).collect();
        let count: usize = of.iter().map(BTreeSet::len).sum();
        assert_eq!(count, 50);
        assert!(of.iter().all(|own| own.len() > 5), "{of:?}");
        // One that goes gives its own away, and no other moves.
        let two = world(&all[..2], 50, false);
        for (node, before) in all.iter().zip(&of).take(2) {
            assert!(own(&two, node).is_superset(before), "{node}");
        }
        // Where the source is to be kept, a node without endpoints has nothing to give.
        let mut local = world(&all, 10, true);
        assert!(all.iter().all(|node| own(&local, node).is_empty()));
        for key in local.services.keys().cloned().collect::<Vec<_>>() {
            local.endpoints.insert(key, BTreeSet::from(["c".to_owned()]));
        }
        assert_eq!(own(&local, "c").len(), 10);
        local.nodes.insert("c".to_owned(), Arc::default());
        assert_eq!(own(&local, "c").len(), 0, "it takes nothing from outside");
    }

    #[test]
    fn links_have_the_addresses_that_are_ours() {
        isolated(|| {
            let mut socket = Socket::open(Family::Route).unwrap();
            let link = socket.ensure_bridge("card0", 1500).unwrap();
            socket.add_address(link, ip("192.0.2.2"), 24).unwrap();
            socket.add_address(link, ip("2001:db8::2"), 64).unwrap();
            let both = BTreeSet::from([ip("192.0.2.100"), ip("2001:db8::100")]);
            for _ in 0..2 {
                set(&mut socket, &both).unwrap();
                let there = socket.addresses_of(Some(OURS)).unwrap();
                assert_eq!(there.iter().map(|one| one.address).collect::<BTreeSet<_>>(), both);
                assert!(there.iter().all(|one| one.link == link));
            }
            let other = BTreeSet::from([ip("192.0.2.101"), ip("203.0.113.1")]);
            set(&mut socket, &other).unwrap();
            let there = socket.addresses_of(Some(OURS)).unwrap();
            assert_eq!(there.len(), 1, "nobody leads to the other");
            clear().unwrap();
            assert_eq!(socket.addresses_of(Some(OURS)).unwrap(), []);
            assert_eq!(socket.route_to(ip("192.0.2.7")).unwrap().unwrap().link, link);
        });
    }
}
