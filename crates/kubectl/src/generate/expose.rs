//! The service of `kubectl expose`: what it serves is read from the object that is exposed.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{int_or_string, labels, overridden, put};
use crate::failure::Outcome;
use crate::flags::{Arguments, Flag, text};

pub static FLAGS: &[Flag] = &[
    text("protocol", "", "Protocol of the service; TCP if the object names none."),
    text("port", "", "Port of the service; that of the object if it is not given."),
    text("type", "", "Type of the service: ClusterIP, NodePort, LoadBalancer or ExternalName."),
    text("load-balancer-ip", "", "Address that the load balancer is to have."),
    text("selector", "", "Labels of the pods; those of the object if it is not given."),
    text("labels", "", "Labels of the service.").short('l'),
    text("target-port", "", "Name or number of the container's port."),
    text("external-ip", "", "One more address of the service."),
    text("name", "", "Name of the service; that of the object if it is not given."),
    text("session-affinity", "", "None or ClientIP."),
    text("cluster-ip", "", "Address of the service, or None."),
    text("overrides", "", "JSON that changes the object."),
    text("override-type", "merge", "How --overrides is applied: json, merge or strategic."),
];

/// The service for an object.
pub fn service(arguments: &Arguments, object: &Value) -> Outcome<Value> {
    can_be_exposed(object)?;
    let selector = match arguments.some("selector") {
        Some(selector) => labels(selector)?,
        None => selector(object).map_err(|fault| {
            format!("couldn't retrieve selectors via --selector flag or introspection: {fault}")
        })?,
    };
    let own = match arguments.some("labels") {
        Some(text) => labels(text)?,
        None => map(&object["metadata"]["labels"]),
    };
    let name = match arguments.some("name") {
        Some(name) => name.to_owned(),
        None => object["metadata"]["name"].as_str().unwrap_or_default().chars().take(63).collect(),
    };
    if selector.is_empty() {
        return Err("selector must be specified".into());
    }
    let mut spec = json!({"selector": selector});
    put(&mut spec, "ports", ports(arguments, object)?);
    put(&mut spec, "externalIPs", arguments.some("external-ip").into_iter().collect::<Vec<_>>());
    put(&mut spec, "type", arguments.text("type"));
    if arguments.text("type") == "LoadBalancer" {
        put(&mut spec, "loadBalancerIP", arguments.text("load-balancer-ip"));
    }
    match arguments.text("session-affinity") {
        "" => {}
        known @ ("None" | "ClientIP") => spec["sessionAffinity"] = known.into(),
        other => return Err(format!("unknown session affinity: {other}").into()),
    }
    put(&mut spec, "clusterIP", arguments.text("cluster-ip"));
    let mut service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"loadBalancer": {}},
    });
    put(&mut service["metadata"], "labels", json!(own));
    overridden(service, arguments)
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

fn can_be_exposed(object: &Value) -> Outcome {
    if matches!(
        kind(object),
        "ReplicationController" | "Service" | "Pod" | "Deployment" | "ReplicaSet"
    ) {
        return Ok(());
    }
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group = version.split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
    Err(format!("cannot expose a {}{group}", kind(object)).into())
}

fn map(value: &Value) -> BTreeMap<String, String> {
    let fields = value.as_object().into_iter().flatten();
    fields
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect()
}

fn selector(object: &Value) -> Result<BTreeMap<String, String>, String> {
    let spec = &object["spec"];
    let (selector, fault) = match kind(object) {
        "Pod" => (
            map(&object["metadata"]["labels"]),
            "the pod has no labels and cannot be exposed".to_owned(),
        ),
        "Service" => (map(&spec["selector"]), "the service has no pod selector set".to_owned()),
        "ReplicationController" => return Ok(map(&spec["selector"])),
        kind => {
            let kind = kind.to_lowercase();
            if spec["selector"]["matchExpressions"].as_array().is_some_and(|all| !all.is_empty()) {
                let shown = expressions(&spec["selector"]["matchExpressions"]);
                return Err(format!(
                    "couldn't convert expressions - \"{shown}\" to map-based selector format"
                ));
            }
            let fault = format!("invalid {kind}: no selectors, therefore cannot be exposed");
            (map(&spec["selector"]["matchLabels"]), fault)
        }
    };
    if selector.is_empty() { Err(fault) } else { Ok(selector) }
}

