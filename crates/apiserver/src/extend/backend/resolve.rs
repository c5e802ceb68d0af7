//! Where a service is: at the addresses of its ready endpoints, as upstream has it with
//! `--enable-aggregator-routing`. No proxy has to run for it.
//!
//! A service whose endpoints nobody keeps is reached at its own address. An endpoint on this machine's
//! loopback or wire is none: whoever writes endpoints has no business there.
use super::{address, slices_of};
use crate::server::ApiServer;
use crate::state::objects;
use api::group::GroupResource;
use api::kinds::find_kind;
use api::status::Status;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};

/// Which addresses a service may have: those that the server connects to for others.
#[derive(Default)]
pub struct Allowed {
    /// Tests have their services on this machine.
    #[cfg(test)]
    pub anywhere: std::sync::atomic::AtomicBool,
}

impl Allowed {
    fn check(&self, address: IpAddr) -> Result<(), Status> {
        #[cfg(test)]
        if self.anywhere.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(());
        }
        if address::is_allowed(address) { Ok(()) } else { Err(address::not_allowed()) }
    }
}

/// The addresses of a service's port, in the order in which they are to be tried.
pub async fn resolve(
    api: &ApiServer,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<Vec<SocketAddr>, Status> {
    let services = find_kind("v1", "Service").expect("services are a kind");
    let service = objects::get(api, services, namespace, name).await.map_err(|status| {
        match status.is_not_found() {
            // Named as upstream's lister does, which says it in the singular.
            true => Status::not_found(GroupResource::new("", "service"), name),
            false => status,
        }
    })?;
    let allowed = &api.extend().backends.allowed;
    if service["spec"]["type"] == "ExternalName" {
        let host = service["spec"]["externalName"].as_str().unwrap_or_default();
        return address::resolve(host, port).await;
    }
    let port_name = port_name(&service, port)?;
    let slices = slices_of(api, namespace, name).await?;
    let found = match slices.is_empty() {
        true => own_address(&service, port).into_iter().collect(),
        false => ready(&service, &slices, port_name),
    };
    if found.is_empty() {
        return Err(none_available(name));
    }
    for address in &found {
        allowed.check(address.ip())?;
    }
    Ok(found)
}

pub fn none_available(name: &str) -> Status {
    Status::service_unavailable(format!("no endpoints available for service {name:?}"))
}

fn port_name(service: &Value, port: u16) -> Result<&str, Status> {
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let found = ports.find(|found| found["port"].as_u64() == Some(port.into()));
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    let found = found.ok_or_else(|| {
        Status::service_unavailable(format!("no service port {port} found for service {name:?}"))
    })?;
    Ok(found["name"].as_str().unwrap_or_default())
}

/// The address that proxies serve it at.
fn own_address(service: &Value, port: u16) -> Option<SocketAddr> {
    let address = service["spec"]["clusterIP"].as_str()?.parse().ok()?;
    Some(SocketAddr::new(address, port))
}

/// The ready endpoints that have the port: in any order, but those of the service's own family first.
fn ready(service: &Value, slices: &[Value], port_name: &str) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for slice in slices {
        let mut ports = slice["ports"].as_array().into_iter().flatten();
        let port = ports.find(|port| port["name"].as_str().unwrap_or_default() == port_name);
        let port = port.and_then(|port| u16::try_from(port["port"].as_u64()?).ok());
        let Some(port) = port else { continue };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let address = endpoint["addresses"][0].as_str().and_then(|text| text.parse().ok());
            if endpoint["conditions"]["ready"] != false
                && let Some(address) = address
            {
                found.push(SocketAddr::new(address, port));
            }
        }
    }
    fastrand::shuffle(&mut found);
    let wants_v6 = service["spec"]["ipFamilies"][0] == "IPv6";
    found.sort_by_key(|address| address.is_ipv6() != wants_v6);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ready_endpoints_of_the_port_count_and_the_first_family_comes_first() {
        let service = json!({
            "metadata": { "name": "web" },
            "spec": { "ipFamilies": ["IPv6"], "clusterIP": "10.96.0.9",
                "ports": [{ "name": "a", "port": 443 }, { "name": "b", "port": 80 }] },
        });
        let slice = |port: &str, address: &str, ready: Value| {
            json!({ "ports": [{ "name": port, "port": 8443 }],
                "endpoints": [{ "addresses": [address], "conditions": { "ready": ready } }] })
        };
        let slices = [
            slice("a", "10.0.0.1", json!(true)),
            slice("a", "fd00::1", json!(null)),
            slice("a", "10.0.0.2", json!(false)),
            slice("b", "10.0.0.3", json!(true)),
        ];
        let name = port_name(&service, 443).expect("a port");
        let found: Vec<String> =
            ready(&service, &slices, name).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["[fd00::1]:8443", "10.0.0.1:8443"]);
        let missing = port_name(&service, 1).expect_err("no such port");
        assert_eq!(missing.message, "no service port 1 found for service \"web\"");
        let own = own_address(&service, 443).map(|address| address.to_string());
        assert_eq!(own.as_deref(), Some("10.96.0.9:443"));
    }
}
