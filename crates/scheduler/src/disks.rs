//! Disks that a pod names itself, of the kinds that cannot be everywhere at once.
use k8s_openapi::api::core::v1::PodSpec;

/// A disk, and whether the pod only reads it. What a kind without that word says of itself is that it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    identity: Identity,
    reads_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Identity {
    Gce(Box<str>),
    Ebs(Box<str>),
    Iscsi(Box<str>),
    Rbd { monitors: Box<[String]>, pool: Box<str>, image: Box<str> },
}

pub fn disks(spec: &PodSpec) -> Box<[Disk]> {
    let of = |identity, reads_only: Option<bool>| Disk {
        identity,
        reads_only: reads_only.unwrap_or(false),
    };
    let volumes = spec.volumes.iter().flatten();
    let disks = volumes.filter_map(|volume| {
        if let Some(disk) = &volume.gce_persistent_disk {
            return Some(of(Identity::Gce(disk.pd_name.as_str().into()), disk.read_only));
        }
        if let Some(disk) = &volume.aws_elastic_block_store {
            return Some(of(Identity::Ebs(disk.volume_id.as_str().into()), None));
        }
        if let Some(disk) = &volume.iscsi {
            return Some(of(Identity::Iscsi(disk.iqn.as_str().into()), disk.read_only));
        }
        let disk = volume.rbd.as_ref()?;
        let identity = Identity::Rbd {
            monitors: disk.monitors.clone().into(),
            pool: disk.pool.as_deref().unwrap_or_default().into(),
            image: disk.image.as_str().into(),
        };
        Some(of(identity, disk.read_only))
    });
    disks.collect()
}

/// Drivers that have taken over from kinds of volumes: the provisioner of before, and the driver.
pub const MIGRATED: &[(&str, &str)] = &[
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
];

impl Disk {
    /// The driver that now has disks of its kind, and the disk's name there.
    pub fn migrated(&self) -> Option<(String, String)> {
        let (before, name) = match &self.identity {
            Identity::Ebs(id) => ("kubernetes.io/aws-ebs", id),
            Identity::Gce(name) => ("kubernetes.io/gce-pd", name),
            Identity::Iscsi(_) | Identity::Rbd { .. } => return None,
        };
        let (_, driver) = MIGRATED.iter().find(|(provisioner, _)| *provisioner == before)?;
        Some(((*driver).to_owned(), name.to_string()))
    }

    /// The same disk, and not all of both only read it (upstream's `isVolumeConflict`).
    pub fn conflicts(&self, other: &Disk) -> bool {
        let is_same = match (&self.identity, &other.identity) {
            (
                Identity::Rbd { monitors, pool, image },
                Identity::Rbd { monitors: others, pool: other_pool, image: other_image },
            ) => {
                pool == other_pool
                    && image == other_image
                    && monitors.iter().any(|monitor| others.contains(monitor))
            }
            (own, other) => own == other,
        };
        is_same && !(self.reads_only && other.reads_only)
    }
}
