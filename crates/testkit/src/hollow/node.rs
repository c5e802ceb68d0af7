//! What a node says of itself.
use super::Options;
use ::client::source::Patch;
use ::client::{ApiResource, Client, Keep, Object, Status};
use api::codec::DecodeError;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

const LEASES: &str = "kube-node-lease";

/// As much of a node as matters.
#[derive(Debug)]
pub struct Seen {
    pub ready: bool,
}

impl Keep for Seen {
    fn keep(object: &Arc<Object>) -> Result<Arc<Seen>, DecodeError> {
        #[derive(Deserialize)]
        struct Read {
            #[serde(default)]
            status: Status,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            conditions: Vec<Condition>,
        }
        #[derive(Deserialize)]
        struct Condition {
            r#type: String,
            status: String,
        }
        let read: Read = serde_json::from_slice(&object.json())
            .map_err(|error| DecodeError::Type(error.to_string()))?;
        let mut conditions = read.status.conditions.iter();
        let ready = conditions.any(|each| each.r#type == "Ready" && each.status == "True");
        Ok(Arc::new(Seen { ready }))
    }
}

pub fn name(options: &Options, index: usize) -> String {
    format!("{}{index}", options.name)
}

/// Of 172.16.0.0/12, by the number in the node's name.
pub fn address(options: &Options, name: &str) -> String {
    let number = name.strip_prefix(&options.name).and_then(|text| text.parse::<u32>().ok());
    let number = number.unwrap_or_default() % ((1 << 20) - 2) + 1;
    std::net::Ipv4Addr::from((172 << 24 | 16 << 16) + number).to_string()
}

/// Registers a node, or says that one from before is back; either way anything may run there.
pub async fn register(client: &Client, options: &Options, index: usize) -> Result<(), Status> {
    let name = name(options, index);
    let now = Timestamp::now();
    match client.create_in(ApiResource::of::<Node>(), "", node(options, index, now)).await {
        Err(status) if status.is_already_exists() => {
            let patch = Patch::Strategic(ready(now));
            client.patch_status::<Node>("", &name, patch).await?;
        }
        made => drop(made?),
    }
    // A node is born with a taint that the controller of nodes takes away: where none runs, we do.
    let untainted = Patch::Merge(json!({ "spec": { "taints": null } }));
    client.patch::<Node>("", &name, untainted).await?;
    renew(client, &name, now).await
}

pub async fn renew(client: &Client, name: &str, now: Timestamp) -> Result<(), Status> {
    let spec =
        json!({ "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micros(now) });
    let patch = Patch::Merge(json!({ "spec": spec }));
    match client.patch::<Lease>(LEASES, name, patch).await {
        Err(status) if status.is_not_found() => {
            let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": name, "namespace": LEASES }, "spec": spec });
            client.create_in(ApiResource::of::<Lease>(), LEASES, lease).await.map(drop)
        }
        renewed => renewed.map(drop),
    }
}

fn micros(now: Timestamp) -> String {
    format!("{now:.6}")
}

fn node(options: &Options, index: usize, now: Timestamp) -> Value {
    let name = name(options, index);
    let zone = format!("zone-{}", index % options.zones.max(1));
    let resources = json!({ "cpu": options.cpu, "memory": options.memory,
        "pods": options.pods.to_string(), "ephemeral-storage": "1Ti" });
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "node.kubernetes.io/instance-type": "hollow",
            "topology.kubernetes.io/region": "region", "topology.kubernetes.io/zone": zone } },
        "spec": {},
        "status": { "capacity": resources, "allocatable": resources,
            "addresses": [{ "type": "InternalIP", "address": address(options, &name) },
                { "type": "Hostname", "address": name }],
            "nodeInfo": { "architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "6.1.0",
                "osImage": "hollow", "containerRuntimeVersion": "hollow://1", "kubeletVersion": "v1.37.1",
                "kubeProxyVersion": "", "machineID": name, "systemUUID": name, "bootID": name } } });
    node["status"]["conditions"] = ready(now)["status"]["conditions"].take();
    node
}

/// Everything is well.
pub fn ready(now: Timestamp) -> Value {
    let now = format!("{now:.0}");
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({ "type": type_, "status": status, "reason": reason, "message": reason,
            "lastHeartbeatTime": now, "lastTransitionTime": now })
    };
    json!({ "status": { "conditions": [
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        condition("Ready", "True", "KubeletReady"),
    ] } })
}
