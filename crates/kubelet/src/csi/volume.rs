//! A volume of a CSI driver: what the API says of it, where it is on this machine, and what the
//! driver is asked. All of it is pure; the paths and names are upstream's (`pkg/volume/csi`), so
//! that a kubelet finds what another one left.
use super::proto::volume_capability::access_mode::Mode;
use super::proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use super::proto::{VolumeCapability, node_service_capability::rpc::Type};
use crate::pod;
use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{
    CSIVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod, SecretReference,
};
use k8s_openapi::api::storage::v1::CSIDriver;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Volume {
    /// Of the persistent volume, or of the volume in the pod if it lives with the pod.
    pub name: String,
    pub driver: String,
    pub handle: String,
    pub fs_type: String,
    pub attributes: BTreeMap<String, String>,
    pub read_only: bool,
    pub access_modes: Vec<String>,
    pub mount_options: Vec<String>,
    pub is_block: bool,
    /// It is made for the pod and goes with it.
    pub is_inline: bool,
    pub stage_secret: Option<SecretReference>,
    pub publish_secret: Option<SecretReference>,
    pub expand_secret: Option<SecretReference>,
    /// In bytes: how large it is to be, and how large its claim says that it is.
    pub capacity: i64,
    pub claimed: Option<Claimed>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claimed {
    pub namespace: String,
    pub name: String,
    pub capacity: i64,
    /// As the volume says it.
    pub wanted: String,
}

impl Volume {
    /// What a claim is bound to, if that is a driver's.
    pub fn of_claim(
        volume: &PersistentVolume,
        claim: &PersistentVolumeClaim,
        read_only: bool,
    ) -> Option<Volume> {
        let spec = volume.spec.as_ref()?;
        let source = spec.csi.clone()?;
        let storage = |list: Option<&BTreeMap<String, _>>| {
            let text: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity> =
                list.and_then(|list| list.get("storage"));
            text.map(|text| text.0.clone()).unwrap_or_default()
        };
        let bytes = |text: &str| Quantity::parse(text).map_or(0, |size| size.value());
        let wanted = storage(spec.capacity.as_ref());
        let has = storage(claim.status.as_ref().and_then(|status| status.capacity.as_ref()));
        Some(Volume {
            name: volume.metadata.name.clone().unwrap_or_default(),
            driver: source.driver,
            handle: source.volume_handle,
            fs_type: source.fs_type.unwrap_or_default(),
            attributes: source.volume_attributes.unwrap_or_default(),
            read_only,
            access_modes: spec.access_modes.clone().unwrap_or_default(),
            mount_options: spec.mount_options.clone().unwrap_or_default(),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            is_inline: false,
            stage_secret: source.node_stage_secret_ref,
            publish_secret: source.node_publish_secret_ref,
            expand_secret: source.node_expand_secret_ref,
            capacity: bytes(&wanted),
            claimed: Some(Claimed {
                namespace: claim.metadata.namespace.clone().unwrap_or_default(),
                name: claim.metadata.name.clone().unwrap_or_default(),
                capacity: bytes(&has),
                wanted,
            }),
        })
    }

    pub fn inline(pod: &Pod, name: &str, source: &CSIVolumeSource) -> Volume {
        let secret = source.node_publish_secret_ref.as_ref().map(|secret| SecretReference {
            name: Some(secret.name.clone()),
            namespace: pod.metadata.namespace.clone(),
        });
        Volume {
            name: name.to_owned(),
            driver: source.driver.clone(),
            handle: format!("csi-{}", digest(&format!("{}{name}", pod::uid(pod)))),
            fs_type: source.fs_type.clone().unwrap_or_default(),
            attributes: source.volume_attributes.clone().unwrap_or_default(),
            read_only: source.read_only == Some(true),
            is_inline: true,
            publish_secret: secret,
            ..Volume::default()
        }
    }

    /// How the node's status names it.
    pub fn unique_name(&self) -> String {
        unique_name(&self.driver, &self.handle)
    }

    pub fn attachment(&self, node: &str) -> String {
        format!("csi-{}", digest(&format!("{}{}{node}", self.handle, self.driver)))
    }

    pub fn lifecycle(&self) -> &'static str {
        if self.is_inline { "Ephemeral" } else { "Persistent" }
    }

    /// `group`: what the driver gives to the pod's group itself, if it can.
    pub fn capability(&self, can: &[Type], group: Option<i64>) -> VolumeCapability {
        let many = can.contains(&Type::SingleNodeMultiWriter);
        let first = self.access_modes.first().map_or("ReadWriteOnce", String::as_str);
        let mode = match first {
            "ReadWriteOnce" if many => Mode::SingleNodeMultiWriter,
            "ReadWriteOncePod" if many => Mode::SingleNodeSingleWriter,
            "ReadWriteOnce" | "ReadWriteOncePod" => Mode::SingleNodeWriter,
            "ReadOnlyMany" => Mode::MultiNodeReaderOnly,
            "ReadWriteMany" => Mode::MultiNodeMultiWriter,
            _ => Mode::Unknown,
        };
        let group = group.filter(|_| can.contains(&Type::VolumeMountGroup));
        let access_type = match self.is_block {
            true => AccessType::Block(BlockVolume {}),
            false => AccessType::Mount(MountVolume {
                fs_type: self.fs_type.clone(),
                mount_flags: self.mount_options.clone(),
                volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
            }),
        };
        VolumeCapability {
            access_mode: Some(AccessMode { mode: mode.into() }),
            access_type: Some(access_type),
        }
    }

    /// Whether the kubelet gives the volume's files to the pod's group.
    pub fn takes_group(&self, driver: Option<&CSIDriver>, can: &[Type]) -> bool {
        let policy = driver.and_then(|driver| driver.spec.fs_group_policy.as_deref());
        if self.is_block || self.read_only || can.contains(&Type::VolumeMountGroup) {
            return false;
        }
        match policy.unwrap_or("ReadWriteOnceWithFSType") {
            "None" => false,
            "File" => true,
            _ => {
                let once = self.access_modes.iter().any(|mode| mode == "ReadWriteOnce");
                !self.fs_type.is_empty() && (self.is_inline || once)
            }
        }
    }

    /// Why a driver cannot have such a volume.
    pub fn fits(&self, driver: Option<&CSIDriver>) -> Result<(), String> {
        let mode = self.lifecycle();
        match driver {
            None if !self.is_inline => Ok(()),
            None => Err(format!(
                "volume mode \"{mode}\" not supported by driver {} (no CSIDriver object)",
                self.driver
            )),
            Some(driver) => {
                let modes = driver.spec.volume_lifecycle_modes.as_deref();
                let modes = modes.filter(|modes| !modes.is_empty());
                let all = modes
                    .map_or(vec!["Persistent"], |all| all.iter().map(String::as_str).collect());
                let told: Vec<String> = all.iter().map(|mode| format!("{mode:?}")).collect();
                match all.contains(&mode) {
                    true => Ok(()),
                    false => Err(format!(
                        "volume mode \"{mode}\" not supported by driver {} (only supports [{}])",
                        self.driver,
                        told.join(" ")
                    )),
                }
            }
        }
    }

    /// What a driver is told of the pod, if it wants to know.
    pub fn about(&self, pod: &Pod) -> HashMap<String, String> {
        let account = pod::spec(pod).service_account_name.clone().unwrap_or_default();
        let rows = [
            ("pod.name", pod::name(pod).to_owned()),
            ("pod.namespace", pod::namespace(pod).to_owned()),
            ("pod.uid", pod::uid(pod).to_owned()),
            ("serviceAccount.name", account),
            ("ephemeral", self.is_inline.to_string()),
        ];
        rows.map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value)).into()
    }
}

