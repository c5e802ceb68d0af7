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
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

pub const NAME: &str = "manifests";
const MANAGER: &str = "skiff-manifests";
const NAMESPACE: &str = "kube-system";
/// The ConfigMaps of all servers have it.
pub const LABEL: &str = "skiff-manifests";

/// What could not be applied is tried again, later and later: its definition may come.
const AGAIN: Duration = Duration::from_secs(2);
/// For how long a file must have been left alone to be whole.
const SETTLE: Duration = Duration::from_secs(1);
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
    // A folder that was just made says nothing of what another one had: a disk may be missing.
    let mut says_nothing = !folder.exists();
    // Secrets may be among them.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let client = Client::new(cluster.source(MANAGER, &administrator())?).managed_by(MANAGER);
    let applier = Applier { client, node: cluster.node_name.clone() };
    let watched = Watched::new(&folder)?;
    let mut again = AGAIN;
    // What somebody has changed or removed in the cluster comes back at the start. Not more often: a Job that is
    // done and was tidied away would run again and again.
    let mut look = Look::All;
    loop {
        let files = read(&folder, SystemTime::now())?;
        let is_writing = files.values().any(|seen| *seen == Seen::Changing);
        says_nothing &= files.is_empty();
        let is_done = match says_nothing {
            true => true,
            false => applier.sync(&files, look).await.unwrap_or_else(|status| {
                tracing::warn!(problem = status.message, "failed to apply manifests");
                false
            }),
        };
        look = Look::Changed;
        let pause = match is_done {
            true => RESYNC,
            false if is_writing => SETTLE,
            false => again,
        };
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

/// What is applied: every file, or those that say something else than before.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Look {
    All,
    Changed,
}

/// What a look at a file gave.
#[derive(Debug, PartialEq)]
enum Seen {
    Text(String),
    /// It was written a moment ago: the rest may be still to come.
    Changing,
    /// It is there, and why it cannot be read.
    Unreadable(String),
}

/// Files by their names, with what is in them. That one is not in the folder is known only if the folder
/// can be read.
fn read(folder: &Path, now: SystemTime) -> std::io::Result<BTreeMap<String, Seen>> {
    let is_manifest = |name: &str| {
        let known = name.ends_with(".yaml") || name.ends_with(".yml") || name.ends_with(".json");
        // Names are keys of a ConfigMap.
        let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        known && !name.starts_with('.') && name.chars().all(is_key)
    };
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !is_manifest(&name) {
            continue;
        }
        // After the text: what is written meanwhile is seen as well.
        let text = std::fs::read_to_string(entry.path());
        let written = std::fs::metadata(entry.path()).and_then(|found| found.modified());
        let seen = match (text, written) {
            // It was removed just now, or it is a link that leads nowhere.
            (Err(error), _) | (_, Err(error))
                if error.kind() == ErrorKind::NotFound && !entry.path().is_symlink() =>
            {
                continue;
            }
            (Err(error), _) | (_, Err(error)) => Seen::Unreadable(error.to_string()),
            // A file of the future is one of another clock.
            (Ok(_), Ok(written)) if now.duration_since(written).is_ok_and(|age| age < SETTLE) => {
                Seen::Changing
            }
            (Ok(text), Ok(_)) => Seen::Text(text),
        };
        found.insert(name, seen);
    }
    Ok(found)
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

/// What was made before and is in no file any more, the last first: what others stand on goes last.
fn gone(before: &BTreeMap<String, Record>, after: &BTreeMap<String, Record>) -> Vec<Reference> {
    let is_kept = |one: &Reference| {
        after.values().flat_map(|record| &record.objects).any(|other| other.is_same(one))
    };
    let mut gone: Vec<Reference> = Vec::new();
    for one in before.values().rev().flat_map(|record| record.objects.iter().rev()) {
        if !is_kept(one) && !gone.iter().any(|other| other.is_same(one)) {
            gone.push(one.clone());
        }
    }
    gone.sort_by_key(|one| std::cmp::Reverse(stands_on(&one.kind)));
    gone
}

/// What others are in goes first: namespaces, then definitions, then all else.
fn stands_on(kind: &str) -> u8 {
    match kind {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        _ => 2,
    }
}

