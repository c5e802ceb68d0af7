//! CRI's image service.
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tonic::Status;

use super::names::not_found;
use super::{Service, chain, now};
use crate::builtin;
use crate::cri::v1::{
    AuthConfig, FilesystemIdentifier, FilesystemUsage, Image as CriImage, ImageFsInfoResponse,
    ImageSpec, Int64Value, PullImageRequest, UInt64Value,
};
use crate::image::digest::Digest;
use crate::image::{Credentials, Image, ImageError, OnProgress, Progress};

impl Service {
    /// The image of that name; a built-in one is made if it is not here.
    pub(super) async fn image_named(&self, name: &str) -> Option<Arc<Image>> {
        if builtin::is_builtin(name) {
            self.make_builtin().await;
        }
        self.inner.images.find(name)
    }

    /// Makes the built-in images, unless they are here and of this executable. Without them
    /// everything else goes on.
    pub(super) async fn make_builtin(&self) {
        let (images, executable) = (&self.inner.images, &self.inner.options.executable);
        let make = || builtin::ensure(images, executable);
        if let Err(error) = self.inner.builtin.get_or_try_init(make).await {
            tracing::warn!("failed to make the built-in images: {}", chain(&error));
        }
    }

    pub(super) async fn pull(&self, request: PullImageRequest) -> Result<String, Status> {
        let name = request.image.unwrap_or_default().image;
        if builtin::is_builtin(&name) {
            let image = self.image_named(&name).await.ok_or_else(|| not_found("image", &name))?;
            return Ok(image.id.to_string());
        }
        let credentials = request.auth.and_then(credentials);
        let pulling = self.pulling(&name);
        let progress = pulling.on_progress();
        let pulled = self.inner.images.pull(&name, credentials, Some(progress)).await;
        drop(pulling);
        match pulled {
            Ok(image) => {
                tracing::info!("image {name} is pulled: {}", image.id);
                Ok(image.id.to_string())
            }
            Err(error) => {
                tracing::info!("image {name} could not be pulled: {}", chain(&error));
                Err(image_status(&error))
            }
        }
    }

    pub(super) async fn list_images_named(&self, name: &str) -> Vec<CriImage> {
        if name.is_empty() {
            self.make_builtin().await;
            return self.inner.images.list().iter().map(|image| describe(image)).collect();
        }
        self.image_named(name).await.iter().map(|image| describe(image)).collect()
    }

    pub(super) async fn image_details(&self, name: &str) -> Option<(CriImage, String)> {
        let image = self.image_named(name).await?;
        let config = self.inner.images.config(&image).unwrap_or_default();
        let info = format!("{{\"imageSpec\":{}}}", String::from_utf8_lossy(&config));
        Some((describe(&image), info))
    }

    pub(super) fn remove_named(&self, name: &str) -> Result<(), Status> {
        self.inner.images.remove(name).map_err(|error| image_status(&error))?;
        tracing::info!("image {name} is removed");
        self.collect();
        Ok(())
    }

    pub(super) fn filesystem(&self) -> ImageFsInfoResponse {
        let images = usage_below(self.root(), &["blobs", "layers"]);
        let containers = usage_below(self.root(), &["containers"]);
        ImageFsInfoResponse {
            image_filesystems: vec![self.filesystem_usage(self.root(), images)],
            container_filesystems: vec![self.filesystem_usage(self.root(), containers)],
        }
    }

    pub(super) fn filesystem_usage(
        &self,
        path: &Path,
        (bytes, files): (u64, u64),
    ) -> FilesystemUsage {
        FilesystemUsage {
            timestamp: now(),
            fs_id: Some(FilesystemIdentifier { mountpoint: path.display().to_string() }),
            used_bytes: Some(UInt64Value { value: bytes }),
            inodes_used: Some(UInt64Value { value: files }),
        }
    }
}

/// Blobs of an image that is being pulled: bytes received and of all.
pub(super) type Blobs = Mutex<HashMap<Digest, (u64, u64)>>;

/// A pull that goes on; who else pulls the same image shares its count.
struct Pulling<'a> {
    service: &'a Service,
    name: String,
    blobs: Arc<Blobs>,
}

impl Service {
    fn pulling(&self, name: &str) -> Pulling<'_> {
        let blobs = self.inner.pulls.lock().entry(name.to_owned()).or_default().clone();
        Pulling { service: self, name: name.to_owned(), blobs }
    }

    /// How far the pull of an image is.
    pub(super) fn progress_of(&self, name: &str) -> Option<(u64, u64)> {
        let blobs = self.inner.pulls.lock().get(name).cloned()?;
        let blobs = blobs.lock();
        let sum = blobs.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Some(sum).filter(|(_, size)| *size > 0)
    }
}

impl Pulling<'_> {
    fn on_progress(&self) -> OnProgress {
        let blobs = self.blobs.clone();
        Arc::new(move |progress: Progress| {
            let mut blobs = blobs.lock();
            let known = blobs.entry(progress.digest).or_default();
            *known = (known.0.max(progress.received), progress.size);
        })
    }
}

impl Drop for Pulling<'_> {
    fn drop(&mut self) {
        let mut pulls = self.service.inner.pulls.lock();
        // The map's own and ours: nobody else pulls it.
        if pulls.get(&self.name).is_some_and(|blobs| Arc::strong_count(blobs) <= 2) {
            pulls.remove(&self.name);
        }
    }
}

/// Bytes on disk and files below some folders. A file that is linked twice is counted twice only if
/// the links are in different folders.
fn usage_below(root: &Path, names: &[&str]) -> (u64, u64) {
    names.iter().map(|name| usage(&root.join(name))).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}

pub(super) fn usage(folder: &Path) -> (u64, u64) {
    let (mut bytes, mut files) = (0, 0);
    // One folder is open at a time, however deep they lie.
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            bytes += found.blocks() * 512;
            files += 1;
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    (bytes, files)
}

fn describe(image: &Image) -> CriImage {
    let user = image.defaults.user.split(':').next().unwrap_or_default();
    let uid = user.parse::<i64>().ok();
    CriImage {
        id: image.id.to_string(),
        repo_tags: image.tags.iter().cloned().collect(),
        repo_digests: image.digests.iter().cloned().collect(),
        size: image.size,
        uid: uid.map(|value| Int64Value { value }),
        username: if uid.is_some() { String::new() } else { user.to_owned() },
        spec: Some(ImageSpec {
            image: image.id.to_string(),
            annotations: image.manifest.annotations.clone().into_iter().collect(),
            ..ImageSpec::default()
        }),
        pinned: image.pinned,
    }
}

fn credentials(auth: AuthConfig) -> Option<Credentials> {
    let credentials = Credentials {
        username: auth.username,
        password: auth.password,
        auth: auth.auth,
        identity_token: auth.identity_token,
        registry_token: auth.registry_token,
    };
    (credentials.pair().is_some() || !credentials.registry_token.is_empty()).then_some(credentials)
}

fn image_status(error: &ImageError) -> Status {
    let text = chain(error);
    match error {
        ImageError::NotFound(_) => Status::not_found(text),
        ImageError::Reference(_) => Status::invalid_argument(text),
        ImageError::Registry { .. } if text.contains("not found") => Status::not_found(text),
        ImageError::Registry { .. } if text.contains("not authorized") => {
            Status::permission_denied(text)
        }
        _ => Status::unknown(text),
    }
}
