//! Manifests in a folder are the cluster's: applied when a file comes or changes, and what a file has no
//! longer is removed again.
//!
//! What each file has made, and what went wrong, is in a ConfigMap of `kube-system`, one key a file. By it
//! is known what to remove, whatever happened to the machine since, and `skiff status` reads it.
use super::components::{Cluster, administrator};
use api::kinds::Scope;
use api::status::Status;
use client::source::{Ask, Call, Delete, Patch, Raw, Write};
use client::{ApiResource, Client};
use k8s_openapi::api::core::v1::ConfigMap;
use kubelet::folder::Watched;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

pub const NAME: &str = "manifests";
const MANAGER: &str = "skiff-manifests";
const NAMESPACE: &str = "kube-system";
/// The ConfigMaps of all servers have it.
pub const LABEL: &str = "skiff-manifests";

/// What could not be applied is tried again, later and later: its definition may come.
const AGAIN: Duration = Duration::from_secs(2);
/// The safety net.
const RESYNC: Duration = Duration::from_secs(600);

/// What a file has made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    hash: String,
    objects: Vec<Reference>,
    /// What went wrong the last time.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reference {
    api_version: String,
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
}

pub async fn run(cluster: Cluster) -> anyhow::Result<()> {
    let folder = cluster.machine.data_dir.join("manifests");
    // Secrets may be among them.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let client = Client::new(cluster.source(MANAGER, &administrator())?).managed_by(MANAGER);
    let applier = Applier { client, node: cluster.node_name.clone() };
    let watched = Watched::new(&folder)?;
    let mut again = AGAIN;
    loop {
        let is_done = applier.sync(&read(&folder)).await.unwrap_or_else(|status| {
            tracing::warn!(problem = status.message, "failed to apply manifests");
            false
        });
        let pause = if is_done { RESYNC } else { again };
        tokio::select! {
            goes_on = cluster.context.sleep(pause) => match goes_on {
                true => again = (again * 2).min(RESYNC),
                false => return Ok(()),
            },
            changed = watched.changed() => {
                changed?;
                again = AGAIN;
            }
        }
    }
}

/// Files by their names, with what is in them.
fn read(folder: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_manifest = |name: &str| {
        let known = name.ends_with(".yaml") || name.ends_with(".yml") || name.ends_with(".json");
        // Names are keys of a ConfigMap.
        let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        known && !name.starts_with('.') && name.chars().all(is_key)
    };
    let named =
        entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    let manifests = named.filter(|(name, _)| is_manifest(name));
    manifests.filter_map(|(name, path)| Some((name, std::fs::read_to_string(path).ok()?))).collect()
}

/// The objects in a file; those of lists one by one.
fn objects(text: &str) -> Result<Vec<Value>, String> {
    let mut found = Vec::new();
    for document in api::codec::yaml::documents(text) {
        if document.trim().is_empty() {
            continue;
        }
        let tree = api::codec::yaml::decode_untyped(document.as_bytes());
        match tree.map_err(|error| error.to_string())?.value {
            Value::Null => {}
            tree if tree["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => {
                found.extend(tree["items"].as_array().into_iter().flatten().cloned());
            }
            tree => found.push(tree),
        }
    }
    Ok(found)
}

/// What was made before and is in no file any more, the last first: what others may stand on goes last.
fn gone(before: &[Reference], kept: &[Reference]) -> Vec<Reference> {
    before.iter().rev().filter(|one| !kept.contains(one)).cloned().collect()
}

struct Applier {
    client: Client,
    node: String,
}

impl Applier {
    /// Makes the cluster as the files say. Whether everything went well.
    async fn sync(&self, files: &BTreeMap<String, String>) -> Result<bool, Status> {
        let before = self.records().await?;
        let mut after = BTreeMap::new();
        for (name, text) in files {
            let hash = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
            let known = before.get(name).cloned().unwrap_or_default();
            let record = match known.hash == hash && known.error.is_empty() {
                true => known,
                false => self.apply_file(text, hash, known).await,
            };
            after.insert(name.clone(), record);
        }
        let kept: Vec<Reference> =
            after.values().flat_map(|record| record.objects.clone()).collect();
        for (name, record) in &before {
            for reference in gone(&record.objects, &kept) {
                if let Err(status) = self.delete(&reference).await {
                    let mut failed = record.clone();
                    failed.error = status.message;
                    failed.objects.retain(|one| *one == reference);
                    // It is tried again for as long as it is written down.
                    after.entry(format!("{name}.removed")).or_insert(failed);
                }
            }
        }
        if after != before {
            self.write(&after).await?;
        }
        Ok(after.values().all(|record| record.error.is_empty()))
    }