pub fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Where a volume is on this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Where the driver prepares it once, for all pods.
    pub staging: PathBuf,
    /// Says whose the staging is.
    pub staging_data: PathBuf,
    /// What the pod sees.
    pub target: PathBuf,
    /// Says whose the target is.
    pub target_data: PathBuf,
}

impl Place {
    pub fn of(root: &Path, uid: &str, volume: &Volume) -> Place {
        let plugin = root.join("plugins/kubernetes.io/csi");
        let pod = root.join("pods").join(uid);
        if volume.is_block {
            let devices = plugin.join("volumeDevices");
            return Place {
                staging: devices.join("staging").join(&volume.name),
                staging_data: devices.join(&volume.name).join("data").join(DATA),
                target: devices.join("publish").join(&volume.name).join(uid),
                target_data: pod
                    .join("volumeDevices/kubernetes.io~csi")
                    .join(&volume.name)
                    .join(DATA),
            };
        }
        let staged = plugin.join(&volume.driver).join(digest(&volume.handle));
        let own = pod.join("volumes/kubernetes.io~csi").join(&volume.name);
        Place {
            staging: staged.join("globalmount"),
            staging_data: staged.join(DATA),
            target: own.join("mount"),
            target_data: own.join(DATA),
        }
    }
}

pub const DATA: &str = "vol_data.json";

/// What is written beside a volume, for whoever takes it away.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Data {
    #[serde(rename = "specVolID")]
    pub name: String,
    #[serde(rename = "volumeHandle")]
    pub handle: String,
    #[serde(rename = "driverName")]
    pub driver: String,
    pub node_name: String,
    pub volume_lifecycle_mode: String,
    #[serde(rename = "attachmentID")]
    pub attachment: String,
}

