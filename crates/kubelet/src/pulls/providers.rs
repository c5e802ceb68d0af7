//! Programs that know a registry's credentials: a cloud's own, mostly. They are asked on standard input
//! and answer on standard output (`pkg/credentialprovider/plugin`); what they say is kept for as long as
//! they say.
use super::credentials::{self, Credential};
use super::repository;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// How long one may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest answer.
const LONGEST: usize = 1 << 20;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    kind: String,
    api_version: String,
    providers: Vec<Provider>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Provider {
    name: String,
    api_version: String,
    match_images: Vec<String>,
    default_cache_duration: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Variable>,
    #[serde(default)]
    token_attributes: Option<Value>,
}

#[derive(Debug, Clone, Deserialize)]
struct Variable {
    name: String,
    value: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    cache_key_type: String,
    #[serde(default)]
    cache_duration: Option<String>,
    #[serde(default)]
    auth: BTreeMap<String, Value>,
}

/// What was said, by provider and image, registry or nothing, and until when.
type Said = HashMap<(String, String), (Timestamp, Value)>;

#[derive(Debug)]
pub struct Providers {
    folder: PathBuf,
    providers: Vec<Provider>,
    said: Mutex<Said>,
}

impl Providers {
    /// From a CredentialProviderConfig and the folder that its programs are in.
    pub fn read(file: &Path, folder: &Path) -> Result<Providers, String> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("failed to read {}: {error}", file.display()))?;
        Providers::parse(&text, folder)
            .map_err(|why| format!("{} is not right: {why}", file.display()))
    }

    fn parse(text: &str, folder: &Path) -> Result<Providers, String> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let is_known = file.api_version.starts_with("kubelet.config.k8s.io/");
        if file.kind != "CredentialProviderConfig" || !is_known {
            return Err(format!(
                "no kind {:?} is registered for version {:?}",
                file.kind, file.api_version
            ));
        }
        for one in &file.providers {
            if one.name.is_empty()
                || one.name.contains(['/', '\\', ' '])
                || one.name.starts_with('.')
            {
                return Err(format!("{:?} is no name of a provider", one.name));
            }
            if one.token_attributes.is_some() {
                return Err(format!("{}: tokenAttributes are not supported", one.name));
            }
            if !one.api_version.starts_with("credentialprovider.kubelet.k8s.io/") {
                return Err(format!("{}: apiVersion {:?} is not known", one.name, one.api_version));
            }
            duration(&one.default_cache_duration).map_err(|why| format!("{}: {why}", one.name))?;
        }
        let said = Mutex::default();
        Ok(Providers { folder: folder.to_owned(), providers: file.providers, said })
    }

    /// What those say whose images it is one of; who fails is told in the log.
    pub async fn credentials(&self, image: &str, now: Timestamp) -> Vec<Credential> {
        let repository = repository(image);
        let mut found = Vec::new();
        for provider in &self.providers {
            let mut places = provider.match_images.iter();
            if !places.any(|place| credentials::fits(&credentials::plain(place), &repository)) {
                continue;
            }
            match self.ask(provider, image, &repository, now).await {
                Ok(auth) => found.extend(credentials::of_config(&repository, &auth, None)),
                Err(why) => {
                    tracing::warn!(provider = provider.name, image, "no credentials: {why}")
                }
            }
        }
        found
    }

    async fn ask(
        &self,
        provider: &Provider,
        image: &str,
        repository: &str,
        now: Timestamp,
    ) -> Result<Value, String> {
        let registry = repository.split('/').next().unwrap_or_default();
        let keys = [image, registry, ""].map(|key| (provider.name.clone(), key.to_owned()));
        let kept = {
            let said = self.said.lock();
            let good = |key| said.get(key).filter(|(until, _)| *until > now);
            keys.iter().find_map(good).map(|(_, auth)| auth.clone())
        };
        if let Some(auth) = kept {
            return Ok(auth);
        }
        let answer = self.run(provider, image).await?;
        let [by_image, by_registry, by_nothing] = keys;
        let key = match answer.cache_key_type.as_str() {
            "Image" => by_image,
            "Registry" => by_registry,
            "Global" => by_nothing,
            other => return Err(format!("cacheKeyType {other:?} is not known")),
        };
        let auth = json!(answer.auth);
        let lasts = answer.cache_duration.as_deref().unwrap_or(&provider.default_cache_duration);
        let until = now.saturating_add(duration(lasts)?).map_err(|error| error.to_string())?;
        let mut said = self.said.lock();
        said.retain(|_, (until, _)| *until > now);
        if until > now {
            said.insert(key, (until, auth.clone()));
        }
        Ok(auth)
    }

    async fn run(&self, provider: &Provider, image: &str) -> Result<Answer, String> {
        let question = json!({
            "apiVersion": provider.api_version, "kind": "CredentialProviderRequest", "image": image,
        });
        let mut command = Command::new(self.folder.join(&provider.name));
        command.args(&provider.args);
        command.envs(provider.env.iter().map(|one| (&one.name, &one.value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().map_err(|error| error.to_string())?;
        let mut input = child.stdin.take().ok_or("it has no input")?;
        let conversation = async {
            // One that does not read what it is asked may answer all the same.
            let _ = input.write_all(question.to_string().as_bytes()).await;
            drop(input);
            child.wait_with_output().await.map_err(|error| error.to_string())
        };
        let output = tokio::time::timeout(PATIENCE, conversation).await;
        let output = output.map_err(|_| "it does not answer".to_owned())??;
        if !output.status.success() {
            return Err(format!("it ended with {}", output.status));
        }
        if output.stdout.len() > LONGEST {
            return Err("it says too much".to_owned());
        }
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
    }
}

fn duration(text: &str) -> Result<SignedDuration, String> {
    let span = api::duration::Duration::parse(text).map_err(|error| error.to_string())?;
    if span.nanos < 0 {
        return Err(format!("{text} is negative"));
    }
    Ok(SignedDuration::from_nanos(span.nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn config(name: &str, extra: &str) -> String {
        format!(
            "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n\
             - name: {name}\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  \
             matchImages: ['*.cloud.io']\n  defaultCacheDuration: 1h\n{extra}"
        )
    }

    /// A program that counts how often it is asked, and answers with what it was asked.
    fn provider(folder: &Path, kind: &str) -> Providers {
        let path = folder.join("cloud");
        let script = format!(
            "#!/bin/sh\necho x >> {}/asked\nread -r line\n[ \"$FAIL\" ] && exit 1\n\
             echo '{{\"cacheKeyType\":\"{kind}\",\"auth\":{{\"*.cloud.io\":{{\"username\":\"u\",\"password\":\"'$1'\"}}}}}}'\n",
            folder.display()
        );
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Providers::parse(&config("cloud", "  args: [secret]\n"), folder).unwrap()
    }

    #[tokio::test]
    async fn a_provider_is_asked_for_its_images_and_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        let providers = provider(folder.path(), "Registry");
        let asked = || {
            let text = std::fs::read_to_string(folder.path().join("asked")).unwrap_or_default();
            text.lines().count()
        };
        assert_eq!(providers.credentials("other.io/web", at(0)).await, []);
        assert_eq!(asked(), 0);
        let found = providers.credentials("a.cloud.io/web:1", at(0)).await;
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].auth.username.as_str(), found[0].auth.password.as_str()),
            ("u", "secret")
        );
        assert_eq!(found[0].secret, None, "it is everybody's on the node");
        providers.credentials("a.cloud.io/other", at(60)).await;
        assert_eq!(asked(), 1, "it is the same registry");
        providers.credentials("b.cloud.io/web", at(60)).await;
        assert_eq!(asked(), 2);
        providers.credentials("a.cloud.io/web", at(3601)).await;
        assert_eq!(asked(), 3, "it was good for an hour");
    }

    #[tokio::test]
    async fn one_that_fails_gives_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let providers = Providers::parse(&config("missing", ""), folder.path()).unwrap();
        assert_eq!(providers.credentials("a.cloud.io/web", Timestamp::UNIX_EPOCH).await, []);
    }

    #[test]
    fn what_is_wrong_is_told_at_the_start() {
        let check = |text: &str| Providers::parse(text, Path::new("/")).unwrap_err();
        assert!(check(&config("../sh", "")).contains("is no name of a provider"));
        assert!(check(&config("a", "  tokenAttributes: {}\n")).contains("not supported"));
        assert!(check("kind: Pod\napiVersion: v1\nproviders: []\n").contains("no kind"));
        assert!(!check("providers: 1").is_empty());
    }
}
