//! What pods and services answer themselves.
use super::{Location, Tls, split};
use crate::call::Call;
use crate::extend::backend::address;
use crate::extend::backend::slices_of;
use crate::server::ApiServer;
use crate::state::objects;
use api::kinds::find_kind;
use api::status::Status;
use serde_json::Value;

pub async fn pod(api: &ApiServer, call: &Call) -> Result<Location, Status> {
    let invalid = || Status::bad_request(format!("invalid pod request {:?}", call.name));
    let (https, name, port) = split(&call.name).ok_or_else(invalid)?;
    let pod = objects::get(api, &call.resource, &call.namespace, name).await?;
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
        let service = objects::get(api, &call.resource, &call.namespace, name).await?;
        let ports = service["spec"]["ports"].as_array().map_or(&[][..], Vec::as_slice);
        let found = ports.iter().find(|port| port["port"].as_i64() == Some(number));
        let Some(found) = found else {
            return Err(Status::service_unavailable(format!(
                "no service port {number} found for service {name:?}"
            )));
        };
        port = found["name"].as_str().unwrap_or_default().to_owned();
    }
    let mut ready: Vec<(String, u16)> = Vec::new();
    let slices = slices_of(api, &call.namespace, name).await?;
    let pods = find_kind("v1", "Pod").expect("pods are a kind");
    let pods = match slices.is_empty() {
        true => Vec::new(),
        false => objects::readable(api, pods, &call.namespace).await?,
    };
    for slice in &slices {
        collect(slice, &port, &pods, &mut ready);
    }
    if ready.is_empty() {
        return Err(Status::service_unavailable(format!(
            "no endpoints available for service {name:?}"
        )));
    }
    let (address, port) = &ready[fastrand::usize(..ready.len())];
    location(address, *port, https)
}

/// The ready endpoints of a slice that are pods of its namespace, at the address that these have: the
/// server vouches for no other, whatever somebody wrote into a slice.
fn collect(slice: &Value, port_name: &str, pods: &[Value], ready: &mut Vec<(String, u16)>) {
    let ports = slice["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let named = |port: &&Value| port["name"].as_str().unwrap_or_default() == port_name;
    let Some(port) = ports.iter().find(named).and_then(|port| port["port"].as_u64()) else {
        return;
    };
    let Ok(port) = u16::try_from(port) else { return };
    for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
        let (target, address) = (&endpoint["targetRef"], &endpoint["addresses"][0]);
        let is_here =
            target["kind"] == "Pod" && target["namespace"] == slice["metadata"]["namespace"];
        let has_it = |pod: &Value| {
            let addresses = pod["status"]["podIPs"].as_array().into_iter().flatten();
            pod["metadata"]["name"] == target["name"]
                && addresses.into_iter().any(|ip| ip["ip"] == *address)
        };
        let is_ready = endpoint["conditions"]["ready"].as_bool().unwrap_or(true);
        if let (true, true, Some(address)) = (is_here, is_ready, address.as_str())
            && pods.iter().any(has_it)
        {
            ready.push((address.to_owned(), port));
        }
    }
}

/// An address of the pod network; never one of the server's own machine.
fn location(address: &str, port: u16, https: bool) -> Result<Location, Status> {
    match address.parse().is_ok_and(address::is_allowed) {
        true => Ok(Location::new(https.then_some(Tls::Unverified), address, port)),
        false => Err(address::not_allowed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_endpoint_counts_if_it_is_the_pods_own_address() {
        let pods = [
            json!({ "metadata": { "name": "p" }, "status": { "podIPs": [{ "ip": "10.0.0.1" }] } }),
        ];
        let slice = |target: Value, address: &str| {
            json!({ "metadata": { "namespace": "a" }, "ports": [{ "port": 80 }],
                "endpoints": [{ "addresses": [address], "targetRef": target }] })
        };
        let pod =
            |name: &str, place: &str| json!({ "kind": "Pod", "name": name, "namespace": place });
        for (target, address, counts) in [
            (pod("p", "a"), "10.0.0.1", true),
            (pod("p", "a"), "10.0.0.2", false),
            (pod("q", "a"), "10.0.0.1", false),
            (pod("p", "b"), "10.0.0.1", false),
            (json!(null), "10.0.0.1", false),
            (json!({ "kind": "Node", "name": "p", "namespace": "a" }), "10.0.0.1", false),
        ] {
            let mut ready = Vec::new();
            collect(&slice(target.clone(), address), "", &pods, &mut ready);
            assert_eq!(!ready.is_empty(), counts, "{target} {address}");
        }
    }
}
