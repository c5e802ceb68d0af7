//! Where things are if nobody says: the machine's own places for root, a user's own for everybody else.
//!
//! Within a user's namespaces one is root and still not the machine's; whoever started the process there
//! has left a word in its environment ([`crate::rootless`]).
use crate::rootless;
use crate::up::given;
use std::env::var_os;
use std::path::{Path, PathBuf};

/// State and keys.
pub fn data_dir() -> PathBuf {
    of_user(home, "/var/lib/skiff")
}

/// Pods' folders.
pub fn kubelet_dir() -> PathBuf {
    of_user(|| home().join("kubelet"), "/var/lib/kubelet")
}

pub fn pod_logs_dir() -> PathBuf {
    of_user(|| home().join("logs"), "/var/log/pods")
}

/// Sockets and mounts; a short path.
pub fn state_dir() -> PathBuf {
    of_user(state, "/run/skiff")
}

/// The administrator's kubeconfig: the one that was named, that of the cluster whose state is in this folder, or
/// what the caller of sudo was given, who may not look into the folder.
pub fn kubeconfig(named: Option<&PathBuf>, data: &Path) -> PathBuf {
    found(named, data, var_os("HOME").map(PathBuf::from).as_deref())
}

fn found(named: Option<&PathBuf>, data: &Path, home: Option<&Path>) -> PathBuf {
    let usual = data.join("kubeconfig");
    let given = home.map(|home| home.join(given::FILE)).filter(|file| file.exists());
    match (named, given) {
        (Some(named), _) => named.clone(),
        (None, Some(given)) if !usual.exists() => given,
        (None, _) => usual,
    }
}

fn of_user(own: impl Fn() -> PathBuf, machine: &str) -> PathBuf {
    match rootless::user() {
        Some(_) => own(),
        None => machine.into(),
    }
}

fn home() -> PathBuf {
    let share = var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let share = share.or_else(|| Some(PathBuf::from(var_os("HOME")?).join(".local/share")));
    share.unwrap_or_else(std::env::temp_dir).join("skiff")
}

fn state() -> PathBuf {
    let run = var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    match (run, rootless::user()) {
        (Some(run), _) => run.join("skiff"),
        (None, user) => std::env::temp_dir().join(format!("skiff-{}", user.unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_given_a_kubeconfig_uses_it_where_there_is_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let (data, home) = (folder.path().join("data"), folder.path().join("home"));
        let (usual, given) = (data.join("kubeconfig"), home.join(given::FILE));
        assert_eq!(found(None, &data, Some(&home)), usual);
        for file in [&given, &usual] {
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        }
        std::fs::write(&given, "").expect("a file");
        assert_eq!(found(None, &data, Some(&home)), given);
        assert_eq!(found(None, &data, None), usual);
        let named = PathBuf::from("/named");
        assert_eq!(found(Some(&named), &data, Some(&home)), named);
        std::fs::write(&usual, "").expect("a file");
        assert_eq!(found(None, &data, Some(&home)), usual);
    }
}
