//! Volumes that this node uses, as its status names them (`volumesInUse`): the control plane leaves those
//! attached. A volume is in use from the moment at which a pod wants it until nothing of it is left on this
//! machine (`GetVolumesInUse` in upstream's `pkg/kubelet/volumemanager/volume_manager.go`).
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// By the volumes' unique names: `kubernetes.io/csi/DRIVER^HANDLE`.
#[derive(Default)]
pub struct InUse(Mutex<BTreeMap<String, Keepers>>);

/// Why a volume is in use.
#[derive(Default)]
struct Keepers {
    /// Pods that have it or wait for it, by uid.
    pods: BTreeSet<String>,
    /// Files that are there as long as this machine has the volume, whichever kubelet brought it here.
    places: BTreeSet<PathBuf>,
}

impl Keepers {
    fn are_there(&self) -> bool {
        !self.pods.is_empty() || self.places.iter().any(|place| place.exists())
    }
}

impl InUse {
    /// A pod wants a volume, which will leave its mark at a place. True if it was not in use before.
    pub fn want(&self, name: &str, place: &Path, uid: &str) -> bool {
        let mut all = self.0.lock();
        let is_new = !all.contains_key(name);
        let keepers = all.entry(name.to_owned()).or_default();
        keepers.pods.insert(uid.to_owned());
        keepers.places.insert(place.to_owned());
        is_new
    }

    /// What an earlier kubelet has left at a place.
    pub fn take_up(&self, name: String, place: &Path) {
        self.0.lock().entry(name).or_default().places.insert(place.to_owned());
    }

    /// A pod has no volumes any more. True if one is not in use since.
    pub fn let_go(&self, uid: &str) -> bool {
        for keepers in self.0.lock().values_mut() {
            keepers.pods.remove(uid);
        }
        self.sweep()
    }

    /// Drops what has left this machine. True if something has.
    pub fn sweep(&self) -> bool {
        let mut all = self.0.lock();
        let before = all.len();
        all.retain(|_, keepers| keepers.are_there());
        all.len() < before
    }

    pub fn names(&self) -> Vec<String> {
        self.sweep();
        self.0.lock().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_in_use_while_a_pod_wants_it_or_the_machine_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("disk");
        let in_use = InUse::default();
        assert!(in_use.want("v", &place, "a"), "it has to be told");
        assert!(!in_use.want("v", &place, "b"), "it is known");
        // It is not here yet, but pods wait for it.
        assert_eq!(in_use.names(), ["v"]);
        assert!(!in_use.let_go("a"));
        std::fs::create_dir(&place).unwrap();
        // The last pod is gone, and the disk could not be logged out of.
        assert!(!in_use.let_go("b"));
        assert_eq!(in_use.names(), ["v"]);
        std::fs::remove_dir(&place).unwrap();
        assert!(in_use.sweep() && in_use.names().is_empty());
    }

    #[test]
    fn what_an_earlier_kubelet_left_is_in_use_until_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        let in_use = InUse::default();
        in_use.take_up("v".to_owned(), folder.path());
        assert_eq!(in_use.names(), ["v"]);
        in_use.want("v", folder.path(), "a");
        assert!(!in_use.let_go("a"));
        drop(folder);
        assert_eq!(in_use.names(), [""; 0]);
    }
}
