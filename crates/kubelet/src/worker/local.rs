//! Volumes that are a folder of the node: the pod's group gets it when the first pod does
//! (`pkg/volume/local` upstream).
use super::Kubelet;
use crate::pod;
use crate::volumes::ownership;
use k8s_openapi::api::core::v1::Pod;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub struct Local {
    /// The persistent volume's.
    pub name: String,
    pub path: String,
    pub read_only: bool,
}

/// What is to be done with a volume that a pod is about to get.
#[derive(Debug, PartialEq)]
enum Verdict {
    Nothing,
    Give,
    /// Another pod has it, and it belongs to this group.
    Anothers(u32),
}

impl Kubelet {
    /// Once for each pod, whose folder remembers it: there may be much in it.
    pub(super) async fn give_local(&self, pod: &Pod, local: &Local) -> Result<(), String> {
        let pods = self.config.root.join("pods");
        let place = place(&pods, pod::uid(pod), &local.name);
        let context = pod::spec(pod).security_context.as_ref();
        let Some(group) = context.and_then(|all| all.fs_group) else { return Ok(()) };
        // What is no folder is told by whoever looks at its kind.
        let Ok(found) = fs::metadata(&local.path) else { return Ok(()) };
        if place.exists() || !found.is_dir() {
            return Ok(());
        }
        match judge(local, group, found.gid(), is_used(&pods, &local.name)) {
            Verdict::Nothing => {}
            Verdict::Anothers(other) => {
                let note = format!(
                    "The requested fsGroup is {group}, but the volume {} has GID {other}. The volume may not be shareable.",
                    local.name
                );
                self.warn(pod, None, "AlreadyMountedVolume", &note);
            }
            Verdict::Give => {
                let policy = context.and_then(|all| all.fs_group_change_policy.as_deref());
                let only_if_needed = policy == Some("OnRootMismatch");
                let path = PathBuf::from(&local.path);
                let give = move || ownership::give(&path, group, only_if_needed);
                let given = tokio::task::spawn_blocking(give).await;
                let given = given.map_err(|error| error.to_string())?;
                given.map_err(|error| error.line())?;
            }
        }
        fs::create_dir_all(&place)
            .map_err(|error| format!("failed to create {}: {error}", place.display()))
    }
}

fn place(pods: &Path, uid: &str, name: &str) -> PathBuf {
    pods.join(uid).join("volumes/kubernetes.io~local-volume").join(name)
}

/// Whether a pod of this node has it already.
fn is_used(pods: &Path, name: &str) -> bool {
    let pods_there = fs::read_dir(pods).into_iter().flatten().flatten();
    let mut uids = pods_there.map(|entry| entry.file_name().to_string_lossy().into_owned());
    uids.any(|uid| place(pods, &uid, name).exists())
}

fn judge(local: &Local, wanted: i64, has: u32, is_used: bool) -> Verdict {
    match is_used {
        true if i64::from(has) != wanted => Verdict::Anothers(has),
        false if !local.read_only => Verdict::Give,
        _ => Verdict::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pod_gets_it_and_others_are_warned() {
        let check = |read_only: bool, has: u32, is_used: bool, expected: Verdict| {
            let local = Local { name: "v".to_owned(), path: "/v".to_owned(), read_only };
            assert_eq!(judge(&local, 5, has, is_used), expected, "{read_only} {has} {is_used}");
        };
        check(false, 0, false, Verdict::Give);
        // What lies in it may be others' still.
        check(false, 5, false, Verdict::Give);
        check(true, 0, false, Verdict::Nothing);
        check(false, 5, true, Verdict::Nothing);
        check(false, 7, true, Verdict::Anothers(7));
        check(true, 7, true, Verdict::Anothers(7));
    }
}
