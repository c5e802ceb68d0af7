//! The control groups of pods. The runtime makes them with the first container in them and knows
//! nothing of pods; so whoever named them takes them away.
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const MOUNTED: &str = "/sys/fs/cgroup";
/// The folders of QoS classes; guaranteed pods are beside them.
const CLASSES: [&str; 3] = ["", "burstable", "besteffort"];

/// Removes the groups of a pod below `root`, in every hierarchy. What something still runs in stays.
pub fn remove(root: &str, uid: &str) {
    for hierarchy in hierarchies(Path::new(MOUNTED)) {
        let root = hierarchy.join(root.trim_start_matches('/'));
        for class in CLASSES {
            let group = root.join(class).join(format!("pod{uid}"));
            if let Err(error) = remove_below(&group)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::debug!(%error, group = %group.display(), "a pod's control group stays");
            }
        }
    }
}

/// One on machines with v2 alone, else one for each controller.
fn hierarchies(mounted: &Path) -> Vec<PathBuf> {
    if mounted.join("cgroup.controllers").exists() {
        return vec![mounted.to_owned()];
    }
    fs::read_dir(mounted).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Groups inside go first. Their files are the kernel's, and go with them.
fn remove_below(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_below(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_go_from_the_inside() {
        let folder = tempfile::tempdir().expect("a folder");
        let pod = folder.path().join("memory/kubepods/podx");
        fs::create_dir_all(pod.join("a/b")).expect("folders");
        assert_eq!(hierarchies(folder.path()), [folder.path().join("memory")]);
        remove_below(&pod).expect("it goes");
        assert!(!pod.exists() && folder.path().join("memory/kubepods").exists());
        fs::write(folder.path().join("cgroup.controllers"), "").expect("a file");
        assert_eq!(hierarchies(folder.path()), [folder.path()]);
    }
}
