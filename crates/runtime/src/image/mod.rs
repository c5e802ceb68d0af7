//! Images: fetched, kept by content, unpacked for overlayfs.
//!
//! ```text
//!  reference ──► registry ──► content (blobs by digest) ──► layers (folders by chain) ──► record
//!                archive ───►
//! ```
//! An image exists when its record does. The record is written last, after every blob has been
//! checked and every layer unpacked, so a half-fetched image is never seen; what it left behind is
//! found again by the next pull, or collected. A layer or blob is shared by all that name it.
//!
//! **It may not know** containers: who collects says which layers are in use.
pub mod archive;
mod config;
mod content;
pub mod digest;
mod http;
mod layers;
pub mod manifest;
mod reference;
mod registry;
mod unpack;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

pub use config::{Credentials, RegistriesConfig};
use content::{Content, ContentError};
use digest::Digest;
use layers::{LayerError, Layers};
use manifest::{ContainerDefaults, Descriptor, Document, ImageConfig, Manifest};
pub use reference::{InvalidReference, Reference};
use registry::{Registry, RegistryError};

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Reference(#[from] InvalidReference),
    #[error("failed to pull {reference}")]
    Registry { reference: String, source: RegistryError },
    #[error(transparent)]
    Content(#[from] ContentError),
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error("{what} of {image} is not valid")]
    Document { what: &'static str, image: String, source: serde_json::Error },
    #[error("{0} has no image for this machine")]
    Platform(String),
    #[error("{image} lists {layers} layers, but its configuration {diffs}")]
    LayerCount { image: String, layers: usize, diffs: usize },
    #[error("no image {0}")]
    NotFound(String),
    #[error("failed to {operation} {}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("{0} is neither an OCI layout nor a docker archive")]
    NotAnArchive(PathBuf),
    #[error("interrupted")]
    Interrupted,
}

/// What is known of an image that is here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Image {
    /// The digest of its configuration: what it is, whoever it came from.
    pub id: Digest,
    pub manifest: Descriptor,
    /// Full names that lead here.
    pub tags: BTreeSet<String>,
    /// `name@digest`, for each name it was pulled by.
    pub digests: BTreeSet<String>,
    /// The stack of layers, lowest first.
    pub layers: Vec<Digest>,
    /// Everything in the content store that belongs to it.
    pub blobs: BTreeSet<Digest>,
    pub size: u64,
    pub defaults: ContainerDefaults,
    pub pinned: bool,
}

/// Bytes of one blob so far, told to whoever asked for the pull.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    pub digest: Digest,
    pub received: u64,
    pub size: u64,
}

pub type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

pub struct Images {
    root: PathBuf,
    content: Arc<Content>,
    layers: Arc<Layers>,
    registry: Registry,
    records: RwLock<BTreeMap<Digest, Arc<Image>>>,
    /// Pulls and imports hold it shared, collecting alone: what is being fetched has no record yet.
    fetching: tokio::sync::RwLock<()>,
}

/// Blobs fetched at once, per pull; upstream's runtimes use three.
const PARALLEL: usize = 3;

