//! Which addresses each service has: a pure function of services, nodes and endpoints.
use super::Settings;
use super::facts::{NodeFacts, ServiceFacts};
use super::seen::World;
use api::names::NamespacedName;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug, Default, PartialEq)]
pub struct Wanted {
    pub uid: String,
    pub addresses: Vec<IpAddr>,
    /// Its status says so already.
    pub is_said: bool,
    /// Why there is no address that would come by itself.
    pub refusal: Option<String>,
}

/// What the status of services should say, of those that are ours to write.
pub fn plan(world: &World, settings: &Settings) -> BTreeMap<NamespacedName, Wanted> {
    let mut all = BTreeMap::new();
    let mut ours: Vec<_> = world.services.iter().filter(|(_, facts)| facts.is_ours).collect();
    // Who has something keeps it; then it is first come, first served.
    ours.sort_by_key(|(key, facts)| (facts.ingress.is_empty(), facts.created, (*key).clone()));
    let mut given = Given::default();
    for (key, facts) in ours {
        let chosen = match settings.pool.is_empty() {
            true => of_nodes(world, settings, key, facts, &mut given),
            false => of_pool(settings, key, facts, &mut given),
        };
        let (addresses, refusal) = match chosen {
            Ok(addresses) => (addresses, None),
            Err(refusal) => (Vec::new(), Some(refusal)),
        };
        let is_said = addresses == facts.ingress && !facts.has_names;
        let uid = facts.uid.clone();
        all.insert(key.clone(), Wanted { uid, addresses, is_said, refusal });
    }
    // One that is a load balancer's no more keeps no address of it.
    let left = world.services.iter();
    for (key, facts) in left.filter(|(_, facts)| facts.is_plain && !facts.ingress.is_empty()) {
        all.insert(key.clone(), Wanted { uid: facts.uid.clone(), ..Wanted::default() });
    }
    all
}

/// What services before have.
#[derive(Default)]
struct Given {
    ports: BTreeMap<(String, u16), NamespacedName>,
    addresses: BTreeMap<IpAddr, NamespacedName>,
}

/// The nodes' addresses are shared: each port of them is one service's.
fn of_nodes(
    world: &World,
    settings: &Settings,
    key: &NamespacedName,
    facts: &ServiceFacts,
    given: &mut Given,
) -> Result<Vec<IpAddr>, String> {
    for (protocol, port) in &facts.ports {
        if protocol == "TCP" && settings.reserved.contains(port) {
            return Err(format!("port {port}/TCP of the nodes is Kubernetes' own"));
        }
        if let Some(holder) = given.ports.get(&(protocol.clone(), *port)) {
            return Err(format!("port {port}/{protocol} of the nodes is {holder}'s"));
        }
    }
    given.ports.extend(facts.ports.iter().map(|port| (port.clone(), key.clone())));
    let nowhere = BTreeSet::new();
    let near = world.endpoints.get(key).unwrap_or(&nowhere);
    let nodes = || {
        world
            .nodes
            .iter()
            .filter(|(name, node)| node.is_candidate && (!facts.is_local || near.contains(*name)))
            .map(|(_, node)| node)
    };
    let mut addresses = Vec::new();
    for is_ipv4 in &facts.families {
        let of = |list: fn(&NodeFacts) -> &Vec<IpAddr>| -> Vec<IpAddr> {
            // A node's first address of a family is the one it is known by.
            let first = |node: &Arc<NodeFacts>| {
                list(node).iter().copied().find(|address| address.is_ipv4() == *is_ipv4)
            };
            nodes().filter_map(first).collect()
        };
        let external = of(|node| &node.external);
        addresses.extend(if external.is_empty() { of(|node| &node.internal) } else { external });
    }
    let mut seen = BTreeSet::new();
    addresses.retain(|address| seen.insert(*address));
    Ok(addresses)
}

/// One address of each family is the service's alone.
fn of_pool(
    settings: &Settings,
    key: &NamespacedName,
    facts: &ServiceFacts,
    given: &mut Given,
) -> Result<Vec<IpAddr>, String> {
    let pool = &settings.pool;
    let mut addresses = Vec::new();
    for is_ipv4 in &facts.families {
        let of_family = |address: &IpAddr| address.is_ipv4() == *is_ipv4;
        let is_taken = |address| given.addresses.contains_key(&address);
        let address = match facts.requested.filter(of_family) {
            Some(asked) if !pool.contains(asked) => {
                return Err(format!("the address {asked} is not of the pool"));
            }
            Some(asked) => match given.addresses.get(&asked) {
                Some(holder) => return Err(format!("the address {asked} is {holder}'s")),
                None => Some(asked),
            },
            None => {
                let mut own = facts.ingress.iter().copied().filter(of_family);
                own.find(|address| pool.contains(*address) && !is_taken(*address))
                    .or_else(|| pool.free(*is_ipv4, is_taken))
            }
        };
        let Some(address) = address else {
            let family = if *is_ipv4 { "IPv4" } else { "IPv6" };
            return Err(format!("no {family} address of the pool is free"));
        };
        given.addresses.insert(address, key.clone());
        addresses.push(address);
    }
    Ok(addresses)
}
