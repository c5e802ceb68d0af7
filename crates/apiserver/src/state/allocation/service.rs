//! What a service has of the cluster's: addresses of its families, node ports, a health-check port.
use super::{Claims, address, port};
use crate::server::ApiServer;
use api::field::{BadValue, Error, Path};
use api::group::GroupKind;
use api::rules::{families, keep_ports};
use api::status::Status;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};
use store::Key;

pub async fn settle(
    api: &ApiServer,
    service: &mut Value,
    old: Option<&Value>,
) -> Result<Claims, Status> {
    if let Some(old) = old {
        keep_ports(&mut service["spec"], &old["spec"]);
    }
    let mut claims = Claims::default();
    addresses(api, service, old, &mut claims).await?;
    ports(api, service, old, &mut claims).await?;
    let now: BTreeSet<Key> = held(service).into_iter().collect();
    let before = old.map(held).unwrap_or_default();
    claims.free = before.into_iter().filter(|key| !now.contains(key)).collect();
    Ok(claims)
}

/// The keys of everything that a service has.
pub fn held(service: &Value) -> Vec<Key> {
    let addresses = cluster_ips(service).into_iter().filter(|ip| ip != "None" && !ip.is_empty());
    let mut keys: Vec<Key> = addresses.map(|ip| address::key(&ip)).collect();
    keys.extend(node_ports(service).into_iter().map(port::key));
    keys
}

fn word<'v>(service: &'v Value, field: &str) -> &'v str {
    service["spec"][field].as_str().unwrap_or_default()
}

fn words(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

fn cluster_ips(service: &Value) -> Vec<String> {
    match words(&service["spec"]["clusterIPs"]) {
        none if none.is_empty() && !word(service, "clusterIP").is_empty() => {
            vec![word(service, "clusterIP").to_owned()]
        }
        all => all,
    }
}

fn node_ports(service: &Value) -> HashSet<i64> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let health = &service["spec"]["healthCheckNodePort"];
    ports
        .map(|port| &port["nodePort"])
        .chain([health])
        .filter_map(Value::as_i64)
        .filter(|port| *port > 0)
        .collect()
}

fn invalid(service: &Value, errors: &[Error]) -> Status {
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    Status::invalid(GroupKind::new("", "Service"), name, errors)
}

async fn addresses(
    api: &ApiServer,
    service: &mut Value,
    old: Option<&Value>,
    claims: &mut Claims,
) -> Result<(), Status> {
    let networks = address::networks(api).await?;
    let mut configured: Vec<&str> = Vec::new();
    for network in &networks {
        let family = if network.is_v6 { "IPv6" } else { "IPv4" };
        if !configured.contains(&family) {
            configured.push(family);
        }
    }
    let faults = families::settle(service, old, &configured);
    if !faults.is_empty() {
        return Err(invalid(service, &faults));
    }
    let named = words(&service["spec"]["ipFamilies"]);
    let mut ips = words(&service["spec"]["clusterIPs"]);
    let places = families::places(service, old);
    ips.resize(ips.len().max(places.last().map_or(0, |last| last + 1)), String::new());
    for place in places {
        let wants_v6 = named.get(place).is_some_and(|family| family == "IPv6");
        ips[place] = allocated(api, service, &networks, &ips, place, wants_v6).await?;
        claims.take.push(address::claim(&ips[place], service)?);
    }
    if let Some(first) = ips.first() {
        if word(service, "clusterIP").is_empty() {
            service["spec"]["clusterIP"] = first.as_str().into();
        }
        service["spec"]["clusterIPs"] = json!(ips);
    }
    Ok(())
}

/// The address in one place: the one that is asked for, or any.
async fn allocated(
    api: &ApiServer,
    service: &Value,
    networks: &[super::network::Network],
    ips: &[String],
    place: usize,
    wants_v6: bool,
) -> Result<String, Status> {
    let ip = &ips[place];
    if ip.is_empty() {
        let name = service["metadata"]["name"].as_str().unwrap_or_default();
        let full = || {
            let why = "range is full";
            format!("failed to allocate a serviceIP for Service {name:?}: {why}")
        };
        let chosen = address::choose(api, networks, wants_v6).await?;
        let chosen = chosen.ok_or_else(|| Status::internal_error(full()))?;
        return Ok(chosen.to_string());
    }
    let refused = |why: String| {
        let list = Path::new("spec");
        let list = list.child("clusterIPs");
        let detail = format!("failed to allocate IP {ip}: {why}");
        invalid(service, &[Error::invalid(&list, BadValue::json(&ips_shown(ips)), detail)])
    };
    let parsed = ip.parse().ok();
    if !networks.iter().any(|network| parsed.is_some_and(|ip| network.contains(ip))) {
        let range: Vec<String> = networks.iter().map(ToString::to_string).collect();
        let range = range.join(",");
        return Err(refused(format!(
            "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}"
        )));
    }
    if address::is_taken(api, ip).await? {
        return Err(refused("provided IP is already allocated".into()));
    }
    Ok(ip.clone())
}

