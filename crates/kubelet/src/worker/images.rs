//! Images: whether to pull, when to try again, and what events say (`pkg/kubelet/images`).
use super::start::Fault;
use super::{Kubelet, Memory};
use crate::backoff::Backoff;
use crate::container::env::References;
use crate::container::sandbox;
use crate::container::security::ImageUser;
use crate::found;
use crate::pod::{self, Role};
use crate::pulls;
use crate::pulls::attributes::{Account, Accounts, Token};
use crate::pulls::credentials::{self, Credential};
use crate::runtime::{RuntimeError, cri};
use futures_util::future::{BoxFuture, FutureExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How often a pull is looked at, and how many looks there are to an event.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS_PER_EVENT: u64 = 15;
/// How long a token is good that a credential provider is shown: what the API gives those who do not say.
const TOKEN_SECONDS: i64 = 3600;

#[derive(Default)]
pub struct Pulls {
    backoff: Backoff,
    /// When an image could not be pulled, and why.
    failed: HashMap<String, (Timestamp, String)>,
}

/// An image that a container runs or sees as a volume, and when to pull it.
pub struct Wanted<'a> {
    pub image: &'a str,
    pub policy: Option<&'a str>,
}

/// The policy that counts: the API has filled it in, a manifest may have not.
fn policy(wanted: &Wanted<'_>) -> String {
    let image = wanted.image;
    let tag = image.rsplit('/').next().and_then(|name| name.split_once(':')).map(|(_, tag)| tag);
    let latest = !image.contains('@') && matches!(tag, None | Some("latest"));
    let default = if latest { "Always" } else { "IfNotPresent" };
    wanted.policy.filter(|text| !text.is_empty()).unwrap_or(default).to_owned()
}

