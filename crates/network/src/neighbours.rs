//! Who is where on the bridge is told to both sides, and nobody has to ask: the host knows the MAC of each
//! pod, and a pod that of the host, from the moment it has a link.
//!
//! To ask takes time, and may fail. The host cannot look for an IPv6 neighbour while its own link-local
//! address is being checked for duplicates, which takes one or two seconds after the bridge's first port came
//! up, longer on a busy machine: after three seconds it gives up, and tells a pod that there is no route to
//! its neighbour. Nor does what is told count for the kernel's limit of neighbours (`gc_thresh3`, 1,024 of all
//! namespaces together), nor can anybody lie about it.
//!
//! Where somebody takes such an entry away, or a link goes down and up, they ask as everybody does.
use crate::PodNetworkError;
use crate::records::Record;
use netlink::Socket;
use netlink::tunnel::{Mac, Neighbour};
use std::collections::HashMap;
use std::net::IpAddr;

/// The host knows a pod's addresses.
pub fn add(
    route: &mut Socket,
    bridge: u32,
    addresses: &[IpAddr],
    mac: Mac,
) -> Result<(), PodNetworkError> {
    for address in addresses {
        route.set_neighbour(bridge, &Neighbour { address: *address, mac })?;
    }
    Ok(())
}

/// A pod is gone.
pub fn remove(route: &mut Socket, bridge: u32, record: &Record) -> Result<(), PodNetworkError> {
    let Some(mac) = record.mac else { return Ok(()) };
    for address in &record.addresses {
        route.remove_neighbour(bridge, &Neighbour { address: *address, mac })?;
    }
    Ok(())
}

/// The host knows these pods and no others, whatever the last process left.
pub fn set<'a>(
    route: &mut Socket,
    bridge: u32,
    records: impl Iterator<Item = &'a Record>,
) -> Result<(), PodNetworkError> {
    let wanted: HashMap<IpAddr, Mac> = records
        .filter_map(|record| Some((&record.addresses, record.mac?)))
        .flat_map(|(addresses, mac)| addresses.iter().map(move |address| (*address, mac)))
        .collect();
    let there = route.neighbours(bridge)?;
    for gone in there.iter().filter(|one| !wanted.contains_key(&one.address)) {
        route.remove_neighbour(bridge, gone)?;
    }
    let there: HashMap<IpAddr, Mac> = there.iter().map(|one| (one.address, one.mac)).collect();
    for (address, mac) in wanted {
        if there.get(&address) != Some(&mac) {
            route.set_neighbour(bridge, &Neighbour { address, mac })?;
        }
    }
    Ok(())
}
