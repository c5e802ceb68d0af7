//! Volumes that are claims: what a claim is bound to takes its place.
use super::local::Local;
use super::{Kubelet, Memory};
use crate::csi;
use crate::pod;
use crate::volumes::Places;
use crate::volumes::iscsi::{Chap, Disk, Group};
use crate::volumes::nfs::Share;
use crate::volumes::usage::Measure;
use api::rules::Form;
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, NFSVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod, Secret,
    SecretReference, Volume,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A pod's volumes that the host has now.
pub struct Resolved<'p> {
    /// The pod with volumes of the host in the place of its claims and of drivers' volumes.
    pub pod: Cow<'p, Pod>,
    /// Block devices on the host, by the names of volumes.
    pub devices: Places,
    /// How those are measured that are neither the host's nor the pod's own.
    pub measures: BTreeMap<String, Measure>,
}

/// Where a claim leads.
enum Source {
    Host(HostPathVolumeSource),
    Local(Local),
    Device(PathBuf),
    Csi(Box<csi::Volume>),
    Nfs(Share),
    Iscsi(Box<Disk>),
}

impl Source {
    fn is_block(&self) -> bool {
        match self {
            Source::Host(_) | Source::Local(_) | Source::Nfs(_) => false,
            Source::Device(_) => true,
            Source::Csi(volume) => volume.is_block,
            Source::Iscsi(disk) => disk.is_block,
        }
    }
}

/// A device is passed into containers, a file system is mounted in them.
fn mode_fits(pod: &Pod, name: &str, is_block: bool) -> Result<(), String> {
    let mut all = pod::containers(pod).map(|(_, one)| one);
    let is_wrong = match is_block {
        true => all.any(|one| one.volume_mounts.iter().flatten().any(|use_| use_.name == name)),
        false => all.any(|one| one.volume_devices.iter().flatten().any(|use_| use_.name == name)),
    };
    let (mode, list) =
        if is_block { ("Block", "volumeMounts") } else { ("Filesystem", "volumeDevices") };
    match is_wrong {
        true => Err(format!("volume {name} has volumeMode {mode}, but is specified in {list}")),
        false => Ok(()),
    }
}