impl Images {
    pub fn open(root: &Path, registries: RegistriesConfig) -> Result<Self, ImageError> {
        let folder = root.join("images");
        fs::create_dir_all(&folder).map_err(failed("create", &folder))?;
        let mut records = BTreeMap::new();
        for entry in fs::read_dir(&folder).map_err(failed("list", &folder))?.flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                let _ = fs::remove_file(&path);
                continue;
            }
            let bytes = fs::read(&path).map_err(failed("read", &path))?;
            match serde_json::from_slice::<Image>(&bytes) {
                Ok(image) => drop(records.insert(image.id, Arc::new(image))),
                Err(error) => tracing::warn!("{} is not a record: {error}", path.display()),
            }
        }
        Ok(Images {
            content: Arc::new(Content::open(root)?),
            layers: Arc::new(Layers::open(&root.join("layers"))?),
            registry: Registry::new(registries),
            records: RwLock::new(records),
            fetching: tokio::sync::RwLock::new(()),
            root: folder,
        })
    }

    /// Where layers are: their folders are named by chain.
    pub fn layers_root(&self) -> &Path {
        self.layers.root()
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn list(&self) -> Vec<Arc<Image>> {
        self.records.read().values().cloned().collect()
    }

    /// By full or short name, by `name@digest`, by identity or a beginning of it.
    pub fn find(&self, name: &str) -> Option<Arc<Image>> {
        let records = self.records.read();
        if let Ok(id) = name.parse::<Digest>() {
            return records.get(&id).cloned();
        }
        if let Ok(reference) = name.parse::<Reference>() {
            let full = reference.to_string();
            let at = reference.digest.as_ref().map(|digest| reference.at(digest));
            let found = records.values().find(|image| {
                image.tags.contains(&full)
                    || at.as_ref().is_some_and(|at| image.digests.contains(at))
            });
            if let Some(found) = found {
                return Some(found.clone());
            }
        }
        let hex = name.strip_prefix("sha256:").unwrap_or(name);
        if hex.len() < 3 || !hex.chars().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        let mut matches = records.values().filter(|image| image.id.hex().starts_with(hex));
        match (matches.next(), matches.next()) {
            (Some(image), None) => Some(image.clone()),
            _ => None,
        }
    }

    /// Fetches an image, or what is missing of it.
    pub async fn pull(
        &self,
        name: &str,
        credentials: Option<Credentials>,
        progress: Option<OnProgress>,
    ) -> Result<Arc<Image>, ImageError> {
        let reference: Reference = name.parse()?;
        let _fetching = self.fetching.read().await;
        let broken = |source| ImageError::Registry { reference: reference.to_string(), source };
        let session = self.registry.session(&reference, credentials);
        let (top, bytes) = session.manifest(&reference.target()).await.map_err(broken)?;
        let mut blobs = BTreeSet::from([self.content.put(&bytes)?]);
        let (descriptor, manifest) = match document(&bytes, name)? {
            Document::Manifest(manifest) => (top.clone(), manifest),
            Document::Index(index) => {
                let chosen =
                    index.choose().ok_or_else(|| ImageError::Platform(name.to_owned()))?.clone();
                let (_, bytes) =
                    session.manifest(&chosen.digest.to_string()).await.map_err(broken)?;
                blobs.insert(self.content.put(&bytes)?);
                match document(&bytes, name)? {
                    Document::Manifest(manifest) => (chosen, manifest),
                    Document::Index(_) => return Err(ImageError::Platform(name.to_owned())),
                }
            }
        };
        let slots = Semaphore::new(PARALLEL);
        let fetches = std::iter::once(&manifest.config).chain(&manifest.layers).map(|blob| {
            let (session, slots, content) = (&session, &slots, &self.content);
            let progress = progress.clone();
            async move {
                let _slot = slots.acquire().await.map_err(|_| ImageError::Interrupted)?;
                fetch(session, content, blob, progress).await.map_err(|error| match error {
                    RegistryError::Content(error) => ImageError::Content(error),
                    error => broken(error),
                })
            }
        });
        futures_util::future::try_join_all(fetches).await?;
        let at = reference.at(&top.digest);
        let tag = reference.digest.is_none().then(|| reference.to_string());
        self.register(descriptor, manifest, blobs, tag, Some(at)).await
    }

    /// Unpacks what is in the content store and makes it an image.
    async fn register(
        &self,
        descriptor: Descriptor,
        manifest: Manifest,
        mut blobs: BTreeSet<Digest>,
        tag: Option<String>,
        at: Option<String>,
    ) -> Result<Arc<Image>, ImageError> {
        let id = manifest.config.digest;
        let config: ImageConfig =
            serde_json::from_slice(&self.content.read(&id)?).map_err(|source| {
                ImageError::Document { what: "the configuration", image: id.to_string(), source }
            })?;
        let diffs = config.rootfs.diff_ids;
        if diffs.len() != manifest.layers.len() {
            return Err(ImageError::LayerCount {
                image: id.to_string(),
                layers: manifest.layers.len(),
                diffs: diffs.len(),
            });
        }
        let size =
            manifest.layers.iter().map(|layer| layer.size).sum::<u64>() + manifest.config.size;
        blobs.extend(manifest.layers.iter().map(|layer| layer.digest));
        blobs.insert(id);
        let (content, layers) = (self.content.clone(), self.layers.clone());
        let unpacked = tokio::task::spawn_blocking(move || {
            let mut chain: Vec<Digest> = Vec::new();
            for (layer, diff) in manifest.layers.iter().zip(&diffs) {
                let name = diff.chained(chain.last());
                if !layers.has(&name) {
                    let below: Vec<Digest> = chain.iter().rev().copied().collect();
                    layers.add(&name, diff, content.open_blob(&layer.digest)?, &below)?;
                }
                chain.push(name);
            }
            Ok::<_, ImageError>(chain)
        });
        let image = Image {
            id,
            manifest: descriptor,
            tags: tag.into_iter().collect(),
            digests: at.into_iter().collect(),
            layers: unpacked.await.map_err(|_| ImageError::Interrupted)??,
            blobs,
            size,
            defaults: config.config.unwrap_or_default(),
            pinned: false,
        };
        self.record(image)
    }

    /// Writes the record; names that led elsewhere lead here from now on.
    fn record(&self, mut image: Image) -> Result<Arc<Image>, ImageError> {
        let mut records = self.records.write();
        if let Some(known) = records.get(&image.id) {
            image.tags.extend(known.tags.iter().cloned());
            image.digests.extend(known.digests.iter().cloned());
            image.blobs.extend(known.blobs.iter().copied());
            image.pinned |= known.pinned;
        }
        let image = Arc::new(image);
        self.save(&image)?;
        records.insert(image.id, image.clone());
        let moved: Vec<Arc<Image>> = records
            .values()
            .filter(|other| other.id != image.id && !other.tags.is_disjoint(&image.tags))
            .cloned()
            .collect();
        for other in moved {
            let mut other = Image::clone(&other);
            other.tags.retain(|tag| !image.tags.contains(tag));
            self.save(&other)?;
            records.insert(other.id, Arc::new(other));
        }
        Ok(image)
    }

    pub fn pin(&self, id: &Digest) -> Result<(), ImageError> {
        let Some(image) = self.records.read().get(id).cloned() else {
            return Err(ImageError::NotFound(id.to_string()));
        };
        self.record(Image { pinned: true, ..Image::clone(&image) }).map(drop)
    }

    fn save(&self, image: &Image) -> Result<(), ImageError> {
        let path = self.root.join(format!("{}.json", image.id.hex()));
        let bytes = serde_json::to_vec(image).map_err(io::Error::from);
        bytes
            .and_then(|bytes| crate::files::write_durably(&path, &bytes))
            .map_err(failed("write", &path))
    }

    /// Removes an image with all its names. One that is not here is gone already.
    pub fn remove(&self, name: &str) -> Result<(), ImageError> {
        let Some(image) = self.find(name) else { return Ok(()) };
        let mut records = self.records.write();
        let path = self.root.join(format!("{}.json", image.id.hex()));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &path)(error));
            }
            _ => {}
        }
        records.remove(&image.id);
        Ok(())
    }

    /// Removes blobs and layers that no image and none of `in_use` needs. While something is being
    /// fetched nothing is collected: the next call does it.
    pub fn collect(&self, in_use: &HashSet<Digest>) -> Result<(), ImageError> {
        let Ok(_alone) = self.fetching.try_write() else { return Ok(()) };
        let records = self.records.read();
        let blobs: HashSet<&Digest> = records.values().flat_map(|image| &image.blobs).collect();
        let layers: HashSet<&Digest> = records.values().flat_map(|image| &image.layers).collect();
        self.content.retain(|digest| blobs.contains(digest))?;
        self.layers.retain(|chain| layers.contains(chain) || in_use.contains(chain))?;
        Ok(())
    }

    /// The configuration document, as it came.
    pub fn config(&self, image: &Image) -> Result<Vec<u8>, ImageError> {
        Ok(self.content.read(&image.id)?)
    }
}

async fn fetch(
    session: &registry::Session<'_>,
    content: &Content,
    blob: &Descriptor,
    progress: Option<OnProgress>,
) -> Result<(), RegistryError> {
    let tell = |received| {
        if let Some(progress) = &progress {
            progress(Progress { digest: blob.digest, received, size: blob.size });
        }
    };
    if !content.has(&blob.digest) {
        let _one = session.claim(blob.digest).await;
        // Another pull may have brought it while we waited.
        if !content.has(&blob.digest) {
            session.blob(blob, content, &tell).await?;
        }
    }
    tell(blob.size);
    Ok(())
}

fn document(bytes: &[u8], image: &str) -> Result<Document, ImageError> {
    serde_json::from_slice(bytes).map_err(|source| ImageError::Document {
        what: "the manifest",
        image: image.to_owned(),
        source,
    })
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ImageError {
    let path = path.to_owned();
    move |source| ImageError::Io { operation, path, source }
}
