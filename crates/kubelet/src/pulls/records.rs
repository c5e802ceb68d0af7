//! Who may use an image that is here. An image that was pulled with somebody's secret is not for
//! whoever knows its name: a pod must have a secret that it was pulled with, or pull it again
//! (`pkg/kubelet/images/pullmanager`). The files are upstream's, so that the kubelets of a node can
//! take each other's place.
use super::credentials::{Credential, Named, Whose};
use super::repository;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// A record is not made longer than this by looking at it.
const MANY_SECRETS: usize = 100;

/// `imagePullCredentialsVerificationPolicy`: which images have to be proved one's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Policy {
    /// None.
    NeverVerify,
    /// Those that a kubelet pulled: what was there before is everybody's.
    #[default]
    NeverVerifyPreloadedImages,
    /// All but those that are listed, by repository (`registry/*` for all below).
    NeverVerifyAllowlistedImages(Vec<String>),
    /// All.
    AlwaysVerify,
}

impl Policy {
    fn verifies(&self, repository: &str, was_pulled: bool) -> bool {
        match self {
            Policy::NeverVerify => false,
            Policy::AlwaysVerify => true,
            Policy::NeverVerifyPreloadedImages => was_pulled,
            Policy::NeverVerifyAllowlistedImages(list) => {
                let is_listed = |one: &String| match one.strip_suffix("/*") {
                    Some(prefix) => repository.starts_with(&format!("{prefix}/")),
                    None => one == repository,
                };
                was_pulled || !list.iter().any(is_listed)
            }
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Intent {
    kind: String,
    api_version: String,
    image: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pulled {
    kind: String,
    api_version: String,
    last_updated_time: String,
    image_ref: String,
    #[serde(default)]
    credential_mapping: BTreeMap<String, Shown>,
}

/// What was shown for an image.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Shown {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<SecretShown>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_service_accounts: Vec<AccountShown>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SecretShown {
    uid: String,
    namespace: String,
    name: String,
    credential_hash: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AccountShown {
    namespace: String,
    name: String,
    uid: String,
}

impl AccountShown {
    fn of(credential: &Credential) -> Option<AccountShown> {
        let Whose::ServiceAccount(Named { uid, namespace, name }) = credential.whose.clone() else {
            return None;
        };
        Some(AccountShown { namespace, name, uid })
    }
}

impl SecretShown {
    fn of(credential: &Credential) -> Option<SecretShown> {
        let Whose::Secret(Named { uid, namespace, name }) = credential.whose.clone() else {
            return None;
        };
        Some(SecretShown { uid, namespace, name, credential_hash: credential.hash.clone() })
    }

    fn is_of(&self, other: &SecretShown) -> bool {
        (&self.uid, &self.namespace, &self.name) == (&other.uid, &other.namespace, &other.name)
    }
}

#[derive(Debug)]
pub struct PullRecords {
    folder: PathBuf,
    policy: Policy,
    /// One reads and writes at a time.
    one: Mutex<()>,
}

impl PullRecords {
    pub fn new(root: &Path, policy: Policy) -> PullRecords {
        PullRecords { folder: root.join("image_manager"), policy, one: Mutex::default() }
    }

    /// An image is about to be pulled: should we end before it is known how, it is nobody's.
    pub fn begin(&self, image: &str) {
        let intent = Intent {
            kind: "ImagePullIntent".to_owned(),
            api_version: VERSION.to_owned(),
            image: image.to_owned(),
        };
        let _one = self.one.lock();
        self.write("pulling", image, &intent);
    }

    /// How a pull ended: with what image, and what was shown for it.
    pub fn end(&self, image: &str, pulled: Option<(&str, Option<&Credential>)>, now: Timestamp) {
        let _one = self.one.lock();
        if let Some((reference, shown)) = pulled {
            self.add(image, reference, Some(shown), now);
        }
        let _ = fs::remove_file(self.path("pulling", image));
    }

    /// Whether pulls ended with the kubelet before this one.
    pub fn were_interrupted(&self) -> bool {
        fs::read_dir(self.folder.join("pulling")).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Pulls that ended with the kubelet before this one: what they brought was pulled, by whom is
    /// not known.
    pub fn take_up(&self, images: &[(String, Vec<String>)], now: Timestamp) {
        let _one = self.one.lock();
        let folder = self.folder.join("pulling");
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let text = fs::read(entry.path()).unwrap_or_default();
            let Ok(intent) = serde_json::from_slice::<Intent>(&text) else { continue };
            let named = |names: &[String]| {
                let own = repository(&intent.image);
                names.iter().any(|name| *name == intent.image || repository(name) == own)
            };
            for (reference, _) in images.iter().filter(|(_, names)| named(names)) {
                self.add(&intent.image, reference, None, now);
            }
            let _ = fs::remove_file(entry.path());
        }
    }

    /// Whether a pod with these credentials has to pull an image that is here.
    pub fn must_pull(
        &self,
        image: &str,
        reference: &str,
        credentials: &[Credential],
        now: Timestamp,
    ) -> bool {
        let _one = self.one.lock();
        let record = self.read(reference);
        let was_pulled = record.is_some() || self.path("pulling", image).exists();
        let repository = repository(image);
        if !self.policy.verifies(&repository, was_pulled) {
            return false;
        }
        let Some(shown) = record.and_then(|mut all| all.credential_mapping.remove(&repository))
        else {
            return true;
        };
        if shown.node_pods_accessible {
            return false;
        }
        let mut accounts = credentials.iter().filter_map(AccountShown::of);
        if accounts.any(|own| shown.kubernetes_service_accounts.contains(&own)) {
            return false;
        }
        for own in credentials.iter().filter_map(|one| Some((one, SecretShown::of(one)?))) {
            let (credential, own) = own;
            let mut known = shown.kubernetes_secrets.iter();
            let fits = |known: &&SecretShown| {
                let same_hash = !known.credential_hash.is_empty()
                    && known.credential_hash == own.credential_hash;
                same_hash || known.is_of(&own)
            };
            if known.any(|known| fits(&known)) {
                // The next time either of them will do.
                if shown.kubernetes_secrets.len() < MANY_SECRETS {
                    self.add(image, reference, Some(Some(credential)), now);
                }
                return false;
            }
        }
        true
    }

    /// What is known of images that are not here any more goes.
    pub fn keep(&self, references: &[String]) {
        let _one = self.one.lock();
        let names: Vec<String> = references.iter().map(|reference| file_name(reference)).collect();
        for entry in fs::read_dir(self.folder.join("pulled")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !names.contains(&name) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// `shown` is nothing if it is not known what was shown, and nothing inside if nothing was.
    fn add(
        &self,
        image: &str,
        reference: &str,
        shown: Option<Option<&Credential>>,
        now: Timestamp,
    ) {
        let old = self.read(reference);
        let mut record = old.clone().unwrap_or_else(|| Pulled {
            kind: "ImagePulledRecord".to_owned(),
            api_version: VERSION.to_owned(),
            last_updated_time: String::new(),
            image_ref: reference.to_owned(),
            credential_mapping: BTreeMap::new(),
        });
        if let Some(shown) = shown {
            let entry = record.credential_mapping.entry(repository(image)).or_default();
            let own = (shown.and_then(SecretShown::of), shown.and_then(AccountShown::of));
            match own {
                (None, None) => *entry = Shown { node_pods_accessible: true, ..Shown::default() },
                _ if entry.node_pods_accessible => {}
                (None, Some(own)) => {
                    let accounts = &mut entry.kubernetes_service_accounts;
                    if !accounts.contains(&own) && accounts.len() < MANY_SECRETS {
                        accounts.push(own);
                        accounts.sort();
                    }
                }
                (Some(own), _) => {
                    entry.kubernetes_secrets.retain(|known| !known.is_of(&own));
                    entry.kubernetes_secrets.push(own);
                    entry.kubernetes_secrets.sort_by(|a, b| {
                        (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid))
                    });
                }
            }
        }
        if old.as_ref() != Some(&record) {
            record.last_updated_time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            self.write("pulled", reference, &record);
        }
    }

    fn read(&self, reference: &str) -> Option<Pulled> {
        let text = fs::read(self.path("pulled", reference)).ok()?;
        let record: Pulled = serde_json::from_slice(&text).ok()?;
        (record.image_ref == reference).then_some(record)
    }

    fn path(&self, kind: &str, name: &str) -> PathBuf {
        self.folder.join(kind).join(file_name(name))
    }

    /// Who may use an image has to be known after a crash too: a write that fails is told, and
    /// what it would have said has to be shown again.
    fn write(&self, kind: &str, name: &str, what: &impl Serialize) {
        let path = self.path(kind, name);
        let written = || -> io::Result<()> {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(self.folder.join(kind))?;
            let temporary = path.with_extension("tmp");
            let mut options = fs::OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            io::Write::write_all(&mut file, &serde_json::to_vec(what)?)?;
            fs::rename(temporary, &path)
        };
        if let Err(error) = written() {
            tracing::warn!("failed to write {}: {error}", path.display());
        }
    }
}

fn file_name(name: &str) -> String {
    let digest = Sha256::digest(name);
    let text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256-{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(secret: &str, password: &str) -> Credential {
        let part = |part: &str| format!("{secret}-{part}");
        Credential {
            whose: Whose::Secret(Named {
                uid: part("uid"),
                namespace: "n".to_owned(),
                name: part("name"),
            }),
            hash: password.to_owned(),
            ..Credential::default()
        }
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn an_image_is_for_those_who_could_pull_it() {
        let folder = tempfile::tempdir().unwrap();
        let records = PullRecords::new(folder.path(), Policy::default());
        let must = |credentials: &[Credential]| {
            records.must_pull("r.io/web:1", "sha256:1", credentials, NOW)
        };
        assert!(!must(&[]), "it was there before");
        records.begin("r.io/web:1");
        assert!(must(&[]), "it is not known how that ends");
        let mine = credential("mine", "p1");
        records.end("r.io/web:1", Some(("sha256:1", Some(&mine))), NOW);
        assert!(must(&[]), "it was pulled with a secret");
        assert!(must(&[credential("other", "p2")]));
        assert!(!must(&[credential("mine", "p1")]));
        assert!(!must(&[credential("copy", "p1")]), "the same credentials in another secret");
        assert!(!must(&[credential("mine", "p3")]), "the same secret with other credentials");
        assert!(!must(&[credential("later", "p3")]));
        assert!(
            records.must_pull("other.io/web:1", "sha256:1", &[mine], NOW),
            "another repository"
        );
        // Somebody could pull it without showing anything.
        records.end("r.io/web:2", Some(("sha256:1", None)), NOW);
        assert!(!must(&[]));
    }

    #[test]
    fn an_image_is_for_accounts_that_could_pull_it() {
        let folder = tempfile::tempdir().unwrap();
        let records = PullRecords::new(folder.path(), Policy::default());
        let account = |uid: &str| {
            let (namespace, name) = ("n".to_owned(), "web".to_owned());
            let named = Named { uid: uid.to_owned(), namespace, name };
            Credential { whose: Whose::ServiceAccount(named), ..Credential::default() }
        };
        records.end("r.io/web:1", Some(("sha256:1", Some(&account("1")))), NOW);
        let must = |own: &[Credential]| records.must_pull("r.io/web:1", "sha256:1", own, NOW);
        assert!(must(&[]), "it was pulled with an account");
        assert!(!must(&[account("1")]));
        assert!(must(&[account("2")]), "another account of the same name");
        assert!(must(&[credential("mine", "")]));
    }

    #[test]
    fn pulls_that_were_interrupted_are_nobodys() {
        let folder = tempfile::tempdir().unwrap();
        PullRecords::new(folder.path(), Policy::default()).begin("r.io/web:1");
        let records = PullRecords::new(folder.path(), Policy::default());
        assert!(records.were_interrupted());
        records.take_up(&[("sha256:1".to_owned(), vec!["r.io/web:1".to_owned()])], NOW);
        assert!(records.must_pull("r.io/web:1", "sha256:1", &[], NOW));
        records.keep(&["sha256:2".to_owned()]);
        assert!(!records.must_pull("r.io/web:1", "sha256:1", &[], NOW), "it went and came again");
    }

    #[test]
    fn the_policy_says_which_images_count() {
        let folder = tempfile::tempdir().unwrap();
        let must = |policy: Policy, image: &str| {
            PullRecords::new(folder.path(), policy).must_pull(image, "sha256:9", &[], NOW)
        };
        assert!(must(Policy::AlwaysVerify, "r.io/web"));
        assert!(!must(Policy::NeverVerify, "r.io/web"));
        let list = || {
            Policy::NeverVerifyAllowlistedImages(vec![
                "r.io/ours/*".to_owned(),
                "b.io/x".to_owned(),
            ])
        };
        assert!(!must(list(), "r.io/ours/web") && !must(list(), "b.io/x:1"));
        assert!(must(list(), "r.io/theirs") && must(list(), "b.io/xy"));
    }

    #[test]
    fn the_file_is_upstreams() {
        let folder = tempfile::tempdir().unwrap();
        let records = PullRecords::new(folder.path(), Policy::default());
        records.end("web", Some(("sha256:1", Some(&credential("s", "h")))), NOW);
        let path = folder.path().join("image_manager/pulled").join(file_name("sha256:1"));
        assert_eq!(
            fs::read_to_string(path).unwrap(),
            r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"1970-01-01T00:00:00Z","imageRef":"sha256:1","credentialMapping":{"docker.io/library/web":{"kubernetesSecrets":[{"uid":"s-uid","namespace":"n","name":"s-name","credentialHash":"h"}]}}}"#
        );
    }
}