impl Kubelet {
    /// The image's reference, once it is there.
    pub(super) async fn ensure_image(
        &self,
        pod: &Pod,
        memory: &Memory,
        wanted: Wanted<'_>,
        about: Option<(Role, &str)>,
        references: &dyn References,
    ) -> Result<(String, ImageUser), Fault> {
        let image = wanted.image.to_owned();
        let policy = policy(&wanted);
        let spec = cri::ImageSpec { image: image.clone(), ..cri::ImageSpec::default() };
        let present = self.image(&spec).await.map_err(|error| {
            let message = format!("Failed to inspect image {image:?}: {error}");
            self.warn(pod, about, "InspectFailed", &message);
            Fault::new("ImageInspectError", message)
        })?;
        let secrets = pull_secrets(pod, references);
        let node = credentials::of_node(&self.config.root);
        let secrets_found: Vec<&Secret> =
            secrets.iter().filter_map(|(_, one)| one.as_deref()).collect();
        let mut shown =
            credentials::fitting(&pulls::repository(&image), &secrets_found, node.as_ref());
        let now = self.context.now();
        if let Some(providers) = &self.config.credential_providers {
            let accounts = OfPod { kubelet: self, pod };
            shown.extend(providers.credentials(&image, &accounts, now).await);
        }
        let usable = present.as_ref().filter(|found| {
            policy != "Always" && !self.pull_records.must_pull(&image, &found.id, &shown, now)
        });
        if let Some(found) = usable {
            let note = format!(
                "Container image {image:?} already present on machine and can be accessed by the pod"
            );
            self.note(pod, about, "Pulled", note);
            return Ok((found.id.clone(), ImageUser::of(found)));
        }
        // Whether it is here is not for those to know who may not use it.
        if policy == "Never" {
            let note =
                format!("Container image {image:?} is not present with pull policy of Never");
            self.warn(pod, about, "ErrImageNeverPull", &note);
            self.warn(pod, about, "Failed", "Error: ErrImageNeverPull");
            return Err(Fault::new("ErrImageNeverPull", note));
        }
        self.check_backoff(pod, memory, about, &image)?;
        self.note(pod, about, "Pulling", format!("Pulling image {image:?}"));
        let begun = tokio::time::Instant::now();
        let not_wanted = || Fault::new("ContainerCreating", "");
        let turn = match &self.pull_turns {
            Some(turns) => {
                let turn = self.unless_called_off(pod, memory, turns.acquire()).await;
                turn.ok_or_else(not_wanted)?.ok()
            }
            None => None,
        };
        let waited = begun.elapsed();
        self.pull_records.begin(&image);
        let pulling = self.pull(pod, &spec, &shown);
        let pulling = self.watch_pull(pod, memory, about, &image, pulling);
        let pulled = self.unless_called_off(pod, memory, pulling).await;
        drop(turn);
        let Some(pulled) = pulled else {
            self.pull_records.end(&image, None, now);
            return Err(not_wanted());
        };
        let (reference, credential) = match pulled {
            Ok(pulled) => pulled,
            Err(error) => {
                self.pull_records.end(&image, None, now);
                let now = self.context.now();
                let mut notes = memory.notes.lock();
                let since = notes.pulls.failed.get(&image).map_or(now, |(at, _)| *at);
                notes.pulls.backoff.next(&image, since, now);
                notes.pulls.failed.insert(image.clone(), (now, format!("ErrImagePull: {error}")));
                drop(notes);
                let missing = secrets.iter().filter(|(_, one)| one.is_none());
                let missing: Vec<&str> = missing.map(|(name, _)| name.as_str()).collect();
                if !missing.is_empty() {
                    let note = format!(
                        "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                        missing.join(", ")
                    );
                    self.warn(pod, None, "FailedToRetrieveImagePullSecret", &note);
                }
                self.warn(
                    pod,
                    about,
                    "Failed",
                    &format!("Failed to pull image {image:?}: {error}"),
                );
                self.warn(pod, about, "Failed", "Error: ErrImagePull");
                return Err(Fault::new("ErrImagePull", error.to_string()));
            }
        };
        let found = self.image(&spec).await.ok().flatten().unwrap_or_default();
        let id = if found.id.is_empty() { &reference } else { &found.id };
        self.pull_records.end(&image, Some((id, credential.as_ref())), self.context.now());
        let all = begun.elapsed();
        let note = format!(
            "Successfully pulled image {image:?} in {:.3}s ({:.3}s including waiting). Image size: {} bytes.",
            (all - waited).as_secs_f64(),
            all.as_secs_f64(),
            found.size
        );
        self.note(pod, about, "Pulled", note);
        memory.notes.lock().pulls.failed.remove(&image);
        Ok((reference, ImageUser::of(&found)))
    }

    /// Shows the registry one credential after another, or nothing if there is none.
    async fn pull(
        &self,
        pod: &Pod,
        spec: &cri::ImageSpec,
        shown: &[Credential],
    ) -> Result<(String, Option<Credential>), RuntimeError> {
        let users = self.users_of(pod).ok().flatten();
        let ask = async |credential: Option<&Credential>| {
            let request = cri::PullImageRequest {
                image: Some(spec.clone()),
                auth: credential.map(|one| one.auth.clone()),
                sandbox_config: Some(sandbox::config(&self.config, pod, 0, users)),
            };
            let answer = self.runtime.pull_image(request).await?;
            Ok((answer.image_ref, credential.cloned()))
        };
        let Some((last, others)) = shown.split_last() else { return ask(None).await };
        for credential in others {
            if let Ok(pulled) = ask(Some(credential)).await {
                return Ok(pulled);
            }
        }
        ask(Some(last)).await
    }

    /// Tells how far a pull is, while it lasts: in the container's status, and now and then in an
    /// event.
    async fn watch_pull<T>(
        &self,
        pod: &Pod,
        memory: &Memory,
        about: Option<(Role, &str)>,
        image: &str,
        pulling: impl Future<Output = T>,
    ) -> T {
        let mut pulling = std::pin::pin!(pulling);
        let mut told = String::new();
        for look in 1u64.. {
            tokio::select! {
                pulled = &mut pulling => return pulled,
                _ = tokio::time::sleep(LOOK) => {}
            }
            let Some((received, size)) = self.runtime.pull_progress(image) else { continue };
            let text = format!("Pulling image {image:?}: {received} of {size} bytes");
            if text == told {
                continue;
            }
            if look.is_multiple_of(LOOKS_PER_EVENT) {
                self.note(pod, about, "Pulling", &*text);
            }
            if let Some((_, name)) = about {
                let why = ("ContainerCreating".to_owned(), text.clone());
                memory.notes.lock().waiting.insert(name.to_owned(), why);
                if let Ok(found) = found::find(&*self.runtime, pod::uid(pod)).await {
                    let _ = self.tell(pod, &found, memory).await;
                }
            }
            told = text;
        }
        pulling.await
    }

