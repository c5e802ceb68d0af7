//! Of each container of a pod the last one that ended is kept, for its log and its exit code; and
//! of each pod the sandbox that it uses (`pkg/kubelet/kuberuntime/kuberuntime_gc.go`).
use crate::found::{CONTAINER_NAME, POD_UID};
use crate::runtime::cri;
use crate::worker::Kubelet;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// `of_ended_pods`: of pods that have ended nothing is kept.
pub async fn collect(kubelet: &Kubelet, of_ended_pods: bool) {
    let listed = kubelet.runtime.list_containers(Default::default()).await;
    let sandboxes = kubelet.runtime.list_pod_sandbox(Default::default()).await;
    let (Ok(listed), Ok(sandboxes)) = (listed, sandboxes) else { return };
    let ended: HashSet<String> = match of_ended_pods {
        true => kubelet.ended_pods(),
        false => HashSet::new(),
    };
    for one in surplus(&listed.containers, &ended) {
        let request = cri::ContainerStatusRequest {
            container_id: one.clone(),
            ..cri::ContainerStatusRequest::default()
        };
        let log = match kubelet.runtime.container_status(request).await {
            Ok(answer) => answer.status.unwrap_or_default().log_path,
            Err(_) => continue,
        };
        let request = cri::RemoveContainerRequest { container_id: one };
        match kubelet.runtime.remove_container(request).await {
            Ok(_) => remove_log(Path::new(&log)),
            Err(error) => tracing::warn!("failed to remove a dead container: {error}"),
        }
    }
    for pod_sandbox_id in unused(&sandboxes.items, &listed.containers) {
        let request = cri::RemovePodSandboxRequest { pod_sandbox_id };
        if let Err(error) = kubelet.runtime.remove_pod_sandbox(request).await {
            tracing::warn!("failed to remove a dead sandbox: {error}");
        }
    }
}

/// Ids of those that ended and have a younger one that ended, or whose pods have ended.
fn surplus(all: &[cri::Container], ended: &HashSet<String>) -> Vec<String> {
    let mut dead: BTreeMap<(&str, &str), Vec<&cri::Container>> = BTreeMap::new();
    for one in all.iter().filter(|one| one.state() == cri::ContainerState::ContainerExited) {
        let label = |key: &str| one.labels.get(key).map(String::as_str);
        // What is not a pod's is not ours.
        if let (Some(uid), Some(name)) = (label(POD_UID), label(CONTAINER_NAME)) {
            dead.entry((uid, name)).or_default().push(one);
        }
    }
    let older = dead.into_iter().flat_map(|((uid, _), mut same)| {
        same.sort_by_key(|one| std::cmp::Reverse(one.created_at));
        same.into_iter().skip(usize::from(!ended.contains(uid)))
    });
    older.map(|one| one.id.clone()).collect()
}

/// Ids of sandboxes that ended, are empty, and have a younger one of their pod.
fn unused(all: &[cri::PodSandbox], containers: &[cri::Container]) -> Vec<String> {
    let used: HashSet<&str> = containers.iter().map(|one| one.pod_sandbox_id.as_str()).collect();
    let uid = |one: &cri::PodSandbox| one.labels.get(POD_UID).cloned();
    let has_younger = |one: &cri::PodSandbox| {
        all.iter().any(|other| uid(other) == uid(one) && other.created_at > one.created_at)
    };
    let ended = all.iter().filter(|one| one.state() != cri::PodSandboxState::SandboxReady);
    let empty = ended.filter(|one| uid(one).is_some() && !used.contains(one.id.as_str()));
    empty.filter(|one| has_younger(one)).map(|one| one.id.clone()).collect()
}

/// With what rotation made of it.
fn remove_log(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
    let name = name.to_string_lossy();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let other = entry.file_name();
        let rest = other.to_string_lossy().strip_prefix(&*name).map(str::to_owned);
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(id: &str, pod: &str, name: &str, at: i64, is_running: bool) -> cri::Container {
        let state = match is_running {
            true => cri::ContainerState::ContainerRunning,
            false => cri::ContainerState::ContainerExited,
        };
        let labels = [(POD_UID, pod), (CONTAINER_NAME, name)];
        cri::Container {
            id: id.into(),
            state: state.into(),
            created_at: at,
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..Default::default()
        }
    }

    #[test]
    fn the_last_that_ended_is_kept() {
        let all = [
            container("a0", "p", "a", 1, false),
            container("a1", "p", "a", 2, false),
            container("a2", "p", "a", 3, true),
            container("b0", "p", "b", 1, false),
            container("c0", "q", "a", 1, false),
            container("a3", "p", "a", 0, false),
        ];
        assert_eq!(surplus(&all, &HashSet::new()), ["a0", "a3"]);
        let ended = HashSet::from(["q".to_owned()]);
        assert_eq!(surplus(&all, &ended), ["a0", "a3", "c0"]);
    }

    #[test]
    fn a_log_goes_with_its_rotations() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["1.log", "1.log.20260101-000000", "1.log.20260101-000000.gz", "11.log", "0.log"]
        {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        remove_log(&folder.path().join("1.log"));
        let mut left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        assert_eq!(left, ["0.log", "11.log"]);
    }
}