/// What the client gave.
fn ips_shown(ips: &[String]) -> Vec<&String> {
    ips.iter().filter(|ip| !ip.is_empty()).collect()
}

async fn ports(
    api: &ApiServer,
    service: &mut Value,
    old: Option<&Value>,
    claims: &mut Claims,
) -> Result<(), Status> {
    let mine = old.map(node_ports).unwrap_or_default();
    let kind = word(service, "type").to_owned();
    let (mut given, mut seen) = (HashSet::new(), HashSet::new());
    let automatic = service["spec"]["allocateLoadBalancerNodePorts"].as_bool().unwrap_or(true);
    if kind == "NodePort" || kind == "LoadBalancer" {
        let count = service["spec"]["ports"].as_array().map_or(0, Vec::len);
        // One port number of a new service gets one node port, whatever the protocols.
        let mut by_port: HashMap<i64, i64> = HashMap::new();
        let new = service["spec"]["ports"].as_array().filter(|_| old.is_none());
        for port in new.into_iter().flatten() {
            if let (Some(number), Some(node @ 1..)) =
                (port["port"].as_i64(), port["nodePort"].as_i64())
            {
                by_port.entry(number).or_insert(node);
            }
        }
        for i in 0..count {
            let entry = &service["spec"]["ports"][i];
            let number = entry["port"].as_i64().unwrap_or(0);
            let wanted = entry["nodePort"].as_i64().unwrap_or(0);
            let protocol = entry["protocol"].as_str().unwrap_or_default().to_owned();
            if wanted != 0 && old.is_some() && !seen.insert((protocol.clone(), wanted)) {
                // A fault of the server to upstream, on updates.
                let message = format!("duplicate nodePort: {{{protocol} {wanted}}}");
                return Err(Status { code: 500, message, ..Status::default() });
            }
            if wanted == 0 && kind == "LoadBalancer" && !automatic {
                continue;
            }
            let node_port = match (wanted, by_port.get(&number)) {
                (0, Some(known)) => *known,
                (0, None) => port::choose(api, &given).await?.ok_or_else(full)?,
                (wanted, _) => wanted,
            };
            if wanted != 0 && !mine.contains(&wanted) && !given.contains(&wanted) {
                check_port(api, service, i, wanted).await?;
            }
            if !mine.contains(&node_port) && given.insert(node_port) {
                claims.take.push(port::claim(node_port, service));
            }
            if old.is_none() {
                by_port.insert(number, node_port);
            }
            service["spec"]["ports"][i]["nodePort"] = node_port.into();
        }
    }
    if kind == "LoadBalancer" && word(service, "externalTrafficPolicy") == "Local" {
        let wanted = service["spec"]["healthCheckNodePort"].as_i64().unwrap_or(0);
        let health = match wanted {
            0 => port::choose(api, &given).await?.ok_or_else(full)?,
            wanted => wanted,
        };
        if !mine.contains(&health) {
            if wanted != 0 && port::is_taken(api, wanted).await? {
                return Err(Status::internal_error(format!(
                    "failed to allocate requested HealthCheck NodePort {wanted}: provided port is already allocated"
                )));
            }
            claims.take.push(port::claim(health, service));
        }
        service["spec"]["healthCheckNodePort"] = health.into();
    }
    Ok(())
}

fn full() -> Status {
    Status::internal_error("failed to allocate a nodePort: range is full")
}

async fn check_port(api: &ApiServer, service: &Value, i: usize, wanted: i64) -> Result<(), Status> {
    let (spec, list) = (Path::new("spec"), "ports");
    let ports = spec.child(list);
    let entry = ports.index(i);
    let path = entry.child("nodePort");
    let detail = if !port::RANGE.contains(&wanted) {
        let (low, high) = (port::RANGE.start(), port::RANGE.end());
        format!("provided port is not in the valid range. The range of valid ports is {low}-{high}")
    } else if port::is_taken(api, wanted).await? {
        "provided port is already allocated".into()
    } else {
        return Ok(());
    };
    Err(invalid(service, &[Error::invalid(&path, wanted, detail)]))
}
