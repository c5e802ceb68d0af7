//! A driver that came or went: the CSINode says which drivers this node has, what it is called by
//! them and how many of their volumes it can have; the Node has labels of where it is
//! (`pkg/volume/csi/nodeinfomanager`).
use super::{Csi, Node, proto};
use crate::worker::Kubelet;
use client::source::Patch;
use k8s_openapi::api::core::v1::Node as NodeObject;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::json;
use std::collections::BTreeMap;

const NODE_ID: &str = "csi.volume.kubernetes.io/nodeid";
/// Kinds of volumes that CSI drivers have taken over from Kubernetes itself.
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";
const MIGRATED_PLUGINS: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume";
/// Others write these objects too.
const TRIES: usize = 5;

impl Csi {
    /// A driver of these versions at a socket; an error is told to the driver.
    pub async fn add(
        &self,
        kubelet: &Kubelet,
        name: &str,
        endpoint: &str,
        versions: &[String],
    ) -> Result<(), String> {
        // Any 1.x is compatible with what we speak, and nothing else is.
        let is_ours =
            |version: &String| version.trim_start_matches('v').split('.').next() == Some("1");
        if !versions.iter().any(is_ours) {
            return Err(format!(
                "RegisterPlugin for CSI driver {name:?} failed. None of the versions specified {versions:?} are supported. err=None of the versions supported"
            ));
        }
        let node = Node::at(endpoint)?;
        let info = node.node_get_info(proto::NodeGetInfoRequest {}).await;
        let info = info.map_err(|status| super::shown(&status))?;
        self.drivers.lock().insert(name.to_owned(), node);
        let installed = install(kubelet, name, &info).await;
        match &installed {
            // Pods may have waited for it.
            Ok(()) => kubelet.add_all().await,
            Err(_) => drop(self.drivers.lock().remove(name)),
        }
        installed
    }

    pub async fn remove(&self, kubelet: &Kubelet, name: &str) -> Result<(), String> {
        self.drivers.lock().remove(name);
        change(kubelet, |spec| {
            let before = spec.drivers.len();
            spec.drivers.retain(|driver| driver.name != name);
            before != spec.drivers.len()
        })
        .await?;
        let Ok(node) = kubelet.client.get::<NodeObject>("", &kubelet.config.node_name).await else {
            return Ok(());
        };
        let node: NodeObject = node.decode().map_err(|error| error.to_string())?;
        let mut ids = ids_of(&node);
        if ids.remove(name).is_none() {
            return Ok(());
        }
        let text = (!ids.is_empty()).then(|| json!(ids).to_string());
        let patch = json!({ "metadata": { "annotations": { NODE_ID: text } } });
        write_node(kubelet, patch).await
    }
}

/// The CSINode is there before any driver is: the scheduler reads it.
pub async fn publish_node(kubelet: &Kubelet) -> Result<(), String> {
    change(kubelet, |_| false).await
}

async fn install(
    kubelet: &Kubelet,
    name: &str,
    info: &proto::NodeGetInfoResponse,
) -> Result<(), String> {
    if info.node_id.is_empty() {
        return Err("error adding CSI driver node info: driverNodeID must not be empty".to_owned());
    }
    let topology: BTreeMap<String, String> =
        info.accessible_topology.clone().unwrap_or_default().segments.into_iter().collect();
    let node = kubelet.client.get::<NodeObject>("", &kubelet.config.node_name).await;
    let node: NodeObject =
        node.map_err(|status| status.message)?.decode().map_err(|error| error.to_string())?;
    let labels = node.metadata.labels.clone().unwrap_or_default();
    for (key, value) in &topology {
        if let Some(other) = labels.get(key).filter(|other| *other != value) {
            return Err(format!(
                "detected topology value collision: driver reported \"{key}\":\"{value}\" but existing label is \"{key}\":\"{other}\""
            ));
        }
    }
    let mut ids = ids_of(&node);
    ids.insert(name.to_owned(), info.node_id.clone());
    let annotations = json!({ NODE_ID: json!(ids).to_string() });
    write_node(kubelet, json!({ "metadata": { "annotations": annotations, "labels": topology } }))
        .await?;
    let count = i32::try_from(info.max_volumes_per_node).unwrap_or(i32::MAX);
    let driver = CSINodeDriver {
        name: name.to_owned(),
        node_id: info.node_id.clone(),
        topology_keys: Some(topology.into_keys().collect()),
        allocatable: (count > 0).then_some(VolumeNodeResources { count: Some(count) }),
    };
    change(kubelet, |spec| {
        if spec.drivers.iter().any(|known| same(known, &driver)) {
            return false;
        }
        spec.drivers.retain(|known| known.name != driver.name);
        spec.drivers.push(driver.clone());
        true
    })
    .await
}

fn same(known: &CSINodeDriver, driver: &CSINodeDriver) -> bool {
    let keys = |one: &CSINodeDriver| {
        let mut keys = one.topology_keys.clone().unwrap_or_default();
        keys.sort();
        keys
    };
    (&known.name, &known.node_id, &known.allocatable, keys(known))
        == (&driver.name, &driver.node_id, &driver.allocatable, keys(driver))
}

fn ids_of(node: &NodeObject) -> BTreeMap<String, String> {
    let text = node.metadata.annotations.as_ref().and_then(|all| all.get(NODE_ID));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

async fn write_node(kubelet: &Kubelet, patch: serde_json::Value) -> Result<(), String> {
    let name = &kubelet.config.node_name;
    let written = kubelet.client.patch::<NodeObject>("", name, Patch::Strategic(patch)).await;
    written.map(drop).map_err(|status| status.message)
}

/// Changes the CSINode, which is made if it is not there. `change` says whether it did anything.
async fn change(
    kubelet: &Kubelet,
    mut change: impl FnMut(&mut CSINodeSpec) -> bool,
) -> Result<(), String> {
    let name = &kubelet.config.node_name;
    let mut last = String::new();
    for _ in 0..TRIES {
        let written = match kubelet.client.get::<CSINode>("", name).await {
            Ok(found) => {
                let mut found: CSINode = found.decode().map_err(|error| error.to_string())?;
                if !change(&mut found.spec) {
                    return Ok(());
                }
                kubelet.client.update(&found).await
            }
            Err(status) if status.is_not_found() => {
                let mut made = new(kubelet).await?;
                change(&mut made.spec);
                kubelet.client.create(&made).await
            }
            Err(status) => Err(status),
        };
        match written {
            Ok(_) => return Ok(()),
            // Somebody else was quicker.
            Err(status) if status.is_conflict() || status.is_already_exists() => {
                last = status.message;
            }
            Err(status) => return Err(status.message),
        }
    }
    Err(last)
}

async fn new(kubelet: &Kubelet) -> Result<CSINode, String> {
    let name = &kubelet.config.node_name;
    let node = kubelet.client.get::<NodeObject>("", name).await.map_err(|status| status.message)?;
    let node: NodeObject = node.decode().map_err(|error| error.to_string())?;
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.clone(),
        uid: node.metadata.uid.unwrap_or_default(),
        ..OwnerReference::default()
    };
    Ok(CSINode {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            annotations: Some([(MIGRATED.to_owned(), MIGRATED_PLUGINS.to_owned())].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec { drivers: Vec::new() },
        ..CSINode::default()
    })
}