impl Data {
    pub fn new(volume: &Volume, node: &str) -> Data {
        Data {
            name: volume.name.clone(),
            handle: volume.handle.clone(),
            driver: volume.driver.clone(),
            node_name: node.to_owned(),
            volume_lifecycle_mode: volume.lifecycle().to_owned(),
            attachment: volume.attachment(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claimed(spec: Value) -> Volume {
        let volume = json!({ "metadata": { "name": "pv1" }, "spec": spec });
        let claim = json!({ "metadata": { "name": "c", "namespace": "n" }, "status": { "capacity": { "storage": "1Gi" } } });
        let (volume, claim) =
            (serde_json::from_value(volume).unwrap(), serde_json::from_value(claim).unwrap());
        Volume::of_claim(&volume, &claim, false).unwrap()
    }

    fn driver(spec: Value) -> CSIDriver {
        serde_json::from_value(json!({ "metadata": { "name": "d" }, "spec": spec })).unwrap()
    }

    #[test]
    fn places_and_names_are_upstreams() {
        let volume = claimed(json!({ "csi": { "driver": "d", "volumeHandle": "h" } }));
        let place = Place::of(Path::new("/k"), "u", &volume);
        let sha = "aaa9402664f1a41f40ebbc52c9993eb66aeb366602958fdfaa283b71e64db123";
        assert_eq!(
            place.staging,
            Path::new(&format!("/k/plugins/kubernetes.io/csi/d/{sha}/globalmount"))
        );
        assert_eq!(place.target, Path::new("/k/pods/u/volumes/kubernetes.io~csi/pv1/mount"));
        assert_eq!(volume.unique_name(), "kubernetes.io/csi/d^h");
        assert_eq!(volume.attachment("n1").len(), 4 + 64);
        let data = serde_json::to_value(Data::new(&volume, "n1")).unwrap();
        assert_eq!(data["specVolID"], "pv1");
        assert_eq!(data["volumeLifecycleMode"], "Persistent");
    }

    #[test]
    fn groups_are_given_as_the_driver_says() {
        let once = claimed(json!({ "accessModes": ["ReadWriteOnce"],
            "csi": { "driver": "d", "volumeHandle": "h", "fsType": "ext4" } }));
        let many = Volume { access_modes: vec!["ReadWriteMany".to_owned()], ..once.clone() };
        let plain = Volume { fs_type: String::new(), ..once.clone() };
        let file = driver(json!({ "fsGroupPolicy": "File" }));
        let none = driver(json!({ "fsGroupPolicy": "None" }));
        assert!(once.takes_group(None, &[]));
        assert!(!many.takes_group(None, &[]) && !plain.takes_group(None, &[]));
        assert!(many.takes_group(Some(&file), &[]) && plain.takes_group(Some(&file), &[]));
        assert!(!once.takes_group(Some(&none), &[]));
        assert!(!once.takes_group(Some(&file), &[Type::VolumeMountGroup]));
    }

    #[test]
    fn only_a_driver_that_says_so_has_volumes_that_live_with_pods() {
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "uid": "u" } })).unwrap();
        let source = CSIVolumeSource { driver: "d".to_owned(), ..CSIVolumeSource::default() };
        let inline = Volume::inline(&pod, "v", &source);
        assert_eq!(
            inline.fits(None).unwrap_err(),
            "volume mode \"Ephemeral\" not supported by driver d (no CSIDriver object)"
        );
        assert_eq!(
            inline.fits(Some(&driver(json!({})))).unwrap_err(),
            "volume mode \"Ephemeral\" not supported by driver d (only supports [\"Persistent\"])"
        );
        let both = driver(json!({ "volumeLifecycleModes": ["Persistent", "Ephemeral"] }));
        assert_eq!(inline.fits(Some(&both)), Ok(()));
    }

    #[test]
    fn access_modes_are_mapped() {
        let check = |mode: &str, can: &[Type], expected: Mode| {
            let volume = Volume { access_modes: vec![mode.to_owned()], ..Volume::default() };
            let capability = volume.capability(can, Some(7));
            assert_eq!(capability.access_mode.unwrap().mode(), expected, "{mode}");
        };
        check("ReadWriteOnce", &[], Mode::SingleNodeWriter);
        check("ReadWriteOncePod", &[], Mode::SingleNodeWriter);
        check("ReadWriteOncePod", &[Type::SingleNodeMultiWriter], Mode::SingleNodeSingleWriter);
        check("ReadOnlyMany", &[], Mode::MultiNodeReaderOnly);
        let block = Volume { is_block: true, ..Volume::default() };
        assert!(matches!(block.capability(&[], None).access_type, Some(AccessType::Block(_))));
    }
}