impl Kubelet {
    /// Mounts what has to be mounted.
    pub(super) async fn with_claims<'p>(
        &self,
        pod: &'p Pod,
        memory: &Memory,
    ) -> Result<Resolved<'p>, String> {
        let mut resolved =
            Resolved { pod: Cow::Borrowed(pod), devices: Places::new(), measures: BTreeMap::new() };
        let volumes = pod::spec(pod).volumes.iter().flatten();
        for (at, volume) in volumes.enumerate() {
            let failed = |why: String| {
                format!("MountVolume.SetUp failed for volume \"{}\" : {why}", volume.name)
            };
            let source = if let Some(source) = &volume.csi {
                Source::Csi(Box::new(csi::Volume::inline(pod, &volume.name, source)))
            } else if let Some(source) = &volume.nfs {
                Source::Nfs(share(source, &[]))
            } else if let Some(source) = &volume.iscsi {
                let disk = Disk::inline(pod, &volume.name, source).map_err(failed)?;
                Source::Iscsi(Box::new(disk))
            } else if let Some(claim) = claim_of(pod, volume) {
                let own = volume.persistent_volume_claim.as_ref();
                let read_only = own.is_some_and(|own| own.read_only == Some(true));
                self.bound_to(pod, memory, &claim, read_only).await.map_err(failed)?
            } else {
                continue;
            };
            mode_fits(pod, &volume.name, source.is_block())?;
            let mut measured = |measure: Measure| {
                resolved.measures.insert(volume.name.clone(), measure);
            };
            let place = match source {
                Source::Host(source) => source,
                Source::Local(local) => {
                    self.give_local(pod, &local).await.map_err(failed)?;
                    measured(Measure::FileSystem(PathBuf::from(&local.path)));
                    HostPathVolumeSource { path: local.path, type_: Some("Directory".to_owned()) }
                }
                Source::Nfs(share) => {
                    let folder = self.config.pod_folder(pod::uid(pod));
                    let path = folder.join("volumes/kubernetes.io~nfs").join(&volume.name);
                    let mounted = share.mount(&volume.name, &path).await;
                    mounted.map_err(|error| error.line())?;
                    measured(Measure::FileSystem(path.clone()));
                    HostPathVolumeSource { path: path.display().to_string(), type_: None }
                }
                Source::Csi(volume) if !volume.is_block => {
                    let path = self.mount_csi(pod, &volume).await?;
                    measured(by_driver(&volume, &path));
                    HostPathVolumeSource { path: path.display().to_string(), type_: None }
                }
                Source::Csi(block) => {
                    let path = self.mount_csi(pod, &block).await?;
                    measured(by_driver(&block, &path));
                    resolved.devices.insert(volume.name.clone(), path);
                    HostPathVolumeSource { path: "/dev/null".to_owned(), type_: None }
                }
                Source::Iscsi(disk) if !disk.is_block => {
                    let path = Box::pin(self.mount_iscsi(pod, &disk)).await?;
                    measured(Measure::FileSystem(path.clone()));
                    HostPathVolumeSource { path: path.display().to_string(), type_: None }
                }
                Source::Iscsi(disk) => {
                    let path = Box::pin(self.mount_iscsi(pod, &disk)).await?;
                    measured(Measure::Device(path.clone()));
                    resolved.devices.insert(volume.name.clone(), path);
                    HostPathVolumeSource { path: "/dev/null".to_owned(), type_: None }
                }
                Source::Device(path) => {
                    measured(Measure::Device(path.clone()));
                    resolved.devices.insert(volume.name.clone(), path);
                    HostPathVolumeSource { path: "/dev/null".to_owned(), type_: None }
                }
            };
            let spec = resolved.pod.to_mut().spec.get_or_insert_default();
            let volume = &mut spec.volumes.get_or_insert_default()[at];
            *volume =
                Volume { name: volume.name.clone(), host_path: Some(place), ..Volume::default() };
        }
        Ok(resolved)
    }

    async fn bound_to(
        &self,
        pod: &Pod,
        memory: &Memory,
        name: &str,
        read_only: bool,
    ) -> Result<Source, String> {
        let namespace = pod::namespace(pod);
        let claim: PersistentVolumeClaim = self.read(memory, namespace, name).await?;
        let phase = claim.status.as_ref().and_then(|status| status.phase.clone());
        let phase = phase.unwrap_or_default();
        let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        let bound = bound.unwrap_or_default();
        if phase != "Bound" || bound.is_empty() {
            return Err(format!(
                "PVC {namespace}/{name} has non-bound phase ({phase:?}) or empty \
                 pvc.Spec.VolumeName ({bound:?})"
            ));
        }
        let volume: PersistentVolume = self.read(memory, "", &bound).await?;
        if let Some(volume) = csi::Volume::of_claim(&volume, &claim, read_only) {
            return Ok(Source::Csi(Box::new(volume)));
        }
        if let Some(disk) = Disk::of_claim(&volume, namespace, read_only)? {
            return Ok(Source::Iscsi(Box::new(disk)));
        }
        Ok(match source_of(&volume, &bound)? {
            Source::Nfs(share) => {
                Source::Nfs(Share { read_only: share.read_only || read_only, ..share })
            }
            Source::Local(local) => Source::Local(Local { read_only, ..local }),
            source => source,
        })
    }

    /// Where a pod has a disk of an iSCSI target.
    async fn mount_iscsi(&self, pod: &Pod, disk: &Disk) -> Result<PathBuf, String> {
        let (root, uid) = (&self.config.root, pod::uid(pod));
        if self.in_use.want(&disk.unique_name, &disk.folder(root), uid) {
            self.config.look_again.notify_one();
        }
        if let Some(path) = self.iscsi.mounted(root, uid, disk) {
            return Ok(path);
        }
        self.verify_attached(&disk.unique_name, &disk.name).await?;
        let chap = match &disk.secret {
            None => Chap::default(),
            Some(secret) => self.chap(secret).await.map_err(|why| {
                format!("MountVolume.SetUp failed for volume \"{}\" : {why}", disk.name)
            })?,
        };
        let context = pod::spec(pod).security_context.as_ref();
        let policy = context.and_then(|all| all.fs_group_change_policy.as_deref());
        let only_if_needed = policy == Some("OnRootMismatch");
        let group = context.and_then(|all| all.fs_group).map(|id| Group { id, only_if_needed });
        self.iscsi.mount(root, uid, disk, &chap, group).await
    }

    async fn chap(&self, reference: &SecretReference) -> Result<Chap, String> {
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        let name = reference.name.as_deref().unwrap_or_default();
        let secret = self.client.get::<Secret>(namespace, name).await.map_err(|status| {
            format!("couldn't get secret {namespace}/{name} error: {}", status.message)
        })?;
        Chap::of(&secret.decode::<Secret>().map_err(|error| error.to_string())?)
    }

    async fn read<T: Form>(
        &self,
        memory: &Memory,
        namespace: &str,
        name: &str,
    ) -> Result<T, String> {
        let object = self.look_up::<T>(memory, namespace, name).await;
        let object = object.map_err(|status| status.message)?;
        let object = object.ok_or_else(|| format!("{name:?} not found"))?;
        object.decode::<T>().map_err(|error| error.to_string())
    }
}

