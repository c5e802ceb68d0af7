//! Images: whether to pull, when to try again, and what events say (`pkg/kubelet/images`).
use super::start::Fault;
use super::{Kubelet, Memory};
use crate::backoff::Backoff;
use crate::container::env::References;
use crate::container::sandbox;
use crate::container::security::ImageUser;
use crate::pod::{self, Role};
use crate::runtime::cri;
use base64::Engine as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use std::collections::HashMap;

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
        match (present, policy.as_str()) {
            (Some(found), "IfNotPresent" | "Never") => {
                let note = format!("Container image {image:?} already present on machine");
                self.note(pod, about, "Pulled", note);
                return Ok((found.id.clone(), ImageUser::of(&found)));
            }
            (None, "Never") => {
                let note =
                    format!("Container image {image:?} is not present with pull policy of Never");
                self.warn(pod, about, "ErrImageNeverPull", &note);
                self.warn(pod, about, "Failed", "Error: ErrImageNeverPull");
                return Err(Fault::new("ErrImageNeverPull", note));
            }
            _ => {}
        }
        self.check_backoff(pod, memory, about, &image)?;
        self.note(pod, about, "Pulling", format!("Pulling image {image:?}"));
        let begun = tokio::time::Instant::now();
        let request = cri::PullImageRequest {
            image: Some(spec.clone()),
            auth: credentials(pod, &image, references),
            sandbox_config: Some(sandbox::config(&self.config, pod, 0)),
        };
        let pulled = match self.runtime.pull_image(request).await {
            Ok(answer) => answer.image_ref,
            Err(error) => {
                let now = self.context.now();
                let mut notes = memory.notes.lock();
                let since = notes.pulls.failed.get(&image).map_or(now, |(at, _)| *at);
                notes.pulls.backoff.next(&image, since, now);
                notes.pulls.failed.insert(image.clone(), (now, format!("ErrImagePull: {error}")));
                drop(notes);
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
        let took = format!("{:.3}s", begun.elapsed().as_secs_f64());
        let note = format!(
            "Successfully pulled image {image:?} in {took} ({took} including waiting). Image size: {} bytes.",
            found.size
        );
        self.note(pod, about, "Pulled", note);
        memory.notes.lock().pulls.failed.remove(&image);
        Ok((pulled, ImageUser::of(&found)))
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

/// What the pod's pull secrets say about the image's registry.
fn credentials(pod: &Pod, image: &str, references: &dyn References) -> Option<cri::AuthConfig> {
    let registry =
        image.split('/').next().filter(|host| host.contains(['.', ':']) || *host == "localhost");
    let registry = registry.unwrap_or("docker.io");
    for name in pod::spec(pod).image_pull_secrets.iter().flatten() {
        let Some(secret) = references.secret(pod::namespace(pod), &name.name) else { continue };
        let Some(data) = secret.data.as_ref().and_then(|data| data.get(".dockerconfigjson")) else {
            continue;
        };
        let Ok(config) = serde_json::from_slice::<Value>(&data.0) else { continue };
        for (host, entry) in config["auths"].as_object().into_iter().flatten() {
            let host = host.trim_start_matches("https://").split('/').next().unwrap_or_default();
            if host != registry && !(registry == "docker.io" && host.ends_with("docker.io")) {
                continue;
            }
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let decoded =
                base64::engine::general_purpose::STANDARD.decode(text("auth")).unwrap_or_default();
            let decoded = String::from_utf8(decoded).unwrap_or_default();
            let (user, password) = decoded.split_once(':').unwrap_or_default();
            let or = |own: String, other: &str| if own.is_empty() { other.to_owned() } else { own };
            return Some(cri::AuthConfig {
                username: or(text("username"), user),
                password: or(text("password"), password),
                server_address: registry.to_owned(),
                ..cri::AuthConfig::default()
            });
        }
    }
    None
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
