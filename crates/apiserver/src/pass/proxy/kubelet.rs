//! What the kubelet of a node answers: logs, exec, attach, port-forward, and the node's own pages.
use super::{Location, Tls, split};
use crate::call::Call;
use crate::call::Query;
use crate::extend::backend::address;
use crate::server::ApiServer;
use crate::state::objects;
use api::kinds::find_kind;
use api::status::Status;
use form_urlencoded::Serializer;
use serde_json::Value;

const KUBELET_PORT: u16 = 10250;
/// Parameters of a log that a kubelet reads.
const LOG_PARAMETERS: &[&str] = &[
    "follow",
    "previous",
    "timestamps",
    "sinceSeconds",
    "sinceTime",
    "tailLines",
    "limitBytes",
    "stream",
];

/// Where a pod's log is; nowhere while it has no node.
pub async fn logs(api: &ApiServer, call: &Call, query: &Query) -> Result<Option<Location>, Status> {
    let pod = objects::get(api, &call.resource, &call.namespace, &call.name).await?;
    let container = container(&pod, query.get("container"))?;
    check_log_options(query, &call.name)?;
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        return Ok(None);
    }
    let mut location = of_node(api, node).await?;
    let (namespace, pod) = (&call.namespace, &call.name);
    location.path = format!("/containerLogs/{namespace}/{pod}/{container}?{}", log_query(query));
    if query.flag("insecureSkipTLSVerifyBackend") {
        location.tls = Some(Tls::Unverified);
    }
    Ok(Some(location))
}

fn log_query(asked: &Query) -> String {
    let mut query = Serializer::new(String::new());
    for name in LOG_PARAMETERS {
        let value = asked.get(name);
        if !value.is_empty() && value != "false" {
            query.append_pair(name, value);
        }
    }
    query.finish()
}

fn check_log_options(query: &Query, pod: &str) -> Result<(), Status> {
    use api::field::{Error, Path};
    let mut errors = Vec::new();
    for (name, least) in [("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)] {
        if let Some(value) = query.number(name)?.filter(|value| *value < least) {
            let detail = match least {
                0 => "must be greater than or equal to 0",
                _ => "must be greater than 0",
            };
            errors.push(Error::invalid(&Path::new(name), value, detail));
        }
    }
    if query.has("sinceSeconds") && query.has("sinceTime") {
        let path = Path::new("");
        errors.push(Error::forbidden(
            &path,
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(api::group::GroupKind::new("", "PodLogOptions"), pod, &errors))
}

/// Where exec, attach and port-forward of a pod go.
pub async fn stream(api: &ApiServer, call: &Call, query: &str) -> Result<Location, Status> {
    let pod = objects::get(api, &call.resource, &call.namespace, &call.name).await?;
    let kind = call.subresource.map_or("", |subresource| subresource.name);
    let mut path = match kind {
        "portforward" => format!("/portForward/{}/{}", call.namespace, call.name),
        other => {
            let container = container(&pod, Query::parse(query).get("container"))?;
            format!("/{other}/{}/{}/{container}", call.namespace, call.name)
        }
    };
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        let text = format!("pod {} does not have a host assigned", call.name);
        return Err(Status::bad_request(text));
    }
    path = format!("{path}?{}", stream_query(query));
    Ok(Location { path, ..of_node(api, node).await? })
}

/// The parameters of a stream in the kubelet's words.
fn stream_query(query: &str) -> String {
    let mut out = Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let on = !matches!(&*value, "" | "false" | "0");
        let flag = match &*name {
            "stdin" => "input",
            "stdout" => "output",
            "stderr" => "error",
            "tty" => "tty",
            "command" => {
                out.append_pair("command", &value);
                continue;
            }
            "ports" => {
                out.extend_pairs(value.split(',').map(|port| ("port", port)));
                continue;
            }
            _ => continue,
        };
        if on {
            out.append_pair(flag, "1");
        }
    }
    out.finish()
}

/// A node's own pages: its kubelet's, unless another port is named. Unlike the streams of its pods,
/// which the server itself asks for, the path is the client's: not on the server's own machine.
pub async fn node(api: &ApiServer, call: &Call) -> Result<Location, Status> {
    let invalid = || Status::bad_request(format!("invalid node request {:?}", call.name));
    let (https, name, port) = split(&call.name).ok_or_else(invalid)?;
    let mut location = of_node(api, name).await?;
    if !port.is_empty() && port != location.port.to_string() {
        location.port = port.parse().map_err(|_| invalid())?;
        location.tls = https.then_some(Tls::Unverified);
        // The way leads to the kubelet alone.
        location.way = None;
    }
    if location.way.is_none() {
        location.addresses = address::resolve(&location.host, location.port).await?;
    }
    Ok(location)
}

/// The kubelet of a node.
async fn of_node(api: &ApiServer, name: &str) -> Result<Location, Status> {
    let nodes = find_kind("v1", "Node").expect("nodes are in the registry");
    let node = objects::get(api, nodes, "", name).await?;
    let host = preferred(&node["status"]["addresses"], api.kubelet_address_types())?;
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0)
        .unwrap_or(KUBELET_PORT);
    let way = api.tunnels().to(name);
    Ok(Location { way, ..Location::new(Some(Tls::Kubelet(api.kubelet_tls())), host, port) })
}

/// The address of a node of the type that is preferred most.
fn preferred<'v>(addresses: &'v Value, types: &[String]) -> Result<&'v str, Status> {
    let known = addresses.as_array().map_or(&[][..], Vec::as_slice);
    types
        .iter()
        .find_map(|wanted| known.iter().find(|address| address["type"] == **wanted))
        .and_then(|address| address["address"].as_str())
        .ok_or_else(|| {
            Status::internal_error(format!(
                "no preferred addresses found; known addresses: {}",
                Value::from(known.to_vec())
            ))
        })
}

/// The container that is meant: named, or the only one.
fn container(pod: &Value, asked: &str) -> Result<String, Status> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let names = |field: &str| {
        let all = pod["spec"][field].as_array().map_or(&[][..], Vec::as_slice);
        all.iter().filter_map(|c| c["name"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let main = names("containers");
    let all = [names("initContainers"), main.clone(), names("ephemeralContainers")].concat();
    match (asked, &main[..]) {
        ("", [only]) => Ok(only.clone()),
        ("", []) => {
            Err(Status::bad_request(format!("a container name must be specified for pod {name}")))
        }
        ("", _) => Err(Status::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        ))),
        (asked, _) if all.iter().any(|container| container == asked) => Ok(asked.to_owned()),
        (asked, _) => {
            Err(Status::bad_request(format!("container {asked} is not valid for pod {name}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_called_by_the_address_that_is_preferred() {
        let known = json!([{ "type": "Hostname", "address": "n" }, { "type": "InternalIP", "address": "10.0.0.1" }]);
        for (types, expected) in [
            ("Hostname,InternalIP", Some("n")),
            ("InternalIP,Hostname", Some("10.0.0.1")),
            ("ExternalIP,InternalIP", Some("10.0.0.1")),
            ("ExternalIP", None),
        ] {
            let types: Vec<String> = types.split(',').map(str::to_owned).collect();
            assert_eq!(preferred(&known, &types).ok(), expected, "{types:?}");
        }
    }
}