/// Expressions as Go shows them with the names of their fields.
fn expressions(all: &Value) -> String {
    let one = |expression: &Value| {
        let text = |field: &str| expression[field].as_str().unwrap_or_default();
        let values =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let values = values.collect::<Vec<_>>().join(" ");
        format!("{{Key:{} Operator:{} Values:[{values}]}}", text("key"), text("operator"))
    };
    let all: Vec<String> = all.as_array().into_iter().flatten().map(one).collect();
    format!("[{}]", all.join(" "))
}

/// The ports that an object names, with their protocols.
fn named_ports(object: &Value) -> Vec<(String, String)> {
    let spec = &object["spec"];
    let of = |ports: &Value, field: &str| -> Vec<(String, String)> {
        let ports = ports.as_array().into_iter().flatten();
        let pair = |port: &Value| {
            (
                port[field].as_i64().unwrap_or_default().to_string(),
                port["protocol"].as_str().unwrap_or("TCP").to_owned(),
            )
        };
        ports.map(pair).collect()
    };
    let of_containers = |spec: &Value| -> Vec<(String, String)> {
        let containers = spec["containers"].as_array().into_iter().flatten();
        containers.flat_map(|container| of(&container["ports"], "containerPort")).collect()
    };
    match kind(object) {
        "Service" => of(&spec["ports"], "port"),
        "Pod" => of_containers(spec),
        _ => of_containers(&spec["template"]["spec"]),
    }
}

fn ports(arguments: &Arguments, object: &Value) -> Outcome<Vec<Value>> {
    let named = named_ports(object);
    let mut wanted: Vec<String> = match arguments.some("port") {
        Some(ports) => ports.split(',').map(str::to_owned).collect(),
        None => named.iter().map(|(port, _)| port.clone()).collect(),
    };
    // A port with two protocols is one port.
    if !arguments.given("port") {
        let mut seen = Vec::new();
        wanted.retain(|port| {
            !seen.contains(port) && {
                seen.push(port.clone());
                true
            }
        });
    }
    if wanted.is_empty() && arguments.text("cluster-ip") != "None" {
        return Err("couldn't find port via --port flag or introspection".into());
    }
    let mut protocols: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (port, protocol) in &named {
        protocols.entry(port).or_default().push(protocol);
    }
    let several = wanted.len() > 1;
    let mut out = Vec::new();
    for (i, port) in wanted.iter().enumerate() {
        let number: i64 = port.parse().map_err(|_| {
            format!("strconv.Atoi: parsing {}: invalid syntax", super::quoted(port))
        })?;
        let own = protocols.get(port.as_str()).map(Vec::as_slice).unwrap_or_default();
        match (arguments.text("protocol"), own) {
            ("", own) if own.len() > 1 => {
                for protocol in own {
                    let name = format!("port-{}-{}", i + 1, protocol.to_lowercase());
                    out.push(service_port(arguments, &name, number, protocol));
                }
            }
            (given, own) => {
                let protocol = match given {
                    "" => own.first().copied().unwrap_or("TCP"),
                    given => given,
                };
                let name = if several { format!("port-{}", i + 1) } else { String::new() };
                out.push(service_port(arguments, &name, number, protocol));
            }
        }
    }
    Ok(out)
}

fn service_port(arguments: &Arguments, name: &str, port: i64, protocol: &str) -> Value {
    let mut fields = Map::new();
    if !name.is_empty() {
        fields.insert("name".to_owned(), name.into());
    }
    fields.insert("port".to_owned(), port.into());
    fields.insert("protocol".to_owned(), protocol.into());
    let target = arguments.some("target-port").map_or_else(|| port.into(), int_or_string);
    fields.insert("targetPort".to_owned(), target);
    Value::Object(fields)
}
