//! What a volume holds and has room for: how it is measured depends on its kind, as upstream's `MetricsProvider`s
//! do (`pkg/volume/metrics_*.go`). What has no such provider there (hostPath, images) is not measured.
use crate::eviction::disk_use;
use k8s_openapi::api::core::v1::Volume;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// How a volume is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measure {
    /// A folder on a disk with others': its files are counted.
    Files(PathBuf),
    /// A file system of its own, which knows.
    FileSystem(PathBuf),
    /// A device, of which only the size is known.
    Device(PathBuf),
    /// Its driver knows, if it can tell.
    Csi { driver: String, handle: String, path: PathBuf },
}

impl Measure {
    /// The label `metric_source` of upstream's; counting files has none.
    pub fn source(&self) -> Option<&str> {
        match self {
            Measure::Files(_) => None,
            Measure::FileSystem(_) => Some("statfs"),
            Measure::Device(_) => Some("block"),
            Measure::Csi { driver, .. } => Some(driver),
        }
    }
}

/// In bytes, and in inodes. What is not known is 0, as upstream tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub available: u64,
    pub capacity: u64,
    pub used: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub inodes_used: u64,
}

/// How a volume is measured that is a folder of the pod's own.
pub fn own(volume: &Volume, path: &Path) -> Option<Measure> {
    let is_own = volume.empty_dir.is_some() || super::shows_objects(volume);
    is_own.then(|| Measure::Files(path.to_owned()))
}

/// Whether what a volume holds counts to what its pod may have of the node's disk (`IsLocalEphemeralVolume` of
/// `pkg/volume/util`).
pub fn is_ephemeral(volume: &Volume) -> bool {
    let on_disk = |medium: Option<&str>| medium.unwrap_or_default().is_empty();
    volume.config_map.is_some()
        || volume.empty_dir.as_ref().is_some_and(|source| on_disk(source.medium.as_deref()))
}

/// May take as long as the disk does, and a network's file system for ever.
pub fn files(path: &Path) -> io::Result<Usage> {
    let counted = disk_use(path);
    let used = |number: i64| u64::try_from(number).unwrap_or(0);
    let (used, inodes_used) = (used(counted.bytes), used(counted.inodes));
    Ok(Usage { used, inodes_used, ..file_system(path)? })
}

pub fn file_system(path: &Path) -> io::Result<Usage> {
    let disk = rustix::fs::statvfs(path)?;
    Ok(Usage {
        available: disk.f_bavail * disk.f_frsize,
        capacity: disk.f_blocks * disk.f_frsize,
        used: disk.f_blocks.saturating_sub(disk.f_bfree) * disk.f_frsize,
        inodes: disk.f_files,
        inodes_free: disk.f_ffree,
        inodes_used: disk.f_files.saturating_sub(disk.f_ffree),
    })
}

pub fn device(path: &Path) -> io::Result<Usage> {
    let capacity = File::open(path)?.seek(SeekFrom::End(0))?;
    Ok(Usage { capacity, ..Usage::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn volume(tree: Value) -> Volume {
        let mut tree = tree;
        tree["name"] = "v".into();
        serde_json::from_value(tree).unwrap()
    }

    #[test]
    fn folders_are_counted_and_file_systems_asked() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), vec![1u8; 100_000]).unwrap();
        let counted = files(folder.path()).unwrap();
        assert!((100_000..200_000).contains(&counted.used), "{counted:?}");
        assert_eq!(counted.inodes_used, 1);
        let whole = file_system(folder.path()).unwrap();
        assert!(whole.used >= counted.used && whole.capacity >= whole.used, "{whole:?}");
        assert_eq!(counted.capacity, whole.capacity);
        assert!(file_system(&folder.path().join("none")).is_err());
        // A file is as good as a device: both end somewhere.
        let size = device(&folder.path().join("file")).unwrap();
        assert_eq!(size, Usage { capacity: 100_000, ..Usage::default() });
    }

    #[test]
    fn kinds_are_told_apart() {
        let path = Path::new("/v");
        let check = |tree: Value, is_measured: bool, counts: bool| {
            let volume = volume(tree);
            assert_eq!(own(&volume, path).is_some(), is_measured, "{volume:?}");
            assert_eq!(is_ephemeral(&volume), counts, "{volume:?}");
        };
        check(json!({ "emptyDir": {} }), true, true);
        check(json!({ "emptyDir": { "medium": "Memory" } }), true, false);
        check(json!({ "configMap": { "name": "a" } }), true, true);
        check(json!({ "secret": { "secretName": "a" } }), true, false);
        check(json!({ "hostPath": { "path": "/" } }), false, false);
    }
}