/// A volume that is made for one pod has a claim of the pod's name.
pub(super) fn claim_of(pod: &Pod, volume: &Volume) -> Option<String> {
    if volume.ephemeral.is_some() {
        return Some(format!("{}-{}", pod::name(pod), volume.name));
    }
    volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone())
}

fn by_driver(volume: &csi::Volume, path: &Path) -> Measure {
    let (driver, handle) = (volume.driver.clone(), volume.handle.clone());
    Measure::Csi { driver, handle, path: path.to_owned() }
}

fn share(source: &NFSVolumeSource, options: &[String]) -> Share {
    Share {
        server: source.server.clone(),
        path: source.path.clone(),
        read_only: source.read_only == Some(true),
        options: options.to_vec(),
    }
}

fn source_of(volume: &PersistentVolume, name: &str) -> Result<Source, String> {
    let spec = volume.spec.clone().unwrap_or_default();
    if let Some(source) = &spec.nfs {
        return Ok(Source::Nfs(share(source, spec.mount_options.as_deref().unwrap_or_default())));
    }
    match (spec.host_path, spec.local) {
        (Some(source), _) => Ok(Source::Host(source)),
        (None, Some(local)) if spec.volume_mode.as_deref() == Some("Block") => {
            Ok(Source::Device(PathBuf::from(local.path)))
        }
        // What is local is there before it is used.
        (None, Some(local)) => {
            Ok(Source::Local(Local { name: name.to_owned(), path: local.path, read_only: false }))
        }
        (None, None) => Err(format!(
            "persistent volume {name:?} is of a kind that this kubelet does not support"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn claims_are_named_and_sources_known() {
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "web" } })).unwrap();
        let named = |volume: serde_json::Value| {
            claim_of(&pod, &serde_json::from_value(volume).unwrap()).unwrap_or_default()
        };
        assert_eq!(named(json!({ "name": "v", "emptyDir": {} })), "");
        assert_eq!(
            named(json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c" } })),
            "c"
        );
        assert_eq!(named(json!({ "name": "v", "ephemeral": {} })), "web-v");
        let source = |spec: serde_json::Value| {
            let volume = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
            source_of(&volume, "p").map(|source| match source {
                Source::Host(source) => (source.path, source.type_.unwrap_or_default()),
                Source::Local(local) => (local.path, local.name),
                Source::Device(path) => (path.display().to_string(), "device".to_owned()),
                Source::Csi(volume) => (volume.handle, "csi".to_owned()),
                Source::Nfs(share) => (share.path, share.options.join(",")),
                Source::Iscsi(disk) => (disk.iqn, "iscsi".to_owned()),
            })
        };
        let text = |text: &str| text.to_owned();
        assert_eq!(source(json!({ "hostPath": { "path": "/a" } })), Ok((text("/a"), text(""))));
        assert_eq!(source(json!({ "local": { "path": "/b" } })), Ok((text("/b"), text("p"))));
        assert_eq!(
            source(json!({ "nfs": { "server": "s", "path": "/" }, "mountOptions": ["hard"] })),
            Ok((text("/"), text("hard")))
        );
        assert!(source(json!({ "fc": { "targetWWNs": ["w"], "lun": 0 } })).is_err());
    }
}
