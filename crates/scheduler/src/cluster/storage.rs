//! Claims, volumes and what is known of where they can be had.
use api::names::NamespacedName;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Default)]
pub struct Storage {
    pub claims: HashMap<NamespacedName, Arc<PersistentVolumeClaim>>,
    pub volumes: BTreeMap<Arc<str>, Arc<PersistentVolume>>,
    pub classes: HashMap<Arc<str>, Arc<StorageClass>>,
    pub csi_nodes: HashMap<Arc<str>, Arc<CSINode>>,
    pub csi_drivers: HashMap<Arc<str>, Arc<CSIDriver>>,
    pub capacities: BTreeMap<NamespacedName, Arc<CSIStorageCapacity>>,
    /// Volumes that drivers have attached to nodes, or are to, by node and name.
    attachments: HashMap<Box<str>, BTreeMap<Arc<str>, Arc<VolumeAttachment>>>,
    /// Volumes that were given to claims, until the API server tells so.
    pub given: HashMap<Box<str>, NamespacedName>,
    /// Claims that are to be provided for on a node, until the API server tells so.
    pub selected: HashMap<NamespacedName, String>,
}

/// The node that a claim is provided for on.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Set when a claim and its volume know of each other.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

impl Storage {
    pub fn set_volume(&mut self, name: &str, volume: Option<Arc<PersistentVolume>>) {
        let is_given = |volume: &PersistentVolume| {
            volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some())
        };
        if volume.as_deref().is_none_or(is_given) {
            self.given.remove(name);
        }
        match volume {
            Some(volume) => drop(self.volumes.insert(name.into(), volume)),
            None => drop(self.volumes.remove(name)),
        }
    }

    pub fn set_attachment(
        &mut self,
        name: Arc<str>,
        old: Option<&VolumeAttachment>,
        new: Option<Arc<VolumeAttachment>>,
    ) {
        if let Some(old) = old
            && let Some(all) = self.attachments.get_mut(old.spec.node_name.as_str())
        {
            all.remove(&name);
            if all.is_empty() {
                self.attachments.remove(old.spec.node_name.as_str());
            }
        }
        if let Some(new) = new {
            let all = self.attachments.entry(new.spec.node_name.as_str().into()).or_default();
            all.insert(name, new);
        }
    }

    /// What a node has attached, or is to.
    pub fn attachments(&self, node: &str) -> impl Iterator<Item = &Arc<VolumeAttachment>> {
        self.attachments.get(node).into_iter().flat_map(BTreeMap::values)
    }

    pub fn set_claim(&mut self, key: &NamespacedName, claim: Option<Arc<PersistentVolumeClaim>>) {
        if claim.as_deref().is_none_or(|claim| selected_node(claim).is_some()) {
            self.selected.remove(key);
        }
        match claim {
            Some(claim) => drop(self.claims.insert(key.clone(), claim)),
            None => drop(self.claims.remove(key)),
        }
    }
}

pub fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(claim, SELECTED_NODE)
}

/// Claim and volume know of each other.
pub fn is_fully_bound(claim: &PersistentVolumeClaim) -> bool {
    volume_name(claim).is_some() && annotation(claim, BIND_COMPLETED).is_some()
}

pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    let name = claim.spec.as_ref()?.volume_name.as_deref();
    name.filter(|name| !name.is_empty())
}

fn annotation<'a>(claim: &'a PersistentVolumeClaim, name: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// What said the class before there was a field for it; it still goes first.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The class that a claim is of.
pub fn class_of(claim: &PersistentVolumeClaim) -> &str {
    let spec = claim.spec.as_ref();
    let class = annotation(claim, OLD_CLASS).or_else(|| spec?.storage_class_name.as_deref());
    class.unwrap_or_default()
}

/// The class that a volume is of.
pub fn class_of_volume(volume: &PersistentVolume) -> &str {
    let old = volume.metadata.annotations.as_ref().and_then(|all| all.get(OLD_CLASS));
    let spec = volume.spec.as_ref();
    let class = old.map(String::as_str).or_else(|| spec?.storage_class_name.as_deref());
    class.unwrap_or_default()
}
