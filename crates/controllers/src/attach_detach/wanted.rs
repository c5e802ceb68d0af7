//! Which volumes pods on a node need attached.
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A volume that a CSI driver attaches.
#[derive(Debug, Clone, PartialEq)]
pub struct Volume {
    /// The PersistentVolume's.
    pub name: String,
    pub driver: String,
    pub handle: String,
    /// Several nodes may have it.
    pub is_shared: bool,
}

impl Volume {
    /// As kubelets call it.
    pub fn unique_name(&self) -> String {
        format!("kubernetes.io/csi/{}^{}", self.driver, self.handle)
    }

    /// The name of its attachment to a node: drivers and kubelets compute the same.
    pub fn attachment(&self, node: &str) -> String {
        use std::fmt::Write;
        let text = format!("{}{}{node}", self.handle, self.driver);
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        digest.as_ref().iter().fold("csi-".to_owned(), |mut name, byte| {
            let _ = write!(name, "{byte:02x}");
            name
        })
    }
}

fn volume(found: &PersistentVolume) -> Option<Volume> {
    let spec = found.spec.as_ref()?;
    let csi = spec.csi.as_ref()?;
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    Some(Volume {
        name: found.metadata.name.clone()?,
        driver: csi.driver.clone(),
        handle: csi.volume_handle.clone(),
        // Who does not say how it may be used leaves it to the driver.
        is_shared: modes.is_empty()
            || modes.iter().any(|mode| matches!(&**mode, "ReadWriteMany" | "ReadOnlyMany")),
    })
}

/// The volumes of a node's pods, by the name of the attachment, and the pods that use each.
pub fn on(node: &str, world: &World) -> BTreeMap<String, (Volume, Vec<Arc<Pod>>)> {
    let mut found = BTreeMap::<String, (Volume, Vec<Arc<Pod>>)>::new();
    for pod in pods_on(node, world) {
        if pods::is_finished(&pod) {
            continue;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        for (claim, _) in pods::claims(&pod) {
            let claim = world.find::<PersistentVolumeClaim>(namespace, &claim);
            let Some(volume) = claim.and_then(|claim| bound(&claim, world)) else { continue };
            if !is_attachable(&volume.driver, world) {
                continue;
            }
            let name = volume.attachment(node);
            found.entry(name).or_insert((volume, Vec::new())).1.push(pod.clone());
        }
    }
    found
}

fn pods_on(node: &str, world: &World) -> Vec<Arc<Pod>> {
    let informer = world.informer::<Pod>();
    let index = informer.index("node", |_, pod: &Pod| vec![pods::node(pod).to_owned()]);
    let read = informer.read();
    let mut found: Vec<_> = read.by(index, node).map(|(_, pod)| pod.clone()).collect();
    found.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    found
}

/// The volume of a claim, once each names the other.
fn bound(claim: &PersistentVolumeClaim, world: &World) -> Option<Volume> {
    let name = claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())?;
    let found = world.find::<PersistentVolume>("", name)?;
    let named = found.spec.as_ref()?.claim_ref.as_ref()?;
    if named.uid != claim.metadata.uid {
        return None;
    }
    volume(&found)
}

/// A driver that has not said otherwise attaches.
fn is_attachable(driver: &str, world: &World) -> bool {
    let driver = world.find::<CSIDriver>("", driver);
    driver.is_none_or(|driver| driver.spec.attach_required != Some(false))
}

/// The volume that an attachment is about.
pub fn of_attachment(attachment: &VolumeAttachment, world: &World) -> Option<Volume> {
    let name = attachment.spec.source.persistent_volume_name.as_deref()?;
    volume(&*world.find::<PersistentVolume>("", name)?)
}

pub fn nodes_of_claim(claim: &NamespacedName, world: &World) -> Vec<NamespacedName> {
    let informer = world.informer::<Pod>();
    let read = informer.read();
    let uses = |pod: &Pod| pods::claims(pod).iter().any(|(name, _)| *name == *claim.name);
    let here = read.in_namespace(&claim.namespace).filter(|(_, pod)| uses(pod));
    let nodes = here.map(|(_, pod)| pods::node(pod)).filter(|node| !node.is_empty());
    nodes.map(|node| NamespacedName::new("", node)).collect()
}

pub fn nodes_of_volume(volume: &PersistentVolume, world: &World) -> Vec<NamespacedName> {
    let claim = || {
        let named = volume.spec.as_ref()?.claim_ref.as_ref()?;
        Some(NamespacedName::new(named.namespace.as_deref()?, named.name.as_deref()?))
    };
    claim().map(|claim| nodes_of_claim(&claim, world)).unwrap_or_default()
}
