//! Programs that know a registry's credentials: a cloud's own, mostly. They are asked on standard input
//! and answer on standard output (`pkg/credentialprovider/plugin`); what they say is kept for as long as
//! they say.
use super::attributes::{Account, Accounts, TokenAttributes};
use super::credentials::{self, Credential, Named, Whose};
use super::repository;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
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
    token_attributes: Option<TokenAttributes>,
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

/// What was said, by provider, image, registry or nothing, and account; and until when.
type Said = HashMap<(String, String, String), (Timestamp, Value)>;

/// Tokens that can still be shown, by pod and audience.
type Tokens = HashMap<(String, String), (Timestamp, String)>;

/// The account that a provider is asked for.
#[derive(Default)]
struct For {
    whose: Whose,
    token: String,
    annotations: BTreeMap<String, String>,
    /// For whom the answer is good; everybody if it is empty.
    key: String,
}

#[derive(Debug)]
pub struct Providers {
    folder: PathBuf,
    providers: Vec<Provider>,
    said: Mutex<Said>,
    tokens: Mutex<Tokens>,
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
            if let Some(attributes) = &one.token_attributes {
                attributes.check(&one.api_version)?;
            }
            if !one.api_version.starts_with("credentialprovider.kubelet.k8s.io/") {
                return Err(format!("{}: apiVersion {:?} is not known", one.name, one.api_version));
            }
            duration(&one.default_cache_duration).map_err(|why| format!("{}: {why}", one.name))?;
        }
        let (said, tokens) = (Mutex::default(), Mutex::default());
        Ok(Providers { folder: folder.to_owned(), providers: file.providers, said, tokens })
    }

    /// What those say whose images it is one of; who fails is told in the log.
    pub async fn credentials(
        &self,
        image: &str,
        accounts: &dyn Accounts,
        now: Timestamp,
    ) -> Vec<Credential> {
        let repository = repository(image);
        let mut found = Vec::new();
        for provider in &self.providers {
            let mut places = provider.match_images.iter();
            if !places.any(|place| credentials::fits(&credentials::plain(place), &repository)) {
                continue;
            }
            let asked = async {
                let Some(of) = self.account(provider, accounts, now).await? else {
                    return Ok(None);
                };
                let auth = self.ask(provider, image, &repository, &of, now).await?;
                Ok::<_, String>(Some((auth, of.whose)))
            };
            match asked.await {
                Ok(Some((auth, whose))) => {
                    found.extend(credentials::of_config(&repository, &auth, &whose));
                }
                Ok(None) => {}
                Err(why) => {
                    tracing::warn!(provider = provider.name, image, "no credentials: {why}")
                }
            }
        }
        found
    }

    /// For whom a provider is asked; nothing if it is not to be asked for this pod.
    async fn account(
        &self,
        provider: &Provider,
        accounts: &dyn Accounts,
        now: Timestamp,
    ) -> Result<Option<For>, String> {
        let Some(attributes) = &provider.token_attributes else { return Ok(Some(For::default())) };
        let (namespace, name) = accounts.name();
        if name.is_empty() {
            let is_needed = attributes.require_service_account != Some(false);
            return Ok((!is_needed).then(For::default));
        }
        let account = accounts.account().await;
        let account = account.map_err(|why| format!("failed to get service account: {why}"))?;
        let Some(annotations) = attributes.shown(&account) else { return Ok(None) };
        let token = self.token(accounts, &attributes.service_account_token_audience, now).await;
        let token = token.map_err(|why| format!("failed to get service account token: {why}"))?;
        let Account { uid, .. } = account;
        // Nothing that is remembered is to have the token in it.
        let digest = attributes.is_by_token().then(|| {
            let digest = Sha256::digest(&token);
            digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        });
        let key = json!([namespace, name, uid, annotations, digest]);
        let named = Named { uid, namespace: namespace.to_owned(), name: name.to_owned() };
        let whose = Whose::ServiceAccount(named);
        Ok(Some(For { whose, token, annotations, key: key.to_string() }))
    }

    /// A token of the pod's account: the one that it has, until four fifths of its time are over.
    async fn token(
        &self,
        accounts: &dyn Accounts,
        audience: &str,
        now: Timestamp,
    ) -> Result<String, String> {
        let key = (accounts.pod_uid().to_owned(), audience.to_owned());
        let kept = self.tokens.lock().get(&key).filter(|(until, _)| now < *until).cloned();
        if let Some((_, token)) = kept {
            return Ok(token);
        }
        let (token, until) = accounts.token(audience).await?;
        let refresh = now.saturating_add(until.duration_since(now) / 5 * 4);
        let mut tokens = self.tokens.lock();
        tokens.retain(|_, (until, _)| now < *until);
        tokens.insert(key, (refresh.unwrap_or(now), token.clone()));
        Ok(token)
    }

    async fn ask(
        &self,
        provider: &Provider,
        image: &str,
        repository: &str,
        of: &For,
        now: Timestamp,
    ) -> Result<Value, String> {
        let registry = repository.split('/').next().unwrap_or_default();
        let keys = [image, registry, ""]
            .map(|key| (provider.name.clone(), key.to_owned(), of.key.clone()));
        let kept = {
            let said = self.said.lock();
            let good = |key| said.get(key).filter(|(until, _)| *until > now);
            keys.iter().find_map(good).map(|(_, auth)| auth.clone())
        };
        if let Some(auth) = kept {
            return Ok(auth);
        }
        let answer = self.run(provider, image, of).await?;
        let is_by_token =
            provider.token_attributes.as_ref().is_some_and(TokenAttributes::is_by_token);
        let mut passwords = answer.auth.values().map(|entry| &entry["password"]);
        if !of.token.is_empty() && !is_by_token && passwords.any(|one| *one == of.token) {
            return Err("credential provider plugin returned the service account token as the password which is not allowed when service account cache type is not set to 'Token'".to_owned());
        }
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

    async fn run(&self, provider: &Provider, image: &str, of: &For) -> Result<Answer, String> {
        let mut question = json!({
            "apiVersion": provider.api_version, "kind": "CredentialProviderRequest", "image": image,
        });
        if !of.token.is_empty() {
            question["serviceAccountToken"] = of.token.as_str().into();
        }
        if !of.annotations.is_empty() {
            question["serviceAccountAnnotations"] = json!(of.annotations);
        }
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
    use super::super::attributes::Token;
    use super::*;
    use futures_util::future::{BoxFuture, FutureExt};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A pod without an account.
    struct Nobody;

    impl Accounts for Nobody {
        fn name(&self) -> (&str, &str) {
            ("n", "")
        }

        fn pod_uid(&self) -> &str {
            "u"
        }

        fn account(&self) -> BoxFuture<'_, Result<Account, String>> {
            std::future::ready(Err("there is none".to_owned())).boxed()
        }

        fn token<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Token, String>> {
            std::future::ready(Err("there is none".to_owned())).boxed()
        }
    }

    /// A pod's account, and how many tokens were made for it.
    struct One {
        uid: &'static str,
        annotations: BTreeMap<String, String>,
        made: AtomicUsize,
    }

    impl Accounts for One {
        fn name(&self) -> (&str, &str) {
            ("n", "web")
        }

        fn pod_uid(&self) -> &str {
            self.uid
        }

        fn account(&self) -> BoxFuture<'_, Result<Account, String>> {
            let account =
                Account { uid: self.uid.to_owned(), annotations: self.annotations.clone() };
            std::future::ready(Ok(account)).boxed()
        }

        fn token<'a>(&'a self, audience: &'a str) -> BoxFuture<'a, Result<Token, String>> {
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            let token = format!("{audience}-{}-{number}", self.uid);
            let until = Timestamp::from_second(3600 * (1 + number as i64)).unwrap();
            std::future::ready(Ok((token, until))).boxed()
        }
    }

    /// A program that says as password what it is asked, with the quotes of JSON away.
    fn echoing(folder: &Path, cache_type: &str) -> Providers {
        let path = folder.join("cloud");
        let script = format!(
            "#!/bin/sh\necho x >> {}/asked\nread -r line\nsaid=$(echo \"$line\" | tr -d '\"')\n\
             token=$(echo \"$said\" | sed 's/.*serviceAccountToken://; s/}}//')\n\
             echo '{{\"cacheKeyType\":\"Global\",\"auth\":{{\"*.cloud.io\":{{\"username\":\"'$said'\",\"password\":\"'$token$1'\"}}}}}}'\n",
            folder.display()
        );
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let attributes = format!(
            "  tokenAttributes:\n    serviceAccountTokenAudience: reg\n    \
             requireServiceAccount: true\n    requiredServiceAccountAnnotationKeys: [role]\n    \
             cacheType: {cache_type}\n"
        );
        Providers::parse(&config("cloud", &attributes), folder).unwrap()
    }

    #[tokio::test]
    async fn a_provider_is_shown_the_pod_s_account_if_it_wants_to_see_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        let asked = || {
            let text = std::fs::read_to_string(folder.path().join("asked")).unwrap_or_default();
            text.lines().count()
        };
        let account = |uid, role: bool| One {
            uid,
            annotations: role.then(|| ("role".to_owned(), "r".to_owned())).into_iter().collect(),
            made: AtomicUsize::new(0),
        };
        let providers = echoing(folder.path(), "Token");
        let image = "a.cloud.io/web";
        assert_eq!(providers.credentials(image, &Nobody, at(0)).await, []);
        assert_eq!(providers.credentials(image, &account("x", false), at(0)).await, []);
        assert_eq!(asked(), 0, "only for pods with an account that is annotated");
        let one = account("1", true);
        let found = providers.credentials(image, &one, at(0)).await;
        assert_eq!(found[0].auth.password, "reg-1-0");
        let said = &found[0].auth.username;
        assert!(said.contains("serviceAccountAnnotations:{role:r}"), "{said}");
        assert!(matches!(&found[0].whose, Whose::ServiceAccount(named) if named.uid == "1"));
        providers.credentials(image, &one, at(60)).await;
        assert_eq!((asked(), one.made.load(Ordering::Relaxed)), (1, 1), "the same token");
        providers.credentials(image, &account("2", true), at(60)).await;
        assert_eq!(asked(), 2, "another account");
        let later = providers.credentials(image, &one, at(3000)).await;
        assert_eq!(later[0].auth.password, "reg-1-1");
        assert_eq!(asked(), 3, "it was asked with another token");
        // A token is no password where answers are good for longer than it.
        let providers = echoing(folder.path(), "ServiceAccount");
        assert_eq!(providers.credentials(image, &one, at(3000)).await, []);
    }

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
        assert_eq!(providers.credentials("other.io/web", &Nobody, at(0)).await, []);
        assert_eq!(asked(), 0);
        let found = providers.credentials("a.cloud.io/web:1", &Nobody, at(0)).await;
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].auth.username.as_str(), found[0].auth.password.as_str()),
            ("u", "secret")
        );
        assert_eq!(found[0].whose, Whose::Node, "it is everybody's on the node");
        providers.credentials("a.cloud.io/other", &Nobody, at(60)).await;
        assert_eq!(asked(), 1, "it is the same registry");
        providers.credentials("b.cloud.io/web", &Nobody, at(60)).await;
        assert_eq!(asked(), 2);
        providers.credentials("a.cloud.io/web", &Nobody, at(3601)).await;
        assert_eq!(asked(), 3, "it was good for an hour");
    }

    #[tokio::test]
    async fn one_that_fails_gives_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let providers = Providers::parse(&config("missing", ""), folder.path()).unwrap();
        assert_eq!(
            providers.credentials("a.cloud.io/web", &Nobody, Timestamp::UNIX_EPOCH).await,
            []
        );
    }

    #[test]
    fn what_is_wrong_is_told_at_the_start() {
        let check = |text: &str| Providers::parse(text, Path::new("/")).unwrap_err();
        assert!(check(&config("../sh", "")).contains("is no name of a provider"));
        let said = check(&config("a", "  tokenAttributes: {}\n"));
        assert!(said.contains("serviceAccountTokenAudience: Required value"), "{said}");
        assert!(check("kind: Pod\napiVersion: v1\nproviders: []\n").contains("no kind"));
        assert!(!check("providers: 1").is_empty());
    }
}
