//! What a service has of the cluster's: addresses of its families, node ports, a health-check port.
use super::{Claims, address, port};
use crate::resources::ApiServer;
use api::field::{BadValue, Error, Path};
use api::group::GroupKind;
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
        keep_allocated(service, old);
    }
    let mut claims = Claims::default();
    if word(service, "type") != "ExternalName" {
        addresses(api, service, old, &mut claims).await?;
    }
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

/// A client that leaves out what the cluster chose means to keep it.
fn keep_allocated(service: &mut Value, old: &Value) {
    let uses_addresses = |service: &Value| word(service, "type") != "ExternalName";
    if uses_addresses(service) && uses_addresses(old) {
        for field in ["clusterIP", "clusterIPs"] {
            let absent = match &service["spec"][field] {
                Value::String(text) => text.is_empty(),
                Value::Array(all) => all.is_empty(),
                _ => true,
            };
            if absent && old["spec"].get(field).is_some() && cluster_ips(service).is_empty() {
                service["spec"][field] = old["spec"][field].clone();
            }
        }
    }
    let uses_ports = |service: &Value| matches!(word(service, "type"), "NodePort" | "LoadBalancer");
    if uses_ports(service) && uses_ports(old) {
        let known: HashMap<String, Value> = old["spec"]["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|port| (port_id(port), port["nodePort"].clone()))
            .collect();
        let mut given = node_ports(service);
        for port in service["spec"]["ports"].as_array_mut().into_iter().flatten() {
            if port["nodePort"].as_i64().unwrap_or(0) == 0
                && let Some(before) = known.get(&port_id(port)).filter(|before| before.is_i64())
                && before.as_i64().is_some_and(|before| given.insert(before))
            {
                port["nodePort"] = before.clone();
            }
        }
    }
    let checks_health = |service: &Value| {
        word(service, "type") == "LoadBalancer" && word(service, "externalTrafficPolicy") == "Local"
    };
    if checks_health(service) && checks_health(old) {
        let port = &mut service["spec"]["healthCheckNodePort"];
        if port.as_i64().unwrap_or(0) == 0 {
            *port = old["spec"]["healthCheckNodePort"].clone();
        }
    }
}

fn port_id(port: &Value) -> String {
    format!("{}/{}", port["protocol"].as_str().unwrap_or("TCP"), port["port"])
}

fn invalid(service: &Value, errors: &[Error]) -> Status {
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    Status::invalid(GroupKind::new("", "Service"), name, errors)
}

fn family_of(address: &str) -> &'static str {
    if address.contains(':') { "IPv6" } else { "IPv4" }
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
    let mut ips = cluster_ips(service);
    let headless = ips.first().is_some_and(|ip| ip == "None");
    let without_selector = service["spec"]["selector"].as_object().is_none_or(|s| s.is_empty());
    if service["spec"].get("ipFamilyPolicy").is_none_or(Value::is_null) {
        let before = old.map(|old| word(old, "ipFamilyPolicy")).unwrap_or_default();
        service["spec"]["ipFamilyPolicy"] = match (before, headless && without_selector) {
            ("", true) => "RequireDualStack".into(),
            ("", false) => "SingleStack".into(),
            (before, _) => before.into(),
        };
    }
    let policy = word(service, "ipFamilyPolicy").to_owned();
    let single = policy == "SingleStack";
    if single && old.is_some_and(|old| cluster_ips(old) == ips) {
        ips.truncate(1);
        if let Some(families) = service["spec"]["ipFamilies"].as_array_mut() {
            families.truncate(1);
        }
    }
    let mut families = words(&service["spec"]["ipFamilies"]);
    let known = |family: &str| configured.contains(&family);
    let (spec, mut errors) = (Path::new("spec"), Vec::new());
    for (i, ip) in ips.iter().enumerate().skip(families.len()).filter(|(_, ip)| *ip != "None") {
        if known(family_of(ip)) {
            families.push(family_of(ip).to_owned());
        } else {
            let list = spec.child("clusterIPs");
            let detail = format!("{} is not configured on this cluster", family_of(ip));
            errors.push(Error::invalid(&list.index(i), BadValue::json(&ips), detail));
        }
    }
    let anywhere = headless && without_selector;
    if policy == "RequireDualStack" && configured.len() < 2 && !anywhere {
        let detail = "this cluster is not configured for dual-stack services";
        errors.push(Error::invalid(&spec.child("ipFamilyPolicy"), policy.as_str(), detail));
    }
    // What is no family at all is for the rules to say.
    let real = |family: &str| matches!(family, "IPv4" | "IPv6");
    let missing = |family: &str| !anywhere && real(family) && !known(family);
    for (i, family) in families.iter().enumerate().filter(|(_, family)| missing(family)) {
        let list = spec.child("ipFamilies");
        let detail = "not configured on this cluster";
        errors.push(Error::invalid(&list.index(i), family.as_str(), detail));
    }
    if !errors.is_empty() {
        return Err(invalid(service, &errors));
    }
    if families.is_empty() {
        families.extend(configured.first().map(|family| (*family).to_owned()));
    }
    if !single && families.len() == 1 && (configured.len() == 2 || anywhere) {
        let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
        families.push(other.to_owned());
    }
    service["spec"]["ipFamilies"] = json!(families);
    if headless {
        service["spec"]["clusterIP"] = "None".into();
        service["spec"]["clusterIPs"] = json!(["None"]);
        return Ok(());
    }
    if !families.iter().all(|family| real(family)) {
        return Ok(());
    }
    let mine: Vec<String> = old.map(cluster_ips).unwrap_or_default();
    ips.resize(families.len(), String::new());
    for (ip, family) in ips.clone().iter().zip(&families) {
        if mine.contains(ip) && !ip.is_empty() {
            continue;
        }
        let list = spec.child("clusterIPs");
        let refused = |why: String| {
            let detail = format!("failed to allocate IP {ip}: {why}");
            invalid(service, &[Error::invalid(&list, BadValue::json(&ips_shown(&ips)), detail)])
        };
        let chosen = if ip.is_empty() {
            match address::choose(api, &networks, family == "IPv6").await? {
                Some(address) => address.to_string(),
                None => {
                    let name = service["metadata"]["name"].as_str().unwrap_or_default();
                    return Err(Status::internal_error(format!(
                        "failed to allocate a serviceIP for Service {name:?}: range is full"
                    )));
                }
            }
        } else {
            let parsed = ip.parse().ok();
            let inside = |n: &&super::network::Network| parsed.is_some_and(|ip| n.contains(ip));
            if !networks.iter().any(|network| inside(&network)) {
                let range: Vec<String> = networks.iter().map(ToString::to_string).collect();
                return Err(refused(format!(
                    "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {}",
                    range.join(",")
                )));
            }
            if address::is_taken(api, ip).await? {
                return Err(refused("provided IP is already allocated".into()));
            }
            ip.clone()
        };
        claims.take.push(address::claim(&chosen, service)?);
        if let Some(place) = ips.iter().zip(&families).position(|(i, f)| i == ip && f == family) {
            ips[place] = chosen;
        }
    }
    service["spec"]["clusterIP"] = ips[0].clone().into();
    service["spec"]["clusterIPs"] = json!(ips);
    Ok(())
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
    let mut given = HashSet::new();
    let automatic = service["spec"]["allocateLoadBalancerNodePorts"].as_bool().unwrap_or(true);
    if kind == "NodePort" || kind == "LoadBalancer" {
        let count = service["spec"]["ports"].as_array().map_or(0, Vec::len);
        // One port number of the service gets one node port, whatever the protocols.
        let mut by_port: HashMap<i64, i64> = HashMap::new();
        for port in service["spec"]["ports"].as_array().into_iter().flatten() {
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
            by_port.insert(number, node_port);
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