    async fn image(
        &self,
        spec: &cri::ImageSpec,
    ) -> Result<Option<cri::Image>, crate::runtime::RuntimeError> {
        let request = cri::ImageStatusRequest { image: Some(spec.clone()), verbose: false };
        Ok(self.runtime.image_status(request).await?.image)
    }

    fn check_backoff(
        &self,
        pod: &Pod,
        memory: &Memory,
        about: Option<(Role, &str)>,
        image: &str,
    ) -> Result<(), Fault> {
        let notes = memory.notes.lock();
        let Some((failed, why)) = notes.pulls.failed.get(image) else { return Ok(()) };
        if notes.pulls.backoff.waits(image, *failed, self.context.now()).is_none() {
            return Ok(());
        }
        let note = format!("Back-off pulling image {image:?}");
        let message = format!("{note}: {why}");
        drop(notes);
        self.note(pod, about, "BackOff", note);
        self.warn(pod, about, "Failed", "Error: ImagePullBackOff");
        Err(Fault::new("ImagePullBackOff", message))
    }
}

/// A pod's service account, for programs that know registries' credentials.
struct OfPod<'a> {
    kubelet: &'a Kubelet,
    pod: &'a Pod,
}

impl Accounts for OfPod<'_> {
    fn name(&self) -> (&str, &str) {
        // The API does not know a static pod: nobody has a token of it.
        let name = pod::spec(self.pod).service_account_name.as_deref();
        let name = name.filter(|_| !pod::is_static(self.pod)).unwrap_or_default();
        (pod::namespace(self.pod), name)
    }

    fn pod_uid(&self) -> &str {
        pod::uid(self.pod)
    }

    fn account(&self) -> BoxFuture<'_, Result<Account, String>> {
        async {
            let (namespace, name) = self.name();
            let found = self.kubelet.client.get::<ServiceAccount>(namespace, name).await;
            let found = found.map_err(|status| status.message)?;
            let account: ServiceAccount = found.decode().map_err(|error| error.to_string())?;
            Ok(Account {
                uid: account.metadata.uid.unwrap_or_default(),
                annotations: account.metadata.annotations.unwrap_or_default(),
            })
        }
        .boxed()
    }

    fn token<'a>(&'a self, audience: &'a str) -> BoxFuture<'a, Result<Token, String>> {
        async {
            let status = self.kubelet.token_status(self.pod, audience, TOKEN_SECONDS).await;
            let status = status.map_err(|error| error.to_string())?;
            let text = status["token"].as_str().unwrap_or_default().to_owned();
            let until = status["expirationTimestamp"].as_str().and_then(|text| text.parse().ok());
            Ok((text, until.unwrap_or_else(|| self.kubelet.context.now())))
        }
        .boxed()
    }
}

/// The pod's pull secrets by name, those that are there.
fn pull_secrets(pod: &Pod, references: &dyn References) -> Vec<(String, Option<Arc<Secret>>)> {
    let names = pod::spec(pod).image_pull_secrets.iter().flatten();
    let found = |name: &str| references.secret(pod::namespace(pod), name);
    names.map(|one| (one.name.clone(), found(&one.name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_is_always_pulled() {
        for (image, expected) in [
            ("web", "Always"),
            ("web:latest", "Always"),
            ("localhost:5000/web", "Always"),
            ("web:1", "IfNotPresent"),
            ("web@sha256:0", "IfNotPresent"),
        ] {
            assert_eq!(policy(&Wanted { image, policy: None }), expected, "{image}");
        }
    }
}