impl Reference {
    /// Of an object as a file has it.
    fn of(object: &Value) -> Reference {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Reference {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
        }
    }

    /// Whether it is the same object, maybe in another version of its API.
    fn is_same(&self, other: &Reference) -> bool {
        let group = |one: &Reference| match one.api_version.split_once('/') {
            Some((group, _)) => group.to_owned(),
            None => String::new(),
        };
        self.kind == other.kind
            && self.name == other.name
            && self.namespace == other.namespace
            && group(self) == group(other)
    }

    /// The same for a file that may have left out the namespace.
    fn is_meant_by(&self, other: &Reference) -> bool {
        let namespace = match other.namespace.as_str() {
            "" if self.namespace == "default" => "default",
            // Whatever it says of a namespace, it has none.
            _ if self.namespace.is_empty() => "",
            namespace => namespace,
        };
        self.is_same(&Reference { namespace: namespace.to_owned(), ..other.clone() })
    }
}

impl Record {
    /// How many objects the file has.
    pub fn count(&self) -> usize {
        self.objects.len()
    }
}

/// What is no longer in any file and still there.
pub const REMOVED: &str = "removed";

const EMPTY: &str = "it is empty, and what it made stays: remove the file if that is to go";

/// Records of files as they are before anything is applied, and what is to be applied: the object, and the
/// file that has it. A file that says nothing that can be understood keeps what it has made.
fn plan(
    files: &BTreeMap<String, Seen>,
    before: &BTreeMap<String, Record>,
    look: Look,
) -> (BTreeMap<String, Record>, Vec<(String, Value)>) {
    let (mut after, mut wanted) = (BTreeMap::new(), Vec::new());
    for (name, seen) in files {
        let known = before.get(name).cloned().unwrap_or_default();
        let failed = |error: String| Record { error, ..known.clone() };
        let record = match seen {
            Seen::Changing => known,
            Seen::Unreadable(error) => failed(format!("it cannot be read: {error}")),
            Seen::Text(text) => {
                let hash = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
                let is_known = known.hash == hash && known.error.is_empty();
                match objects(text) {
                    Err(error) => failed(error),
                    Ok(found) if found.is_empty() && !known.objects.is_empty() => {
                        failed(EMPTY.to_owned())
                    }
                    Ok(_) if is_known && look == Look::Changed => known,
                    Ok(found) => {
                        wanted.extend(found.into_iter().map(|object| (name.clone(), object)));
                        Record { hash, ..Record::default() }
                    }
                }
            }
        };
        after.insert(name.clone(), record);
    }
    // Stable: within a kind the order is the files'.
    wanted.sort_by_key(|(_, object)| stands_on(object["kind"].as_str().unwrap_or_default()));
    (after, wanted)
}

/// Whether all that files say is known.
fn files_are_whole(files: &BTreeMap<String, Seen>, after: &BTreeMap<String, Record>) -> bool {
    files.iter().all(|(name, seen)| match seen {
        Seen::Text(text) => {
            objects(text).is_ok() && after.get(name).is_none_or(|record| record.error != EMPTY)
        }
        Seen::Changing | Seen::Unreadable(_) => false,
    })
}

struct Applier {
    client: Client,
    node: String,
}

