//! `/var/log/containers`: a link to the log of each container, whose name says all that is known of it.
//! Collectors of logs look there (Fluent Bit, Vector and others, as they come).
use crate::pod;
use k8s_openapi::api::core::v1::Pod;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Longest name that a file may have.
const LONGEST: usize = 255;
const ENDING: &str = ".log";

/// Beside the pods' logs, which are in `/var/log/pods`.
pub fn folder(log_root: &Path) -> PathBuf {
    log_root.with_file_name("containers")
}

/// `POD_NAMESPACE_CONTAINER-ID.log`, cut where it is too long for a file (`logSymlink` in upstream's
/// `kuberuntime/legacy.go`).
fn name(pod: &Pod, container: &str, id: &str) -> String {
    let (name, namespace) = (pod::name(pod), pod::namespace(pod));
    let mut name = format!("{name}_{namespace}_{container}-{id}");
    // All of these are ASCII.
    name.truncate(LONGEST - ENDING.len());
    name + ENDING
}

pub fn make(log_root: &Path, pod: &Pod, container: &str, id: &str, log: &Path) -> io::Result<()> {
    let folder = folder(log_root);
    fs::create_dir_all(&folder)?;
    match symlink(log, folder.join(name(pod, container, id))) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Links to logs that are gone go; others' stay.
pub fn sweep(log_root: &Path) {
    for entry in fs::read_dir(folder(log_root)).into_iter().flatten().flatten() {
        let path = entry.path();
        let leads_to_us = fs::read_link(&path).is_ok_and(|target| target.starts_with(log_root));
        if leads_to_us
            && !path.exists()
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::debug!(%error, link = %path.display(), "a link to a log that is gone stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str) -> Pod {
        let metadata = json!({ "name": name, "namespace": "ns" });
        serde_json::from_value(json!({ "metadata": metadata })).expect("a pod")
    }

    #[test]
    fn a_name_says_whose_log_it_is() {
        assert_eq!(name(&pod("web"), "c", "12ab"), "web_ns_c-12ab.log");
        let long = name(&pod(&"x".repeat(253)), "c", "12ab");
        assert!(long.len() == LONGEST && long.ends_with("x.log"), "{long}");
    }

    #[test]
    fn links_go_with_their_logs() {
        let machine = tempfile::tempdir().expect("a folder");
        let root = machine.path().join("pods");
        let log = root.join("0.log");
        fs::create_dir_all(&root).expect("a folder");
        fs::write(&log, "said").expect("a log");
        for _ in 0..2 {
            make(&root, &pod("web"), "c", "1", &log).expect("a link");
        }
        let link = machine.path().join("containers/web_ns_c-1.log");
        assert_eq!(fs::read_to_string(&link).expect("the log"), "said");
        symlink("/nowhere", machine.path().join("containers/theirs.log")).expect("a link");
        sweep(&root);
        assert!(link.is_symlink());
        fs::remove_file(&log).expect("a log");
        sweep(&root);
        assert!(!link.is_symlink() && machine.path().join("containers/theirs.log").is_symlink());
    }
}
