//! Services by type.

use api::names;
use serde_json::{Value, json};

use super::{Generator, Made, Rim, name};
use crate::failure::Outcome;
use crate::flags::{Arguments, Flag, list, number, text};

const TCP: Flag = list("tcp", "Ports, as PORT or PORT:TARGETPORT.");

pub static CLUSTER_IP: Generator = Generator {
    name: "clusterip",
    about: "Create a ClusterIP service",
    usage: "NAME [--tcp=<port>:<targetPort>] [--dry-run=server|client|none]",
    flags: &[TCP, text("clusterip", "", "Address to have, or None for a headless service.")],
    refused: "failed to create ClusterIP service: ",
    make: |arguments, _| service(arguments, "ClusterIP"),
    ..Generator::EMPTY
};

pub static NODE_PORT: Generator = Generator {
    name: "nodeport",
    about: "Create a NodePort service",
    usage: "NAME [--tcp=port:targetPort] [--dry-run=server|client|none]",
    flags: &[TCP, number("node-port", "0", "Port to have on every node.")],
    refused: "failed to create NodePort service: ",
    make: |arguments, _| service(arguments, "NodePort"),
    ..Generator::EMPTY
};

pub static LOAD_BALANCER: Generator = Generator {
    name: "loadbalancer",
    about: "Create a LoadBalancer service",
    usage: "NAME [--tcp=port:targetPort] [--dry-run=server|client|none]",
    flags: &[TCP],
    refused: "failed to create LoadBalancer service: ",
    make: |arguments, _: &Rim<'_>| service(arguments, "LoadBalancer"),
    ..Generator::EMPTY
};

pub static EXTERNAL_NAME: Generator = Generator {
    name: "externalname",
    about: "Create an ExternalName service",
    usage: "NAME --external-name external.name [--dry-run=server|client|none]",
    flags: &[TCP, text("external-name", "", "Name that the service stands for.").required()],
    required: &["external-name"],
    refused: "failed to create ExternalName service: ",
    make: |arguments, _| service(arguments, "ExternalName"),
    ..Generator::EMPTY
};

fn service(arguments: &Arguments, kind: &str) -> Outcome<Made> {
    let name = name(arguments)?;
    let cluster_ip = if arguments.knows("clusterip") { arguments.text("clusterip") } else { "" };
    let tcp = arguments.list("tcp");
    if cluster_ip != "None" && tcp.is_empty() && kind != "ExternalName" {
        return Err("at least one tcp port specifier must be provided".into());
    }
    let node_port = if arguments.knows("node-port") { arguments.number("node-port") } else { 0 };
    let ports: Vec<Value> = tcp.iter().map(|text| port(text, node_port)).collect::<Outcome<_>>()?;
    let labels = json!({"app": name});
    let mut spec = json!({"selector": labels, "type": kind});
    super::put(&mut spec, "ports", ports);
    super::put(&mut spec, "clusterIP", cluster_ip);
    if kind == "ExternalName" {
        let external = arguments.text("external-name");
        if !names::dns1123_subdomain(external).is_empty() {
            return Err(format!("invalid service external name {external}").into());
        }
        spec["externalName"] = external.into();
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"loadBalancer": {}},
    });
    Ok(object.into())
}

fn port(text: &str, node_port: i64) -> Outcome<Value> {
    let mut parts = text.split(':');
    let own = parts.next().unwrap_or_default();
    let number: u16 = own.parse().map_err(|_| {
        format!("strconv.ParseUint: parsing {}: {}", super::quoted(own), why_no_port(own))
    })?;
    let target = match parts.next() {
        None => json!(number),
        Some(target) => match target.parse::<i64>() {
            Ok(number) => {
                let faults = names::port_number(number);
                if !faults.is_empty() {
                    return Err(faults.join(",").into());
                }
                json!(number)
            }
            Err(_) => {
                let faults = names::port_name(target);
                if !faults.is_empty() {
                    return Err(faults.join(",").into());
                }
                json!(target)
            }
        },
    };
    let mut port = json!({"name": text.replace(':', "-"), "port": number, "protocol": "TCP", "targetPort": target});
    if node_port != 0 {
        port["nodePort"] = node_port.into();
    }
    Ok(port)
}

fn why_no_port(text: &str) -> &'static str {
    match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        true => "value out of range",
        false => "invalid syntax",
    }
}
