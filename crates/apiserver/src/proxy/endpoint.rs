//! What pods and services answer themselves.
use super::{Location, Tls, split};
use crate::objects;
use crate::request::Call;
use crate::resources::ApiServer;
use api::kinds::find_kind;
use api::status::Status;
use serde_json::Value;
use std::net::IpAddr;

pub async fn pod(api: &ApiServer, call: &Call) -> Result<Location, Status> {
    let invalid = || Status::bad_request(format!("invalid pod request {:?}", call.name));
    let (https, name, port) = split(&call.name).ok_or_else(invalid)?;
    let pod = objects::get(api, call.resource, &call.namespace, name).await?;
    let port = match port {
        "" => first_port(&pod).unwrap_or(if https { 443 } else { 80 }),
        port => port.parse().map_err(|_| invalid())?,
    };
    let address = pod["status"]["podIPs"][0]["ip"].as_str().or(pod["status"]["podIP"].as_str());
    location(address.unwrap_or_default(), port, https)
}

fn first_port(pod: &Value) -> Option<u16> {
    let containers = pod["spec"]["containers"].as_array()?;
    let port = containers.iter().find_map(|c| c["ports"][0]["containerPort"].as_u64())?;
    u16::try_from(port).ok()
}

/// A ready endpoint of the service, any of them.
pub async fn service(api: &ApiServer, call: &Call) -> Result<Location, Status> {
    let invalid = || Status::bad_request(format!("invalid service request {:?}", call.name));
    let (https, name, port) = split(&call.name).ok_or_else(invalid)?;
    let mut port = port.to_owned();
    if let Ok(number) = port.parse::<i64>() {
        let service = objects::get(api, call.resource, &call.namespace, name).await?;
        let ports = service["spec"]["ports"].as_array().map_or(&[][..], Vec::as_slice);
        let found = ports.iter().find(|port| port["port"].as_i64() == Some(number));
        let Some(found) = found else {
            return Err(Status::service_unavailable(format!(
                "no service port {number} found for service {name:?}"
            )));
        };
        port = found["name"].as_str().unwrap_or_default().to_owned();
    }
    let slices = find_kind("discovery.k8s.io/v1", "EndpointSlice").expect("slices are a kind");
    let mut ready: Vec<(String, u16)> = Vec::new();
    for slice in objects::readable(api, slices, &call.namespace).await? {
        if slice["metadata"]["labels"]["kubernetes.io/service-name"] == name {
            collect(&slice, &port, &mut ready);
        }
    }
    if ready.is_empty() {
        return Err(Status::service_unavailable(format!(
            "no endpoints available for service {name:?}"
        )));
    }
    let (address, port) = &ready[fastrand::usize(..ready.len())];
    location(address, *port, https)
}

/// The ready endpoints of a slice that are pods: the server vouches for no other address.
fn collect(slice: &Value, port_name: &str, ready: &mut Vec<(String, u16)>) {
    let ports = slice["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let named = |port: &&Value| port["name"].as_str().unwrap_or_default() == port_name;
    let Some(port) = ports.iter().find(named).and_then(|port| port["port"].as_u64()) else {
        return;
    };
    let Ok(port) = u16::try_from(port) else { return };
    for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
        let is_pod = endpoint["targetRef"]["kind"] == "Pod"
            && endpoint["targetRef"]["namespace"] == slice["metadata"]["namespace"];
        let is_ready = endpoint["conditions"]["ready"].as_bool().unwrap_or(true);
        if let (true, true, Some(address)) = (is_pod, is_ready, endpoint["addresses"][0].as_str()) {
            ready.push((address.to_owned(), port));
        }
    }
}

/// An address of the pod network; never one of the server's own machine.
fn location(address: &str, port: u16, https: bool) -> Result<Location, Status> {
    let allowed = address.parse::<IpAddr>().is_ok_and(|ip| {
        let link_local = match ip {
            IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        !(ip.is_loopback() || ip.is_multicast() || ip.is_unspecified() || link_local)
    });
    if !allowed {
        return Err(Status::bad_request("address not allowed"));
    }
    let tls = https.then_some(Tls::Unverified);
    Ok(Location { tls, host: address.to_owned(), port, path: String::new() })
}
