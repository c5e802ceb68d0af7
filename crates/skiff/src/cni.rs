//! `skiff-cni`: our pod network as a CNI plugin (specification 1.1), for other container runtimes. A link
//! of that name to this binary in `/opt/cni/bin`, and a configuration with its type:
//!
//! ```json
//! { "cniVersion": "1.0.0", "name": "pods", "plugins": [{ "type": "skiff-cni",
//!   "podCIDRs": ["10.244.0.0/24"], "clusterCIDRs": ["10.244.0.0/16"],
//!   "capabilities": { "portMappings": true, "bandwidth": true } }] }
//! ```
use network::{Bandwidth, Cidr, Config, PodNetwork, PodNetworkError, PortMapping, Sandbox};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// What the specification says of errors.
#[derive(Debug, PartialEq)]
struct Failure {
    code: u32,
    message: String,
}

const INVALID_ENVIRONMENT: u32 = 4;
const UNDECODABLE: u32 = 6;
const INVALID_CONFIGURATION: u32 = 7;
const TRY_AGAIN: u32 = 11;
const OURS: u32 = 100;

impl Failure {
    fn new(code: u32, message: impl ToString) -> Failure {
        Failure { code, message: message.to_string() }
    }
}

impl From<PodNetworkError> for Failure {
    fn from(error: PodNetworkError) -> Failure {
        let code = match error {
            PodNetworkError::Held(_) | PodNetworkError::Exhausted(_) => TRY_AGAIN,
            _ => OURS,
        };
        Failure::new(code, error)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Document {
    cni_version: String,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
    #[serde(rename = "clusterCIDRs")]
    cluster_cidrs: Vec<String>,
    mtu: Option<u32>,
    state_dir: Option<PathBuf>,
    runtime_config: RuntimeConfig,
    #[serde(rename = "cni.dev/valid-attachments")]
    valid: Vec<Valid>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeConfig {
    port_mappings: Vec<Mapping>,
    bandwidth: Rates,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Mapping {
    host_port: i32,
    container_port: i32,
    protocol: String,
    #[serde(rename = "hostIP")]
    host_ip: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rates {
    ingress_rate: u64,
    egress_rate: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Valid {
    #[serde(rename = "containerID")]
    container_id: String,
}

pub fn run() -> ExitCode {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    let given: BTreeMap<String, String> =
        std::env::vars().filter(|(name, _)| name.starts_with("CNI_")).collect();
    let said = match read {
        Ok(_) => answer(&given, &text),
        Err(error) => Err(Failure::new(UNDECODABLE, error)),
    };
    match said {
        Ok(Value::Null) => ExitCode::SUCCESS,
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(Failure { code, message }) => {
            println!("{}", json!({ "cniVersion": "1.1.0", "code": code, "msg": message }));
            ExitCode::FAILURE
        }
    }
}

fn answer(given: &BTreeMap<String, String>, text: &str) -> Result<Value, Failure> {
    let value = |name: &str| given.get(name).cloned().unwrap_or_default();
    let needed = |name: &str| match value(name) {
        text if text.is_empty() => {
            Err(Failure::new(INVALID_ENVIRONMENT, format!("{name} is not set")))
        }
        text => Ok(text),
    };
    let document: Document =
        serde_json::from_str(text).map_err(|error| Failure::new(UNDECODABLE, error))?;
    match needed("CNI_COMMAND")?.as_str() {
        "VERSION" => Ok(json!({ "cniVersion": "1.1.0", "supportedVersions": VERSIONS })),
        "STATUS" => config(&document).map(|_| Value::Null),
        "ADD" => {
            if value("CNI_IFNAME") != network::INTERFACE {
                let message = format!("CNI_IFNAME must be {}", network::INTERFACE);
                return Err(Failure::new(INVALID_ENVIRONMENT, message));
            }
            let (id, namespace) = (needed("CNI_CONTAINERID")?, needed("CNI_NETNS")?);
            let sandbox = sandbox(&document, &id, &namespace, &value("CNI_ARGS"));
            let network = open(&document)?;
            let addresses = network.attach(&sandbox)?;
            Ok(result(&document, &namespace, &addresses, &network.pod_cidrs()))
        }
        "DEL" => {
            open(&document)?.detach(&needed("CNI_CONTAINERID")?)?;
            Ok(Value::Null)
        }
        "CHECK" => {
            let id = needed("CNI_CONTAINERID")?;
            match open(&document)?.sandboxes().iter().any(|(other, _, _)| *other == id) {
                true => Ok(Value::Null),
                false => Err(Failure::new(OURS, format!("{id} has no network"))),
            }
        }
        "GC" => {
            let valid: Vec<&str> =
                document.valid.iter().map(|one| one.container_id.as_str()).collect();
            open(&document)?.retain(&valid)?;
            Ok(Value::Null)
        }
        other => Err(Failure::new(INVALID_ENVIRONMENT, format!("{other} is no command of CNI"))),
    }
}

fn config(document: &Document) -> Result<Config, Failure> {
    let parse = |texts: &[String]| {
        let parsed = texts.iter().map(|text| text.parse()).collect::<Result<Vec<Cidr>, _>>();
        parsed.map_err(|error| Failure::new(INVALID_CONFIGURATION, error))
    };
    if !VERSIONS.contains(&document.cni_version.as_str()) {
        let message = format!("cniVersion {:?} is not one of {VERSIONS:?}", document.cni_version);
        return Err(Failure::new(1, message));
    }
    let pod_cidrs = parse(&document.pod_cidrs)?;
    if pod_cidrs.is_empty() {
        let message = "podCIDRs says where pods' addresses are from: [\"10.244.0.0/24\"]";
        return Err(Failure::new(INVALID_CONFIGURATION, message));
    }
    let mut cluster_cidrs = parse(&document.cluster_cidrs)?;
    if cluster_cidrs.is_empty() {
        cluster_cidrs.clone_from(&pod_cidrs);
    }
    let state = document.state_dir.clone().unwrap_or_else(|| "/run/skiff/cni".into());
    let mtu = document.mtu.unwrap_or(1500);
    Ok(Config { pod_cidrs, cluster_cidrs, mtu, state, key: None })
}

/// Waits until whoever else is attached or detached has done.
fn open(document: &Document) -> Result<PodNetwork, Failure> {
    Ok(PodNetwork::open_in_turn(config(document)?)?)
}

fn sandbox(document: &Document, id: &str, namespace: &str, arguments: &str) -> Sandbox {
    let argument = |name: &str| {
        let mut pairs = arguments.split(';').filter_map(|pair| pair.split_once('='));
        pairs.find(|(other, _)| *other == name).map_or("", |(_, value)| value)
    };
    let ports = document.runtime_config.port_mappings.iter().map(|port| PortMapping {
        host_port: port.host_port,
        container_port: port.container_port,
        protocol: port.protocol.clone(),
        host_ip: port.host_ip.clone(),
    });
    let rate = |rate: u64| (rate > 0).then_some(rate);
    let Rates { ingress_rate, egress_rate } = document.runtime_config.bandwidth;
    Sandbox {
        id: id.to_owned(),
        namespace_path: namespace.into(),
        owner: format!("{}/{}", argument("K8S_POD_NAMESPACE"), argument("K8S_POD_NAME")),
        ports: ports.collect(),
        bandwidth: Bandwidth { ingress: rate(ingress_rate), egress: rate(egress_rate) },
    }
}

fn result(document: &Document, namespace: &str, addresses: &[IpAddr], cidrs: &[Cidr]) -> Value {
    let of = |address: &IpAddr| cidrs.iter().find(|cidr| cidr.contains(*address));
    let ips: Vec<Value> = addresses
        .iter()
        .map(|address| {
            let prefix = if address.is_ipv4() { 32 } else { 128 };
            let mut ip = json!({
                "address": format!("{address}/{prefix}"),
                "gateway": of(address).map(|cidr| cidr.gateway()),
                "interface": 0,
            });
            if document.cni_version.starts_with("0.") {
                ip["version"] = json!(if address.is_ipv4() { "4" } else { "6" });
            }
            ip
        })
        .collect();
    let routes = addresses.iter().map(|address| {
        let any = if address.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        json!({ "dst": any, "gw": of(address).map(|cidr| cidr.gateway()) })
    });
    json!({
        "cniVersion": document.cni_version,
        "interfaces": [{ "name": network::INTERFACE, "sandbox": namespace }],
        "ips": ips,
        "routes": routes.collect::<Vec<_>>(),
        "dns": {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink::testing::{Held, isolated};

    fn ask(command: &str, more: &[(&str, &str)], config: &Value) -> Result<Value, Failure> {
        let all = [("CNI_COMMAND", command)].into_iter().chain(more.iter().copied());
        let given = all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        answer(&given, &config.to_string())
    }

    #[test]
    fn what_is_wrong_is_told_as_the_specification_has_it() {
        let config = json!({ "cniVersion": "1.0.0", "podCIDRs": ["10.1.0.0/24"] });
        let code = |said: Result<Value, Failure>| said.unwrap_err().code;
        assert_eq!(ask("VERSION", &[], &config).unwrap()["supportedVersions"], json!(VERSIONS));
        assert_eq!(ask("STATUS", &[], &config), Ok(Value::Null));
        assert_eq!(code(ask("ADD", &[("CNI_IFNAME", "net1")], &config)), 4);
        assert_eq!(code(ask("DEL", &[], &config)), 4);
        assert_eq!(code(ask("SING", &[], &config)), 4);
        assert_eq!(code(ask("STATUS", &[], &json!({ "cniVersion": "9" }))), 1);
        assert_eq!(code(ask("STATUS", &[], &json!({ "cniVersion": "1.0.0" }))), 7);
        let wrong = json!({ "cniVersion": "1.0.0", "podCIDRs": ["x"] });
        assert_eq!(code(ask("STATUS", &[], &wrong)), 7);
        assert_eq!(code(answer(&BTreeMap::new(), "{")), 6);
    }

    #[test]
    fn containers_come_and_go() {
        isolated(|| {
            let state = tempfile::tempdir().unwrap();
            let config = json!({
                "cniVersion": "1.0.0",
                "podCIDRs": ["10.99.1.0/24", "fd99:1::/64"],
                "stateDir": state.path().join("cni"),
                "runtimeConfig": { "bandwidth": { "ingressRate": 8_000_000, "ingressBurst": 1 } },
            });
            let pod = Held::new();
            let path = pod.path.display().to_string();
            let given = [
                ("CNI_CONTAINERID", "one"),
                ("CNI_NETNS", path.as_str()),
                ("CNI_IFNAME", "eth0"),
                ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=p"),
            ];
            let said = ask("ADD", &given, &config).unwrap();
            assert_eq!(said["ips"][0]["address"], "10.99.1.2/32");
            assert_eq!(said["ips"][1]["gateway"], "fd99:1::1");
            assert_eq!(ask("ADD", &given, &config).unwrap(), said, "twice is once");
            assert_eq!(ask("CHECK", &given, &config), Ok(Value::Null));
            let mut inside = netlink::Socket::open_in(netlink::Family::Route, &pod.path).unwrap();
            assert!(inside.link("eth0").unwrap().unwrap().up);
            for command in ["DEL", "DEL"] {
                assert_eq!(ask(command, &given, &config), Ok(Value::Null));
            }
            assert_eq!(inside.link("eth0").unwrap(), None);
            assert!(ask("CHECK", &given, &config).is_err());
            ask("ADD", &given, &config).unwrap();
            assert_eq!(ask("GC", &[], &config), Ok(Value::Null), "nobody is valid");
            assert!(ask("CHECK", &given, &config).is_err());
        });
    }
}
