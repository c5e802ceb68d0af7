//! Disks of iSCSI targets, as upstream has them (`pkg/volume/iscsi`): the machine's `iscsiadm` speaks with
//! the target, the kernel has the session, and a disk is mounted once for all pods of the node.
//!
//! ```text
//!  disk     what the API says of a disk; where it is here; the file beside it          (pure)
//!  attach   portals → logins → a device
//!  format   a device → a mounted file system, made where there is nothing
//!  detach   the last pod is gone → unmount, log out, forget
//!  host     programs, sessions, devices and mounts of this machine
//! ```
//! ```text
//!  plugins/kubernetes.io/iscsi/iface-IFACE/PORTAL-IQN-lun-LUN                  the file system
//!  pods/UID/volumes/kubernetes.io~iscsi/NAME                                   the same, for a pod
//!  plugins/kubernetes.io/iscsi/volumeDevices/iface-IFACE/PORTAL-IQN-lun-LUN/UID   a device, for a pod
//! ```
//! Nothing is remembered: the kernel's mounts say who has a disk, the names of folders and `iscsi.json` in
//! them what to log out of.
mod attach;
mod detach;
mod disk;
mod format;
mod host;
#[cfg(test)]
mod tests;

pub use disk::{Chap, Disk};
pub use host::Host;

use super::in_use::InUse;
use super::ownership;
use crate::turns::Turns;
use disk::Record;
use host::{Mount, name_of};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum IscsiError {
    #[error(
        "iscsiadm is not installed on this node: install open-iscsi (Debian, Ubuntu, SUSE) or \
         iscsi-initiator-utils (Fedora, Red Hat), and have iscsid running"
    )]
    NoInitiator,
    #[error("{program} is not installed on this node")]
    NoProgram { program: String },
    #[error("{program} did not end within {seconds}s")]
    TimedOut { program: String, seconds: u64 },
    #[error("failed to run {program}: {source}")]
    Run { program: String, source: io::Error },
    #[error("Timed out waiting for device at path {path} after {seconds}s")]
    NoDevice { path: String, seconds: u64 },
    #[error("{doing}: {said}")]
    Failed { doing: String, said: String },
    #[error("failed to {operation} {path}: {source}")]
    Io { operation: &'static str, path: String, source: io::Error },
}

/// Whom a pod's files belong to.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    pub id: i64,
    /// Not if the topmost folder is the group's already.
    pub only_if_needed: bool,
}

/// Disks of this node.
pub struct Iscsi {
    host: Host,
    /// By target: one pod's login must not meet another's logout.
    turns: Turns,
}

impl Iscsi {
    pub fn new(host: Host) -> Iscsi {
        Iscsi { host, turns: Turns::default() }
    }

    /// Where a pod has a disk, if it has it.
    pub fn mounted(&self, root: &Path, uid: &str, disk: &Disk) -> Option<PathBuf> {
        let target = disk.target(root, uid);
        let is_done = self.host.mounts().iter().any(|mount| {
            mount.point == target && (mount.is_read_only || !is_bound_read_only(disk))
        });
        is_done.then_some(target)
    }