impl Applier {
    /// Makes the cluster as the files say. Whether everything went well.
    async fn sync(&self, files: &BTreeMap<String, Seen>, look: Look) -> Result<bool, Status> {
        let before = self.records().await?;
        let (mut after, wanted) = plan(files, &before, look);
        let made_before: Vec<&Reference> =
            before.values().flat_map(|record| &record.objects).collect();
        for (file, object) in wanted {
            let record = after.entry(file).or_default();
            let asked = Reference::of(&object);
            match self.apply(object).await {
                Ok(reference) => record.objects.push(reference),
                Err(status) => {
                    let Reference { kind, name, .. } = &asked;
                    tracing::warn!(kind, name, problem = status.message, "a manifest was refused");
                    record.error = format!("{kind} {name}: {}", status.message);
                    // It may have been there before, by whatever file: it is not removed for an error.
                    let known = made_before.iter().find(|one| one.is_meant_by(&asked));
                    record.objects.extend(known.map(|one| (*one).clone()));
                }
            }
        }
        let mut left = Record { objects: gone(&before, &after), ..Record::default() };
        // What is missing may be in a file that cannot be read yet: nothing goes until it can.
        if files_are_whole(files, &after) {
            for reference in std::mem::take(&mut left.objects) {
                if let Err(status) = self.delete(&reference).await {
                    left.error =
                        format!("{} {}: {}", reference.kind, reference.name, status.message);
                    left.objects.push(reference);
                }
            }
        }
        let is_done = left.objects.is_empty()
            && after.values().all(|record| record.error.is_empty())
            && !files.values().any(|seen| *seen == Seen::Changing);
        if !left.objects.is_empty() {
            // It was taken the last first, and will be again.
            left.objects.reverse();
            after.insert(REMOVED.to_owned(), left);
        }
        if after != before {
            self.write(&after).await?;
        }
        Ok(is_done)
    }

    async fn apply(&self, object: Value) -> Result<Reference, Status> {
        let mut reference = Reference::of(&object);
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

    fn later() -> SystemTime {
        SystemTime::now() + 2 * SETTLE
    }

    #[test]
    fn files_with_odd_names_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.yaml", "b.json", ".c.yaml", "d.txt", "e f.yaml"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let found = read(folder.path(), later()).unwrap();
        assert_eq!(found.into_keys().collect::<Vec<_>>(), ["a.yaml", "b.json"]);
    }

    #[test]
    fn what_cannot_be_read_or_is_being_written_is_not_gone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a.yaml"), "x").unwrap();
        std::fs::write(at("b.yaml"), [0xff]).unwrap();
        std::os::unix::fs::symlink("nowhere", at("c.yaml")).unwrap();
        std::fs::create_dir(at("d.yaml")).unwrap();
        let written = std::fs::metadata(at("a.yaml")).unwrap().modified().unwrap();
        let found = read(folder.path(), later()).unwrap();
        assert_eq!(found["a.yaml"], Seen::Text("x".to_owned()));
        for name in ["b.yaml", "c.yaml", "d.yaml"] {
            assert!(matches!(found[name], Seen::Unreadable(_)), "{name}: {found:?}");
        }
        assert_eq!(read(folder.path(), written).unwrap()["a.yaml"], Seen::Changing);
        assert!(read(&at("gone"), later()).is_err());
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

    fn one(kind: &str, name: &str) -> Reference {
        let (kind, name) = (kind.to_owned(), name.to_owned());
        Reference { api_version: "v1".to_owned(), kind, name, ..Reference::default() }
    }

    fn made(files: &[(&str, &[Reference])]) -> BTreeMap<String, Record> {
        let record =
            |objects: &[Reference]| Record { objects: objects.to_vec(), ..Record::default() };
        files.iter().map(|(name, objects)| ((*name).to_owned(), record(objects))).collect()
    }

    #[test]
    fn what_no_file_has_any_more_goes_the_last_first() {
        let [a, b, c] = ["a", "b", "c"].map(|name| one("ConfigMap", name));
        let space = one("Namespace", "n");
        let before =
            made(&[("1.yaml", &[a.clone(), b.clone()]), ("2.yaml", &[space.clone(), c.clone()])]);
        assert_eq!(gone(&before, &made(&[])), [c.clone(), b.clone(), a.clone(), space.clone()]);
        // What is in another file now stays, whatever the version that it is written in.
        let newer = Reference { api_version: "v2".to_owned(), ..b };
        assert_eq!(gone(&before, &made(&[("3.yaml", &[newer, space])])), [c, a]);
        assert_eq!(gone(&before, &before), []);
        let of = |version: &str| Reference { api_version: version.to_owned(), ..one("X", "x") };
        assert!(of("g/v1").is_same(&of("g/v2")) && !of("g/v1").is_same(&of("h/v1")));
    }

