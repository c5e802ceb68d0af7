//! Where a pod's files come from.
use super::{Verdict, one_or_more, quoted, violation};
use crate::admission::{items, text};
use serde_json::Value;
use std::collections::BTreeSet;

const ALLOWED: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// In the order in which they are looked for.
const OTHERS: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

fn shown(volumes: &[&str]) -> String {
    format!("{} {}", one_or_more("volume", "volumes", volumes.len()), quoted(volumes))
}

fn is_any(volume: &Value, sources: &[&str]) -> bool {
    sources.iter().any(|source| volume.get(source).is_some())
}

fn name(volume: &Value) -> &str {
    text(&volume["name"])
}

pub fn host_path(pod: &Value) -> Verdict {
    let volumes = items(&pod["spec"]["volumes"]).iter();
    let bad: Vec<&str> = volumes.filter(|v| is_any(v, &["hostPath"])).map(name).collect();
    (!bad.is_empty()).then(|| violation("hostPath volumes", shown(&bad)))
}

pub fn restricted(pod: &Value) -> Verdict {
    let volumes = items(&pod["spec"]["volumes"]).iter();
    let other: Vec<&Value> = volumes.filter(|volume| !is_any(volume, ALLOWED)).collect();
    let types: BTreeSet<&str> = other
        .iter()
        .map(|volume| OTHERS.iter().find(|source| is_any(volume, &[source])).unwrap_or(&"unknown"))
        .copied()
        .collect();
    let bad: Vec<&str> = other.iter().map(|volume| name(volume)).collect();
    let uses = one_or_more("uses", "use", bad.len());
    let word = one_or_more("restricted volume type", "restricted volume types", types.len());
    let detail = || format!("{} {uses} {word} {}", shown(&bad), quoted(&types));
    (!bad.is_empty()).then(|| violation("restricted volume types", detail()))
}
