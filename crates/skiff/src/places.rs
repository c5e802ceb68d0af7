//! Where things are if nobody says: the machine's own places for root, a user's own for everybody else.
//!
//! Within a user's namespaces one is root and still not the machine's; whoever started the process there
//! has left a word in its environment ([`crate::rootless`]).
use crate::rootless;
use std::env::var_os;
use std::path::PathBuf;

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