    /// What becomes of the files, and what is applied.
    fn planned(files: &[(&str, Seen)], before: &BTreeMap<String, Record>, look: Look) -> String {
        let files = files.iter().map(|(name, seen)| {
            let seen = match seen {
                Seen::Text(text) => Seen::Text(text.clone()),
                Seen::Changing => Seen::Changing,
                Seen::Unreadable(error) => Seen::Unreadable(error.clone()),
            };
            ((*name).to_owned(), seen)
        });
        let files = files.collect();
        let (after, wanted) = plan(&files, before, look);
        let mut said = String::new();
        for (name, record) in &after {
            let kept: Vec<&str> = record.objects.iter().map(|one| &*one.name).collect();
            said += &format!("{name} keeps {kept:?} {}\n", record.error);
        }
        for (file, object) in &wanted {
            said += &format!("apply {} of {file}\n", object["metadata"]["name"]);
        }
        said + &format!("prunes: {}\n", files_are_whole(&files, &after))
    }

    #[test]
    fn a_file_that_says_nothing_takes_nothing_away() {
        let text = |text: &str| Seen::Text(text.to_owned());
        let before = made(&[("1.yaml", &[one("ConfigMap", "a")])]);
        let says = |seen: Seen| planned(&[("1.yaml", seen)], &before, Look::All);
        assert_eq!(says(Seen::Changing), "1.yaml keeps [\"a\"] \nprunes: false\n");
        assert_eq!(
            says(Seen::Unreadable("no".to_owned())),
            "1.yaml keeps [\"a\"] it cannot be read: no\nprunes: false\n"
        );
        for empty in ["", "# nothing\n---\n"] {
            assert_eq!(says(text(empty)), format!("1.yaml keeps [\"a\"] {EMPTY}\nprunes: false\n"));
        }
        let broken = says(text("kind: ["));
        assert!(broken.starts_with("1.yaml keeps [\"a\"] "), "{broken}");
        assert!(broken.ends_with("prunes: false\n"), "{broken}");
        // Another file that is broken may be where something went.
        let moved = [("1.yaml", text("kind: B\nmetadata: {name: b}")), ("2.yaml", text("kind: ["))];
        let moved = planned(&moved, &before, Look::All);
        assert!(moved.contains("apply \"b\" of 1.yaml\nprunes: false"), "{moved}");
    }

    #[test]
    fn namespaces_and_definitions_are_made_before_what_is_in_them() {
        let text = |text: &str| Seen::Text(text.to_owned());
        let files = [
            ("1.yaml", text("kind: ConfigMap\nmetadata: {name: a}")),
            ("2.yaml", text("kind: CustomResourceDefinition\nmetadata: {name: d}")),
            ("3.yaml", text("kind: Namespace\nmetadata: {name: space}")),
        ];
        let said = planned(&files, &BTreeMap::new(), Look::Changed);
        let order = "apply \"space\" of 3.yaml\napply \"d\" of 2.yaml\napply \"a\" of 1.yaml\nprunes: true\n";
        assert!(said.ends_with(order), "{said}");
    }

    #[test]
    fn a_file_that_is_as_it_was_is_applied_only_at_the_start() {
        let files = || [("1.yaml", Seen::Text("kind: A\nmetadata: {name: a}".to_owned()))];
        let mut before = made(&[("1.yaml", &[one("A", "a")])]);
        let hash = Sha256::digest("kind: A\nmetadata: {name: a}");
        before.get_mut("1.yaml").unwrap().hash =
            hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!planned(&files(), &before, Look::Changed).contains("apply"));
        assert!(planned(&files(), &before, Look::All).contains("apply \"a\" of 1.yaml"));
    }

    #[test]
    fn what_is_refused_is_found_among_what_was_made() {
        let made = Reference { namespace: "default".to_owned(), ..one("ConfigMap", "a") };
        assert!(made.is_meant_by(&one("ConfigMap", "a")));
        let elsewhere = Reference { namespace: "other".to_owned(), ..made };
        assert!(
            !elsewhere.is_meant_by(&one("ConfigMap", "a")) && elsewhere.is_meant_by(&elsewhere)
        );
        assert!(
            one("Node", "n")
                .is_meant_by(&Reference { namespace: "x".to_owned(), ..one("Node", "n") })
        );
    }
}
