//! What belongs to which node, followed in the store.
//!
//! A pod ties what it names to its node; a volume and the secrets it needs belong where the claim
//! does that it is bound to. Each tie is counted, so that it goes with the last pod that made it.
use crate::server::ApiServer;
use crate::state::following::{Change, follow};
use api::kinds::{Resource, find_kind};
use api::status::Status;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use store::KeyValue;
use store::cache::Item;

/// What a node may ask for by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Object {
    Pod,
    Secret,
    ConfigMap,
    PersistentVolumeClaim,
    PersistentVolume,
    ServiceAccount,
    ResourceClaim,
    VolumeAttachment,
    ResourceSlice,
    PodCertificateRequest,
}

/// Kind, namespace, name.
type Place = (Object, String, String);

#[derive(Debug, Default)]
pub struct Graph {
    /// How many times each node needs an object.
    nodes: HashMap<Place, HashMap<Arc<str>, u32>>,
    /// The claim that a volume is bound to.
    claims: HashMap<String, (String, String)>,
    /// The volumes that need a secret.
    volumes: HashMap<(String, String), Vec<String>>,
}

/// The graph of now.
#[derive(Debug, Default)]
pub struct Shared(RwLock<Graph>);

impl Shared {
    pub fn read(&self) -> std::sync::RwLockReadGuard<'_, Graph> {
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Graph> {
        self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

const KINDS: &[(&str, &str)] = &[
    ("v1", "Pod"),
    ("v1", "PersistentVolume"),
    ("storage.k8s.io/v1", "VolumeAttachment"),
    ("resource.k8s.io/v1", "ResourceSlice"),
    ("certificates.k8s.io/v1beta1", "PodCertificateRequest"),
];

/// Follows what ties objects to nodes, as long as the server runs.
pub async fn start(api: &ApiServer) -> Result<(), Status> {
    let kinds: Vec<&'static Resource> =
        KINDS.iter().filter_map(|(version, kind)| find_kind(version, kind)).collect();
    let server = api.clone();
    follow(api, &kinds, move |change| {
        match change {
            Change::Item(resource, item) => {
                // Read before anybody has to wait for it.
                let changes = changes(resource.kind, item);
                if !changes.is_empty() {
                    server.node_graph().write().take(resource.kind, &changes);
                }
            }
            Change::Anew => *server.node_graph().write() = Graph::default(),
        }
        std::future::ready(())
    })
    .await
}

/// What something was and is, if it ties anything to a node.
type Changed = (Option<Value>, Option<Value>);

fn changes(kind: &str, item: Item) -> Vec<Changed> {
    // Pods that nobody has scheduled, above all, are not worth being read.
    let names_node = memchr::memmem::Finder::new("\"nodeName\"");
    let read = |stored: &KeyValue| {
        let matters = kind == "PersistentVolume" || names_node.find(&stored.value).is_some();
        matters.then(|| serde_json::from_slice::<Value>(&stored.value).ok()).flatten()
    };
    let mut changes: Vec<Changed> = match item {
        Item::Initial(objects) => objects.iter().map(|stored| (None, read(stored))).collect(),
        Item::InitialEnd(_) => Vec::new(),
        Item::Events(batch) => batch
            .events
            .iter()
            .map(|event| {
                let old = event.prev.as_ref().and_then(|stored| read(stored));
                let new = Some(&event.kv).filter(|_| !event.is_delete());
                (old, new.and_then(|stored| read(stored)))
            })
            .collect(),
    };
    changes.retain(|change| match change {
        (None, None) => false,
        // Most changes are of states only.
        (Some(old), Some(new)) if kind != "PersistentVolume" => ties(kind, old) != ties(kind, new),
        _ => true,
    });
    changes
}

impl Graph {
    fn take(&mut self, kind: &str, changes: &[Changed]) {
        for (old, new) in changes {
            old.iter().for_each(|old| self.remove(kind, old));
            new.iter().for_each(|new| self.add(kind, new));
        }
    }

    pub(super) fn add(&mut self, kind: &str, object: &Value) {
        if kind == "PersistentVolume" {
            return self.add_volume(object);
        }
        let (node, places) = ties(kind, object);
        if node.is_empty() {
            return;
        }
        let node: Arc<str> = node.into();
        for place in places {
            *self.nodes.entry(place).or_default().entry(node.clone()).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, kind: &str, object: &Value) {
        if kind == "PersistentVolume" {
            return self.remove_volume(object);
        }
        let (node, places) = ties(kind, object);
        for place in places {
            let Some(nodes) = self.nodes.get_mut(&place) else { continue };
            if let Some(count) = nodes.get_mut(node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(node);
                }
            }
            if nodes.is_empty() {
                self.nodes.remove(&place);
            }
        }
    }

    fn add_volume(&mut self, volume: &Value) {
        let name = text(&volume["metadata"]["name"]);
        let claim = &volume["spec"]["claimRef"];
        if claim.is_object() {
            let claim = (text(&claim["namespace"]), text(&claim["name"]));
            self.claims.insert(name.clone(), claim);
            for secret in volume_secrets(volume) {
                self.volumes.entry(secret).or_default().push(name.clone());
            }
        }
    }

    fn remove_volume(&mut self, volume: &Value) {
        let name = text(&volume["metadata"]["name"]);
        if self.claims.remove(&name).is_none() {
            return;
        }
        for secret in volume_secrets(volume) {
            if let Some(volumes) = self.volumes.get_mut(&secret) {
                volumes.retain(|volume| *volume != name);
                if volumes.is_empty() {
                    self.volumes.remove(&secret);
                }
            }
        }
    }

    /// Whether the node needs the object, or has it.
    pub fn leads_to(&self, kind: Object, namespace: &str, name: &str, node: &str) -> bool {
        let place = (kind, namespace.to_owned(), name.to_owned());
        if self.nodes.get(&place).is_some_and(|nodes| nodes.contains_key(node)) {
            return true;
        }
        match kind {
            Object::PersistentVolume => self.claims.get(name).is_some_and(|(namespace, claim)| {
                self.leads_to(Object::PersistentVolumeClaim, namespace, claim, node)
            }),
            Object::Secret => {
                let volumes = self.volumes.get(&(place.1, place.2)).into_iter().flatten();
                let mut volumes = volumes;
                volumes.any(|volume| self.leads_to(Object::PersistentVolume, "", volume, node))
            }
            _ => false,
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The node that an object is on, and what it ties to it.
fn ties<'a>(kind: &str, object: &'a Value) -> (&'a str, Vec<Place>) {
    let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
    let (namespace, name) =
        (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    let places = match kind {
        "Pod" => pod_ties(object, &namespace, name),
        "VolumeAttachment" => vec![(Object::VolumeAttachment, namespace, name)],
        "ResourceSlice" => vec![(Object::ResourceSlice, namespace, name)],
        "PodCertificateRequest" => vec![(Object::PodCertificateRequest, namespace, name)],
        _ => Vec::new(),
    };
    (node, places)
}

fn pod_ties(pod: &Value, namespace: &str, name: String) -> Vec<Place> {
    let mut places = vec![(Object::Pod, namespace.to_owned(), name.clone())];
    // A mirror pod is the node's own word: it must not open anything to it.
    if pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some() {
        return places;
    }
    let spec = &pod["spec"];
    let mut tie = |kind: Object, value: &Value| {
        if let Some(name) = value.as_str().filter(|name| !name.is_empty()) {
            places.push((kind, namespace.to_owned(), name.to_owned()));
        }
    };
    tie(Object::ServiceAccount, &spec["serviceAccountName"]);
    for secret in list(&spec["imagePullSecrets"]) {
        tie(Object::Secret, &secret["name"]);
    }
    references(spec, &mut tie);
    for volume in list(&spec["volumes"]) {
        tie(Object::PersistentVolumeClaim, &volume["persistentVolumeClaim"]["claimName"]);
        if volume.get("ephemeral").is_some() {
            let claim = format!("{name}-{}", text(&volume["name"]));
            tie(Object::PersistentVolumeClaim, &claim.into());
        }
    }
    for claim in list(&spec["resourceClaims"]) {
        tie(Object::ResourceClaim, &claim["resourceClaimName"]);
    }
    for claim in list(&pod["status"]["resourceClaimStatuses"]) {
        tie(Object::ResourceClaim, &claim["resourceClaimName"]);
    }
    tie(Object::ResourceClaim, &pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]);
    places
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The fields anywhere in a pod's spec that name a secret or a config map, and where the name is.
const REFERENCES: &[(&str, &str, Object)] = &[
    ("secretKeyRef", "name", Object::Secret),
    ("secretRef", "name", Object::Secret),
    ("nodePublishSecretRef", "name", Object::Secret),
    ("secret", "name", Object::Secret),
    ("secret", "secretName", Object::Secret),
    ("azureFile", "secretName", Object::Secret),
    ("configMapKeyRef", "name", Object::ConfigMap),
    ("configMapRef", "name", Object::ConfigMap),
    ("configMap", "name", Object::ConfigMap),
];

fn references(value: &Value, tie: &mut impl FnMut(Object, &Value)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                for (_, name, kind) in REFERENCES.iter().filter(|(field, ..)| field == key) {
                    tie(*kind, &value[*name]);
                }
                references(value, tie);
            }
        }
        Value::Array(all) => all.iter().for_each(|value| references(value, tie)),
        _ => {}
    }
}

/// The secrets that a node needs for a volume, each with its namespace.
fn volume_secrets(volume: &Value) -> Vec<(String, String)> {
    const FIELDS: [&str; 4] =
        ["secretRef", "nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];
    let spec = &volume["spec"];
    let home = text(&spec["claimRef"]["namespace"]);
    let place = |namespace: &Value| Some(text(namespace)).filter(|n| !n.is_empty());
    let mut all = Vec::new();
    for source in spec.as_object().into_iter().flat_map(|fields| fields.values()) {
        for reference in FIELDS.iter().filter_map(|field| source.get(*field)) {
            let namespace = place(&reference["namespace"]).unwrap_or_else(|| home.clone());
            all.push((namespace, text(&reference["name"])));
        }
    }
    if let Some(name) = spec["azureFile"]["secretName"].as_str() {
        let namespace = place(&spec["azureFile"]["secretNamespace"]);
        all.push((namespace.unwrap_or(home), name.to_owned()));
    }
    all
}
