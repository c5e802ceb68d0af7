//! Cluster addresses: an `IPAddress` object is the claim.
use super::network::Network;
use crate::server::ApiServer;
use crate::state::identity::begin;
use crate::state::keys::{range, status_of};
use crate::state::objects;
use crate::state::stored;
use api::codec::json;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::IpAddr;
use store::{Key, RangeRequest};

/// So often a random address is tried before all that are taken are looked at.
const TRIES: usize = 32;

fn kind() -> &'static Resource {
    find_kind("networking.k8s.io/v1", "IPAddress").expect("addresses are in the registry")
}

/// The networks to choose from, as the cluster's ServiceCIDR objects say.
pub async fn networks(api: &ApiServer) -> Result<Vec<Network>, Status> {
    let cidrs = find_kind("networking.k8s.io/v1", "ServiceCIDR").expect("a kind of the registry");
    let mut networks = Vec::new();
    for cidr in objects::readable(api, cidrs, "").await? {
        if cidr["metadata"].get("deletionTimestamp").is_some() {
            continue;
        }
        let all = cidr["spec"]["cidrs"].as_array().into_iter().flatten();
        networks.extend(all.filter_map(|text| Network::parse(text.as_str()?)));
    }
    Ok(networks)
}

pub fn key(address: &str) -> Key {
    Key::from(kind().key("", address))
}

pub async fn is_taken(api: &ApiServer, address: &str) -> Result<bool, Status> {
    let found = api.store().get(&key(address)).await;
    Ok(found.map_err(|error| status_of(error, kind()))?.is_some())
}

/// A free address of a family; none when all are taken.
pub async fn choose(
    api: &ApiServer,
    networks: &[Network],
    is_v6: bool,
) -> Result<Option<IpAddr>, Status> {
    for network in networks.iter().filter(|network| network.is_v6 == is_v6) {
        let reserved = network.reserved();
        for _ in 0..TRIES {
            let address = network.address(fastrand::u128(reserved + 1..=network.size.max(1)));
            if network.size > reserved && !is_taken(api, &address.to_string()).await? {
                return Ok(Some(address));
            }
        }
        let taken = taken(api).await?;
        let numbers = (reserved + 1..=network.size).chain(1..=reserved);
        // More than that many in a row are not taken: nobody has so many services.
        let limit = taken.len() + 1;
        let free =
            numbers.take(limit.max(1)).map(|n| network.address(n)).find(|a| !taken.contains(a));
        let lower = || (1..=reserved).map(|n| network.address(n)).find(|a| !taken.contains(a));
        if let Some(address) = free.or_else(lower) {
            return Ok(Some(address));
        }
    }
    Ok(None)
}

async fn taken(api: &ApiServer) -> Result<HashSet<IpAddr>, Status> {
    let request = RangeRequest { keys_only: true, ..RangeRequest::new(range(kind(), "")) };
    let found = api.store().range(request).await.map_err(|error| status_of(error, kind()))?;
    let prefix = kind().key_prefix();
    let address =
        |key: &Key| std::str::from_utf8(key).ok()?.strip_prefix(&prefix)?.parse::<IpAddr>().ok();
    Ok(found.kvs.iter().filter_map(|kv| address(&kv.key)).collect())
}

/// The claim on an address: who has it.
pub fn claim(address: &str, service: &Value) -> Result<(Key, Bytes), Status> {
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    let mut object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": { "name": address, "labels": {
            "ipaddress.kubernetes.io/ip-family": family,
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        } },
        "spec": { "parentRef": {
            "group": "", "resource": "services",
            "namespace": service["metadata"]["namespace"], "name": service["metadata"]["name"],
        } },
    });
    begin(&mut object, Timestamp::now());
    (kind().rules.prepare_create)(kind(), &mut object);
    let object = json::canonicalize(object, kind().ty()).map_err(Status::internal_error)?.value;
    Ok((key(address), stored::encode(&object, kind())?))
}
