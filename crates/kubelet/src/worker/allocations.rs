//! What pods have been given, on disk: the next kubelet would else only know what the API says of it, which may be
//! older. Upstream's file under upstream's name (`pkg/kubelet/allocation/state`), as either kubelet may be the next.
use api::hash::of_text;
use k8s_openapi::api::core::v1::ResourceRequirements;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "allocated_pods_state";

/// What a pod has been given: by container, and as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Allocated {
    #[serde(rename = "ContainerResources", deserialize_with = "or_nothing")]
    pub containers: BTreeMap<String, ResourceRequirements>,
    #[serde(rename = "PodLevelResources")]
    pub whole: Option<ResourceRequirements>,
}

fn or_nothing<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, ResourceRequirements>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// By the uids of pods.
pub struct Allocations {
    path: PathBuf,
    all: Mutex<BTreeMap<String, Allocated>>,
}

#[derive(Serialize, Deserialize)]
struct File {
    data: String,
    checksum: u32,
}

#[derive(Default, Serialize, Deserialize)]
struct Data {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, Allocated>,
}

impl Allocations {
    /// What the kubelet before this one has written. A file that cannot be read is told and counts for nothing:
    /// what the API says is left then.
    pub fn take_up(root: &Path) -> Allocations {
        let path = root.join(FILE);
        let all = match fs::read(&path).map(|text| parse(&text)) {
            Ok(Ok(all)) => all,
            Ok(Err(why)) => {
                tracing::warn!("{} is of no use: {why}", path.display());
                BTreeMap::new()
            }
            Err(_) => BTreeMap::new(),
        };
        Allocations { path, all: Mutex::new(all) }
    }

    pub fn get(&self, uid: &str) -> Option<Allocated> {
        self.all.lock().get(uid).cloned()
    }

    pub fn set(&self, uid: &str, allocated: Allocated) {
        let mut all = self.all.lock();
        if all.get(uid) != Some(&allocated) {
            all.insert(uid.to_owned(), allocated);
            self.write(&all);
        }
    }

    pub fn forget(&self, uid: &str) {
        let mut all = self.all.lock();
        if all.remove(uid).is_some() {
            self.write(&all);
        }
    }

    /// Of pods that went while no kubelet ran.
    pub fn keep_only(&self, is_wanted: impl Fn(&str) -> bool) {
        let mut all = self.all.lock();
        let before = all.len();
        all.retain(|uid, _| is_wanted(uid));
        if all.len() < before {
            self.write(&all);
        }
    }

    /// A disk that is full keeps nobody from running: what is lost is known to the API as well.
    fn write(&self, all: &BTreeMap<String, Allocated>) {
        let written = text(all).and_then(|text| {
            let temporary = self.path.with_file_name(format!(".{FILE}"));
            fs::write(&temporary, text)?;
            fs::rename(temporary, &self.path)
        });
        if let Err(error) = written {
            tracing::warn!("failed to write {}: {error}", self.path.display());
        }
    }
}

fn text(all: &BTreeMap<String, Allocated>) -> io::Result<Vec<u8>> {
    let data = serde_json::to_string(&Data { entries: all.clone() })?;
    Ok(serde_json::to_vec(&File { checksum: of_text(&data), data })?)
}

fn parse(text: &[u8]) -> Result<BTreeMap<String, Allocated>, String> {
    let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if of_text(&file.data) != file.checksum {
        return Err("checkpoint is corrupted".to_owned());
    }
    let data: Data = serde_json::from_str(&file.data).map_err(|error| error.to_string())?;
    Ok(data.entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn given(cpu: &str) -> Allocated {
        let resources = serde_json::from_value(json!({ "requests": { "cpu": cpu } })).unwrap();
        Allocated { containers: [("c".to_owned(), resources)].into(), whole: None }
    }

    #[test]
    fn upstreams_file_is_read() {
        // Of upstream's own test.
        let text = r#"{"data":"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":{\"requests\":{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}"#;
        let all = parse(text.as_bytes()).unwrap();
        let requests = all["pod1"].containers["container1"].requests.clone().unwrap();
        assert_eq!(requests["cpu"].0, "1Ki");
        let damaged = text.replace("1Ki", "2Ki");
        assert_eq!(parse(damaged.as_bytes()).unwrap_err(), "checkpoint is corrupted");
        let data = r#"{"entries":{"p":{"ContainerResources":null,"PodLevelResources":null,"EmptyDirVolumeLimits":null}}}"#;
        let file = File { data: data.to_owned(), checksum: of_text(data) };
        let all = parse(&serde_json::to_vec(&file).unwrap()).unwrap();
        assert_eq!(all["p"], Allocated::default());
    }

    #[test]
    fn the_next_kubelet_knows_what_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let first = Allocations::take_up(folder.path());
        first.set("a", given("1"));
        first.set("b", given("2"));
        first.set("c", given("3"));
        first.forget("b");
        let second = Allocations::take_up(folder.path());
        assert_eq!((second.get("a"), second.get("b")), (Some(given("1")), None));
        second.keep_only(|uid| uid == "c");
        let third = Allocations::take_up(folder.path());
        assert_eq!((third.get("a"), third.get("c")), (None, Some(given("3"))));
        fs::write(folder.path().join(FILE), "").unwrap();
        assert_eq!(Allocations::take_up(folder.path()).get("c"), None);
    }
}