    async fn apply_file(&self, text: &str, hash: String, known: Record) -> Record {
        let mut record = Record { hash, ..Record::default() };
        let all = match objects(text) {
            Ok(all) => all,
            // What it made before stays until somebody says what is meant.
            Err(error) => return Record { error, ..known },
        };
        for object in all {
            match self.apply(object.clone()).await {
                Ok(reference) => record.objects.push(reference),
                Err(status) => {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    let kind = object["kind"].as_str().unwrap_or_default();
                    tracing::warn!(kind, name, problem = status.message, "a manifest was refused");
                    record.error = format!("{kind} {name}: {}", status.message);
                    // It may have been there before: that one is not to be removed for an error.
                    let known =
                        known.objects.iter().find(|one| one.kind == kind && one.name == name);
                    record.objects.extend(known.cloned());
                }
            }
        }
        record
    }

    async fn apply(&self, object: Value) -> Result<Reference, Status> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut reference = Reference {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
        };
        let resource = self.resource(&reference).await?;
        match resource.is_namespaced() {
            true if reference.namespace.is_empty() => reference.namespace = "default".to_owned(),
            true => {}
            false => reference.namespace.clear(),
        }
        let call = Call {
            resource,
            namespace: reference.namespace.clone(),
            name: reference.name.clone(),
            subresource: "".into(),
            ask: Ask::Patch(
                Patch::Apply(object),
                Write { force: true, ..self.client.write_options() },
            ),
        };
        self.client.source().call(call).await?;
        Ok(reference)
    }

    async fn delete(&self, reference: &Reference) -> Result<(), Status> {
        let resource = match self.resource(reference).await {
            // Its kind is gone, and it with it.
            Err(status) if status.is_not_found() => return Ok(()),
            resource => resource?,
        };
        let (namespace, name) = (&reference.namespace, &reference.name);
        match self.client.delete_in(resource, namespace, name, Delete::default()).await {
            Err(status) if status.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }

    /// A row of ours, or what the server says that it serves.
    async fn resource(&self, reference: &Reference) -> Result<ApiResource, Status> {
        let (version, kind) = (&reference.api_version, &reference.kind);
        if let Some(row) = api::kinds::find_kind(version, kind) {
            return Ok(row.into());
        }
        let path = format!("/apis/{version}");
        let answer = self.client.source().raw(Raw::get(&path)).await?;
        let bytes = answer.bytes().await?;
        let list: Value = serde_json::from_slice(&bytes).map_err(Status::internal_error)?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let of_kind = |one: &&Value| {
            one["kind"] == **kind && !one["name"].as_str().unwrap_or_default().contains('/')
        };
        let mut all = list["resources"].as_array().into_iter().flatten();
        let found = all.find(of_kind).ok_or_else(|| {
            Status::internal_error(format!(
                "no matches for kind {kind:?} in version {:?}",
                reference.api_version
            ))
        })?;
        let scope = match found["namespaced"].as_bool() {
            Some(true) => Scope::Namespaced,
            _ => Scope::Cluster,
        };
        Ok(ApiResource::custom(
            group,
            version,
            found["name"].as_str().unwrap_or_default(),
            kind,
            scope,
        ))
    }

    /// The name of this server's ConfigMap: each has files of its own.
    fn kept_in(&self) -> String {
        format!("{LABEL}-{}", self.node)
    }

    async fn records(&self) -> Result<BTreeMap<String, Record>, Status> {
        match self.client.get::<ConfigMap>(NAMESPACE, &self.kept_in()).await {
            Ok(found) => Ok(records(&*found.typed::<ConfigMap>().map_err(Status::internal_error)?)),
            Err(status) if status.is_not_found() => Ok(BTreeMap::new()),
            Err(status) => Err(status),
        }
    }

    async fn write(&self, records: &BTreeMap<String, Record>) -> Result<(), Status> {
        let text = |record: &Record| serde_json::to_string(record).unwrap_or_default();
        let data: BTreeMap<&String, String> =
            records.iter().map(|(name, record)| (name, text(record))).collect();
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": self.kept_in(), "namespace": NAMESPACE, "labels": { LABEL: "" } },
            "data": data });
        self.apply(object).await.map(drop)
    }
}

/// What a ConfigMap says of files.
pub fn records(kept: &ConfigMap) -> BTreeMap<String, Record> {
    let data = kept.data.iter().flatten();
    data.map(|(name, text)| (name.clone(), serde_json::from_str(text).unwrap_or_default()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_odd_names_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.yaml", "b.json", ".c.yaml", "d.txt", "e f.yaml"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        assert_eq!(read(folder.path()).into_keys().collect::<Vec<_>>(), ["a.yaml", "b.json"]);
    }

    #[test]
    fn documents_and_lists_are_taken_apart() {
        let text = "kind: A\nmetadata: {name: a}\n---\n# nothing\n---\nkind: List\nitems:\n- kind: B\n- kind: C\n";
        let kinds: Vec<String> = objects(text)
            .unwrap()
            .iter()
            .map(|one| one["kind"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(kinds, ["A", "B", "C"]);
        assert!(objects("a: [").is_err());
    }

    #[test]
    fn what_no_file_has_any_more_goes_the_last_first() {
        let one = |name: &str| Reference { name: name.to_owned(), ..Reference::default() };
        let before = [one("a"), one("b"), one("c")];
        assert_eq!(gone(&before, &[one("b")]), [one("c"), one("a")]);
        assert_eq!(gone(&before, &before), []);
    }
}
