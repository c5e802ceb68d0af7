//! Users of their own for pods that ask for them (`hostUsers: false`): each such pod has a range of
//! the machine's users that no other pod has, and its root is the first of them
//! (`pkg/kubelet/userns`). Which range it is stands in a file of the pod's folder, so that the next
//! kubelet, whoever's, gives it to nobody else.
use crate::pod;
use crate::runtime::cri;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Users of one pod, unless the configuration says otherwise: `userNamespaces.idsPerPod`.
pub const LENGTH: u32 = 65_536;
/// In a pod's folder.
const FILE: &str = "userns";

/// The file, in upstream's words.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    uid_mappings: Vec<Map>,
    gid_mappings: Vec<Map>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Map {
    pub host_id: u32,
    container_id: u32,
    pub length: u32,
}

/// Who has which range, by pod.
#[derive(Debug)]
pub struct Users {
    given: Mutex<BTreeMap<String, Map>>,
    length: u32,
    /// How many pods can have one.
    count: u32,
}

impl Users {
    pub fn new(length: u32, max_pods: u32) -> Users {
        // Users are 32 bits wide, and the first range is the machine's own.
        let count = (u32::MAX / length.max(1)).saturating_sub(1).min(max_pods.max(1));
        Users { given: Mutex::default(), length: length.max(1), count }
    }

    /// What was given before this process began.
    pub fn take_up(&self, pods: &Path) {
        let folders = fs::read_dir(pods).into_iter().flatten().flatten();
        let read = folders.filter_map(|folder| {
            let text = fs::read(folder.path().join(FILE)).ok()?;
            let written: Written = serde_json::from_slice(&text).ok()?;
            let uid = folder.file_name().to_string_lossy().into_owned();
            Some((uid, written.uid_mappings.first().copied()?))
        });
        self.given.lock().extend(read);
    }

    /// The pod's range, if it is to have one; found for it if it has none yet.
    pub fn of(&self, pod: &Pod, folder: &Path) -> Result<Option<Map>, String> {
        if pod::spec(pod).host_users != Some(false) {
            return Ok(None);
        }
        let mut given = self.given.lock();
        if let Some(map) = given.get(pod::uid(pod)) {
            return Ok(Some(*map));
        }
        let is_free = |first: &u32| {
            let last = first + (self.length - 1);
            given.values().all(|map| {
                last < map.host_id || map.host_id.saturating_add(map.length - 1) < *first
            })
        };
        let host_id = (1..=self.count)
            .map(|number| number * self.length)
            .find(is_free)
            .ok_or("could not find an empty slot to allocate a user namespace")?;
        let map = Map { host_id, container_id: 0, length: self.length };
        write(folder, map)
            .map_err(|error| format!("failed to write {}/{FILE}: {error}", folder.display()))?;
        given.insert(pod::uid(pod).to_owned(), map);
        Ok(Some(map))
    }

    /// Nothing of the pod is left, its folder neither.
    pub fn release(&self, uid: &str) {
        self.given.lock().remove(uid);
    }
}

/// Under its name only when it is whole, and there after a power cut.
fn write(folder: &Path, map: Map) -> io::Result<()> {
    let written = Written { uid_mappings: vec![map], gid_mappings: vec![map] };
    fs::create_dir_all(folder)?;
    let temporary = folder.join(format!(".{FILE}"));
    let mut file = File::create(&temporary)?;
    file.write_all(&serde_json::to_vec(&written)?)?;
    file.sync_all()?;
    fs::rename(temporary, folder.join(FILE))?;
    File::open(folder)?.sync_all()
}

/// What the runtime is told.
pub fn namespace(map: Option<Map>) -> cri::UserNamespace {
    let Some(map) = map else {
        return cri::UserNamespace { mode: cri::NamespaceMode::Node.into(), ..Default::default() };
    };
    cri::UserNamespace {
        mode: cri::NamespaceMode::Pod.into(),
        uids: vec![mapping(map)],
        gids: vec![mapping(map)],
    }
}

fn mapping(map: Map) -> cri::IdMapping {
    cri::IdMapping { host_id: map.host_id, container_id: map.container_id, length: map.length }
}

/// Files of volumes belong in the container to whom they belong on the host.
pub fn map_mounts(mounts: &mut [cri::Mount], map: Option<Map>) {
    let Some(map) = map else { return };
    for mount in mounts {
        mount.uid_mappings = vec![mapping(map)];
        mount.gid_mappings = vec![mapping(map)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, host_users: bool) -> Pod {
        let spec = json!({ "containers": [], "hostUsers": host_users });
        serde_json::from_value(json!({ "metadata": { "uid": uid }, "spec": spec })).unwrap()
    }

    #[test]
    fn each_pod_has_users_of_its_own_and_keeps_them() {
        let folder = tempfile::tempdir().unwrap();
        let first = |users: &Users, uid: &str| {
            let map = users.of(&pod(uid, false), &folder.path().join(uid));
            map.map(|map| map.unwrap().host_id)
        };
        let users = Users::new(LENGTH, 3);
        assert_eq!(users.of(&pod("h", true), folder.path()), Ok(None));
        assert_eq!(first(&users, "a"), Ok(65_536));
        assert_eq!(first(&users, "b"), Ok(131_072));
        assert_eq!(first(&users, "a"), Ok(65_536));
        // The next kubelet.
        let users = Users::new(LENGTH, 3);
        users.take_up(folder.path());
        assert_eq!(first(&users, "c"), Ok(196_608));
        assert_eq!(first(&users, "b"), Ok(131_072));
        assert!(first(&users, "d").unwrap_err().contains("empty slot"));
        users.release("a");
        assert_eq!(first(&users, "d"), Ok(65_536));
    }
}
