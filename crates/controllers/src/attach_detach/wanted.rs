//! Which volumes pods on a node need attached.
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A volume that a node's kubelet mounts once it is attached to the node.
#[derive(Debug, Clone, PartialEq)]
pub struct Volume {
    /// The PersistentVolume's, or that of the volume in the pod.
    pub name: String,
    /// As nodes' statuses call it.
    pub unique_name: String,
    pub means: Means,
    /// Several nodes may have it.
    pub is_shared: bool,
}

/// How a volume is attached.
#[derive(Debug, Clone, PartialEq)]
pub enum Means {
    /// A VolumeAttachment asks a CSI driver's own attacher for it.
    Driver { driver: String, handle: String },
    /// The node reaches it as it is: it is the node's when the node's status says so.
    Status,
}

/// Volumes that are attached by [`Means::Status`] have names that begin so.
const ISCSI: &str = "kubernetes.io/iscsi/";

/// Whether the volume of this name is attached by [`Means::Status`].
pub fn is_of_status(unique_name: &str) -> bool {
    unique_name.starts_with(ISCSI)
}

/// A disk of an iSCSI target, as nodes' statuses call it: with the portal as it was written.
pub fn iscsi_name(portal: &str, iqn: &str, lun: i32) -> String {
    format!("{ISCSI}{portal}:{iqn}:{lun}")
}

impl Volume {
    pub fn csi(name: String, driver: &str, handle: &str, is_shared: bool) -> Volume {
        Volume {
            name,
            unique_name: format!("kubernetes.io/csi/{driver}^{handle}"),
            means: Means::Driver { driver: driver.to_owned(), handle: handle.to_owned() },
            is_shared,
        }
    }

    fn iscsi(name: String, unique_name: String, is_shared: bool) -> Volume {
        Volume { name, unique_name, means: Means::Status, is_shared }
    }

    /// The name of its attachment to a node, if it has one: drivers and kubelets compute the same.
    pub fn attachment(&self, node: &str) -> Option<String> {
        use std::fmt::Write;
        let Means::Driver { driver, handle } = &self.means else { return None };
        let text = format!("{handle}{driver}{node}");
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        Some(digest.as_ref().iter().fold("csi-".to_owned(), |mut name, byte| {
            let _ = write!(name, "{byte:02x}");
            name
        }))
    }
}

fn volume(found: &PersistentVolume) -> Option<Volume> {
    let spec = found.spec.as_ref()?;
    let name = found.metadata.name.clone()?;
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    // Who does not say how it may be used leaves it to the driver.
    let is_shared = modes.is_empty()
        || modes.iter().any(|mode| matches!(&**mode, "ReadWriteMany" | "ReadOnlyMany"));
    if let Some(csi) = &spec.csi {
        return Some(Volume::csi(name, &csi.driver, &csi.volume_handle, is_shared));
    }
    let disk = spec.iscsi.as_ref()?;
    let unique_name = iscsi_name(&disk.target_portal, &disk.iqn, disk.lun);
    Some(Volume::iscsi(name, unique_name, is_shared))
}

/// Disks that a pod names itself. Nobody says how they may be used, so any node may have them, as upstream has
/// it (`IsMultiAttachAllowed` in `pkg/volume/util/util.go`).
fn inline(pod: &Pod) -> impl Iterator<Item = Volume> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let disk = volume.iscsi.as_ref()?;
        let unique_name = iscsi_name(&disk.target_portal, &disk.iqn, disk.lun);
        Some(Volume::iscsi(volume.name.clone(), unique_name, true))
    })
}

/// Most pods bring nothing that could be attached.
pub fn may_need(pod: &Pod) -> bool {
    !pods::claims(pod).is_empty() || inline(pod).next().is_some()
}

/// Volumes by their unique names, and the pods that use each.
pub type Wanted = BTreeMap<String, (Volume, Vec<Arc<Pod>>)>;

/// The volumes of a node's pods.
pub fn on(node: &str, world: &World) -> Wanted {
    let mut found = Wanted::new();
    for pod in pods_on(node, world) {
        if pods::is_finished(&pod) {
            continue;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let claims = pods::claims(&pod);
        let claimed = claims.iter().filter_map(|(claim, _)| {
            bound(&*world.find::<PersistentVolumeClaim>(namespace, claim)?, world)
        });
        for volume in claimed.chain(inline(&pod)) {
            if !is_attachable(&volume, world) {
                continue;
            }
            let name = volume.unique_name.clone();
            let (known, users) = found.entry(name).or_insert((volume.clone(), Vec::new()));
            // A disk may be claimed and named: what one of them forbids is forbidden.
            known.is_shared &= volume.is_shared;
            users.push(pod.clone());
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
fn is_attachable(volume: &Volume, world: &World) -> bool {
    let Means::Driver { driver, .. } = &volume.means else { return true };
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

/// The nodes that may wait for one of these volumes.
pub fn nodes_of_names(names: &[&str], world: &World) -> Vec<NamespacedName> {
    let informer = world.informer::<PersistentVolume>();
    let read = informer.read();
    let is_named = |found: &PersistentVolume| {
        volume(found).is_some_and(|volume| names.contains(&&*volume.unique_name))
    };
    let named = read.iter().filter(|(_, found)| is_named(found));
    named.flat_map(|(_, found)| nodes_of_volume(found, world)).collect()
}