    /// Makes a disk ready for a pod: where the pod has it. What fails says at what.
    pub async fn mount(
        &self,
        root: &Path,
        uid: &str,
        disk: &Disk,
        chap: &Chap,
        group: Option<Group>,
    ) -> Result<PathBuf, String> {
        let kind = if disk.is_block { "MapVolume" } else { "MountVolume" };
        let at = |operation: &'static str| {
            move |error: IscsiError| {
                format!("{kind}.{operation} failed for volume \"{}\" : {error}", disk.name)
            }
        };
        let (host, folder) = (&self.host, disk.folder(root));
        let target = disk.target(root, uid);
        let _turn = self.turns.wait(&disk.iqn).await;
        let is_mounted = host.mounts().iter().any(|mount| mount.point == folder);
        if disk.is_block {
            let device = attach::attach(host, disk, chap, &folder).await;
            let device = device.map_err(at("WaitForAttach"))?;
            self.bind(disk, &device, &target).await.map_err(at("MapPodDevice"))?;
            return Ok(target);
        }
        if !is_mounted {
            let device = attach::attach(host, disk, chap, &folder).await;
            let device = device.map_err(at("WaitForAttach"))?;
            let mounted = format::mount(host, disk, &device, &folder).await;
            mounted.map_err(at("MountDevice"))?;
        }
        // Before the pod has it: what fails here is tried again.
        if let Some(group) = group {
            self.give(disk, &folder, group).await.map_err(at("SetUp"))?;
        }
        self.bind(disk, &folder, &target).await.map_err(at("SetUp"))?;
        Ok(target)
    }

    async fn give(&self, disk: &Disk, folder: &Path, group: Group) -> Result<(), IscsiError> {
        // The first pod that has a disk says how it is mounted.
        let mounts = self.host.mounts();
        let is_own = |mount: &Mount| mount.point == folder && mount.is_read_only;
        if disk.read_only || mounts.iter().any(is_own) {
            return Ok(());
        }
        let folder = folder.to_owned();
        let given = tokio::task::spawn_blocking(move || {
            ownership::give(&folder, group.id, group.only_if_needed).map_err(|error| error.line())
        });
        let given = given.await.unwrap_or_else(|error| Err(error.to_string()));
        given.map_err(|said| IscsiError::Failed { doing: "applyFSGroup failed".to_owned(), said })
    }

    async fn bind(&self, disk: &Disk, source: &Path, target: &Path) -> Result<(), IscsiError> {
        let (from, to) = (source.display().to_string(), target.display().to_string());
        if !self.host.mounts().iter().any(|mount| mount.point == target) {
            let made = match disk.is_block {
                true => fs::File::create(target).map(drop),
                false => fs::DirBuilder::new().recursive(true).mode(0o750).create(target),
            };
            made.map_err(|source| IscsiError::Io {
                operation: "create",
                path: to.clone(),
                source,
            })?;
            let words = ["-o", "bind", "--", &from, &to];
            self.host.run("mount", &words).await?.or_failed("mount failed")?;
        }
        if is_bound_read_only(disk) {
            let words = ["-o", "bind,remount,ro", "--", &from, &to];
            self.host.run("mount", &words).await?.or_failed("mount failed")?;
        }
        Ok(())
    }

    /// Takes a pod's disks away from it, and from this machine if nobody else has them.
    pub async fn unmount(&self, root: &Path, uid: &str) -> Result<(), String> {
        let folders = detach::folders(root);
        if folders.is_empty() {
            return Ok(());
        }
        let (mounts, volumes) = (self.host.mounts(), disk::pod_volumes(root, uid));
        let mut left = BTreeSet::new();
        for mount in mounts.iter().rev() {
            let is_volume = mount.point.starts_with(&volumes);
            let of = folders.iter().find(|folder| match is_volume {
                true => mounts
                    .iter()
                    .any(|other| other.point == **folder && other.device == mount.device),
                false => mount.point == folder.join(uid),
            });
            if !is_volume && of.is_none() {
                continue;
            }
            self.unbind(&mount.point).await.map_err(|error| {
                let name = name_of(&mount.point);
                format!("UnmountVolume.TearDown failed for volume \"{name}\" : {error}")
            })?;
            left.extend(of);
        }
        for folder in left {
            // The pod has let go of it: what is left to do is no concern of the pod's.
            if let Err(error) = self.detach(root, folder).await {
                tracing::warn!("failed to detach {}: {error}", folder.display());
            }
        }
        Ok(())
    }

    /// Not lazily: what is still written to keeps its disk.
    async fn unbind(&self, point: &Path) -> Result<(), IscsiError> {
        let shown = point.display().to_string();
        let said = self.host.run("umount", &["--", &shown]).await?;
        said.or_failed(format!("failed to unmount {shown}"))?;
        // These remove only what is empty.
        let _ = fs::remove_dir(point).or_else(|_| match point.is_dir() {
            true => Ok(()),
            false => fs::remove_file(point),
        });
        Ok(())
    }

    async fn detach(&self, root: &Path, folder: &Path) -> Result<(), IscsiError> {
        let Some(record) = Record::of_folder(folder) else { return Ok(()) };
        let _turn = self.turns.wait(&record.iqn).await;
        detach::detach(&self.host, root, folder).await
    }

    /// Disks that no pod has: left by a kubelet that was killed, or by pods that never had theirs.
    pub async fn detach_orphans(&self, root: &Path) {
        for folder in detach::folders(root) {
            let Some(record) = Record::of_folder(&folder) else { continue };
            // Somebody is at work on it; there is a next time.
            let Some(_turn) = self.turns.try_now(&record.iqn) else { continue };
            if let Err(error) = detach::detach(&self.host, root, &folder).await {
                tracing::warn!("failed to detach {}: {error}", folder.display());
            }
        }
    }
}

/// Of a device only the container's rights to it can be less.
fn is_bound_read_only(disk: &Disk) -> bool {
    disk.read_only && !disk.is_block
}

/// Disks that an earlier kubelet has left on this machine are in use.
pub fn take_up(root: &Path, in_use: &InUse) {
    for folder in detach::folders(root) {
        let names = Record::of_folder(&folder).map(|record| record.unique_names());
        for name in names.into_iter().flatten() {
            in_use.take_up(name, &folder);
        }
    }
}

/// The folders of disks that a kubelet with this root has on this machine.
pub fn attached(root: &Path) -> Vec<PathBuf> {
    detach::folders(root)
}

/// Logs out of what nobody uses any more; false if somebody does. No kubelet runs.
pub async fn log_out(root: &Path, folder: &Path) -> Result<bool, IscsiError> {
    detach::detach(&Host::default(), root, folder).await?;
    Ok(!folder.exists())
}
