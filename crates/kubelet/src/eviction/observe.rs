//! What is left on the machine, and what pods use of it.
use super::decide::{Observations, Seen};
use super::rank::{ContainerUse, Disk, PodUse, Uses};
use super::thresholds::Signal;
use crate::container::sandbox;
use crate::found::{CONTAINER_NAME, POD_UID};
use crate::pod;
use crate::runtime::cri;
use crate::worker::Kubelet;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What was seen of the machine.
pub struct Look {
    pub seen: Observations,
    /// Images and containers' layers are on a disk of their own.
    pub has_image_disk: bool,
}

pub async fn node(kubelet: &Kubelet) -> Look {
    let facts = kubelet.config.machine.read(&kubelet.config.root);
    let one = |available: u64, capacity: u64| Seen {
        available: signed(available),
        capacity: signed(capacity),
    };
    let mut seen = Observations::from([
        (Signal::Memory, one(facts.memory_available, facts.memory)),
        (Signal::NodeFs, one(facts.disk_available, facts.disk)),
    ]);
    // Some file systems have as many inodes as are asked for, and say 0.
    if facts.inodes > 0 {
        seen.insert(Signal::NodeFsInodes, one(facts.inodes_free, facts.inodes));
    }
    if facts.pids > 0 {
        seen.insert(Signal::Pids, one(facts.pids.saturating_sub(facts.pids_used), facts.pids));
    }
    if kubelet.config.cgroups_per_qos
        && let Some((used, limit)) = crate::cgroups::memory(&kubelet.config.cgroup_root)
    {
        seen.insert(Signal::AllocatableMemory, one(limit.saturating_sub(used), limit));
    }
    let Ok(places) = kubelet.runtime.image_fs_info(cri::ImageFsInfoRequest {}).await else {
        return Look { seen, has_image_disk: false };
    };
    let mountpoint = |all: &[cri::FilesystemUsage]| {
        all.iter().find_map(|one| one.fs_id.as_ref()).map(|id| PathBuf::from(&id.mountpoint))
    };
    let images = mountpoint(&places.image_filesystems);
    let layers = mountpoint(&places.container_filesystems).or_else(|| images.clone());
    let rows = [
        (&images, Signal::ImageFs, Signal::ImageFsInodes),
        (&layers, Signal::ContainerFs, Signal::ContainerFsInodes),
    ];
    for (place, bytes, inodes) in rows {
        let Some(disk) = place.as_ref().and_then(|place| rustix::fs::statvfs(place).ok()) else {
            continue;
        };
        seen.insert(bytes, one(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize));
        if disk.f_files > 0 {
            seen.insert(inodes, one(disk.f_ffree, disk.f_files));
        }
    }
    let device = |path: &Path| fs::metadata(path).map(|file| file.dev()).ok();
    let own = images.as_deref().and_then(device);
    let has_image_disk = own.is_some() && own != device(&kubelet.config.root);
    Look { seen, has_image_disk }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What these pods use; their files are counted too, which takes its time.
pub async fn pods(kubelet: &Kubelet, pods: &[Arc<Pod>], with_files: bool) -> Uses {
    let mut uses = processes_of(kubelet).await;
    if !with_files {
        return uses;
    }
    let wanted: Vec<(String, Files)> =
        pods.iter().map(|pod| (pod::uid(pod).to_owned(), files_of(kubelet, pod))).collect();
    let counted = tokio::task::spawn_blocking(move || {
        let one = |(uid, files): (String, Files)| {
            let all = |paths: BTreeMap<String, PathBuf>| -> BTreeMap<String, Disk> {
                paths.into_iter().map(|(name, path)| (name, disk_use(&path))).collect()
            };
            (uid, all(files.volumes), all(files.logs))
        };
        wanted.into_iter().map(one).collect::<Vec<_>>()
    });
    for (uid, volumes, logs) in counted.await.unwrap_or_default() {
        let used = uses.entry(uid).or_default();
        used.volumes = volumes;
        for (name, logs) in logs {
            used.containers.entry(name).or_default().logs = logs;
        }
    }
    uses
}

async fn processes_of(kubelet: &Kubelet) -> Uses {
    let mut uses = Uses::new();
    let number =
        |value: &Option<cri::UInt64Value>| value.as_ref().map_or(0, |one| signed(one.value));
    let label = |labels: &HashMap<String, String>, key: &str| labels.get(key).cloned();
    let mut add = |uid: String, stats: &cri::ContainerStats| {
        let attributes = stats.attributes.clone().unwrap_or_default();
        let Some(name) = label(&attributes.labels, CONTAINER_NAME) else { return 0 };
        let layer = stats.writable_layer.clone().unwrap_or_default();
        let memory = stats.memory.unwrap_or_default();
        let memory = number(&memory.working_set_bytes);
        let rootfs = Disk { bytes: number(&layer.used_bytes), inodes: number(&layer.inodes_used) };
        let used = ContainerUse { memory, rootfs, ..ContainerUse::default() };
        uses.entry(uid).or_default().containers.insert(name, used);
        memory
    };
    if let Ok(answer) = kubelet.runtime.list_pod_sandbox_stats(Default::default()).await {
        let mut whole = Vec::new();
        for stats in answer.stats {
            let attributes = stats.attributes.unwrap_or_default();
            let Some(uid) = label(&attributes.labels, POD_UID) else { continue };
            let linux = stats.linux.unwrap_or_default();
            let sum = linux.containers.iter().map(|one| add(uid.clone(), one)).sum::<i64>();
            let memory = linux.memory.map_or(sum, |memory| number(&memory.working_set_bytes));
            let processes = linux.process.map_or(0, |all| number(&all.process_count));
            whole.push((uid, memory, processes));
        }
        for (uid, memory, processes) in whole {
            let used: &mut PodUse = uses.entry(uid).or_default();
            (used.memory, used.processes) = (memory, processes);
        }
        return uses;
    }
    // A runtime that only knows of containers.
    let Ok(answer) = kubelet.runtime.list_container_stats(Default::default()).await else {
        return uses;
    };
    let mut sums: HashMap<String, i64> = HashMap::new();
    for stats in &answer.stats {
        let labels = stats.attributes.as_ref().map(|all| all.labels.clone()).unwrap_or_default();
        let Some(uid) = label(&labels, POD_UID) else { continue };
        let memory = add(uid.clone(), stats);
        *sums.entry(uid).or_default() += memory;
    }
    for (uid, memory) in sums {
        uses.entry(uid).or_default().memory = memory;
    }
    uses
}

struct Files {
    volumes: BTreeMap<String, PathBuf>,
    logs: BTreeMap<String, PathBuf>,
}

fn files_of(kubelet: &Kubelet, pod: &Pod) -> Files {
    let folder = kubelet.config.pod_folder(pod::uid(pod)).join("volumes");
    let logs = sandbox::log_folder(&kubelet.config, pod);
    let on_disk = pod::spec(pod).volumes.iter().flatten().filter(|volume| {
        let source = volume.empty_dir.as_ref();
        source.is_some_and(|source| source.medium.as_deref().unwrap_or_default().is_empty())
    });
    let place = |name: &str| folder.join("kubernetes.io~empty-dir").join(name);
    Files {
        volumes: on_disk.map(|one| (one.name.clone(), place(&one.name))).collect(),
        logs: pod::containers(pod)
            .map(|(_, one)| (one.name.clone(), logs.join(&one.name)))
            .collect(),
    }
}

/// What a folder takes on its disk, with what is in it. What is mounted in it counts elsewhere, and
/// a file with several names counts once.
pub fn disk_use(folder: &Path) -> Disk {
    let mut sum = Disk::default();
    let Ok(top) = fs::symlink_metadata(folder) else { return sum };
    let device = top.dev();
    let mut known: HashSet<u64> = HashSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            // This does not follow links.
            let Ok(file) = entry.metadata() else { continue };
            if file.dev() != device
                || (file.nlink() > 1 && !file.is_dir() && !known.insert(file.ino()))
            {
                continue;
            }
            sum.inodes += 1;
            sum.bytes += signed(file.blocks().saturating_mul(512));
            if file.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_once_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::create_dir(place("a")).unwrap();
        fs::write(place("a/file"), vec![1u8; 100_000]).unwrap();
        fs::hard_link(place("a/file"), place("again")).unwrap();
        std::os::unix::fs::symlink("/", place("root")).unwrap();
        let used = disk_use(folder.path());
        assert!((100_000..200_000).contains(&used.bytes), "{used:?}");
        assert_eq!(used.inodes, 3);
        assert_eq!(disk_use(&place("none")), Disk::default());
    }
}
