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
mod bounds;
mod config;
mod content;
pub mod digest;
mod http;
mod layers;
pub mod manifest;
mod merge;
mod records;
mod reference;
mod registry;
mod unpack;

use std::collections::{BTreeSet, HashSet};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

pub use config::{Credentials, RegistriesConfig};
use content::{Content, ContentError};
use digest::Digest;
use layers::{LayerError, Layers};
use manifest::{ContainerDefaults, Descriptor, Document, ImageConfig, Manifest, media};
pub use merge::merge;
use records::Records;
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
    records: Records,
}

/// Blobs fetched at once, per pull; upstream's runtimes use three.
const PARALLEL: usize = 3;

/// As long as it is held nothing is collected, by any process: what is being fetched has no record
/// yet.
pub struct Fetching {
    _lock: File,
}

impl Images {
    pub fn open(root: &Path, registries: RegistriesConfig) -> Result<Self, ImageError> {
        let images = Images {
            content: Arc::new(Content::open(root)?),
            layers: Arc::new(Layers::open(&root.join("layers"))?),
            registry: Registry::new(registries),
            records: Records::open(&root.join("images"))?,
            root: root.to_owned(),
        };
        // What is half done may be somebody's who is at it.
        if let Some(_alone) = images.alone()? {
            images.layers.clear()?;
            images.records.clear();
        }
        Ok(images)
    }

    /// Where layers are: their folders are named by chain.
    pub fn layers_root(&self) -> &Path {
        self.layers.root()
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn list(&self) -> Vec<Arc<Image>> {
        self.records.list()
    }

    /// By full or short name, by `name@digest`, by identity or a beginning of it.
    pub fn find(&self, name: &str) -> Option<Arc<Image>> {
        self.records.find(name)
    }

    fn lock_file(&self) -> Result<(File, PathBuf), ImageError> {
        let path = self.root.join("images.lock");
        Ok((File::create(&path).map_err(failed("create", &path))?, path))
    }

    /// Keeps what is found or fetched from now on from being collected.
    pub async fn fetching(&self) -> Result<Fetching, ImageError> {
        let (lock, path) = self.lock_file()?;
        if lock.try_lock_shared().is_ok() {
            return Ok(Fetching { _lock: lock });
        }
        // Somebody collects; that is soon over.
        let locking = tokio::task::spawn_blocking(move || lock.lock_shared().map(|()| lock));
        let lock = locking.await.map_err(|_| ImageError::Interrupted)?;
        Ok(Fetching { _lock: lock.map_err(failed("lock", &path))? })
    }

    /// Holds off everybody else, if nobody is fetching.
    fn alone(&self) -> Result<Option<File>, ImageError> {
        let (lock, path) = self.lock_file()?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed("lock", &path)(error)),
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
        let _fetching = self.fetching().await?;
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
        if manifest.config.size > bounds::DOCUMENT {
            return Err(ContentError::TooLong { limit: bounds::DOCUMENT }.into());
        }
        if let Some(progress) = &progress {
            // How much there is in all is known from the beginning.
            for blob in std::iter::once(&manifest.config).chain(&manifest.layers) {
                progress(Progress { digest: blob.digest, received: 0, size: blob.size });
            }
        }
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
        let sizes = manifest.layers.iter().map(|layer| layer.size);
        let size = sizes.fold(manifest.config.size, u64::saturating_add);
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
        self.records.write(image)
    }

    /// Makes a folder that `fill` fills a layer without others below it: its digest, and how long
    /// the archive is that it would come in.
    pub(crate) async fn add_folder(
        &self,
        fill: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
    ) -> Result<(Digest, u64), ImageError> {
        let layers = self.layers.clone();
        let added = tokio::task::spawn_blocking(move || layers.add_folder(fill));
        Ok(added.await.map_err(|_| ImageError::Interrupted)??)
    }

    pub(crate) fn put(&self, media_type: &str, bytes: &[u8]) -> Result<Descriptor, ImageError> {
        Ok(Descriptor::new(media_type, self.content.put(bytes)?, bytes.len() as u64))
    }

    /// Makes an image of what is here, one that stays.
    pub(crate) async fn adopt(
        &self,
        manifest: &Manifest,
        name: String,
    ) -> Result<Digest, ImageError> {
        let bytes = serde_json::to_vec(manifest).map_err(|source| ImageError::Document {
            what: "the manifest",
            image: name.clone(),
            source,
        })?;
        let descriptor = self.put(media::OCI_MANIFEST, &bytes)?;
        let blobs = BTreeSet::from([descriptor.digest]);
        let registered =
            self.register(descriptor, manifest.clone(), blobs, Some(name), None).await?;
        let pinned = Image { pinned: true, ..Image::clone(&registered) };
        Ok(self.records.write(pinned)?.id)
    }

    /// Removes an image with all its names. One that is not here is gone already.
    pub fn remove(&self, name: &str) -> Result<(), ImageError> {
        self.records.remove(name)
    }

    /// Removes blobs and layers that no image and none of `in_use` needs; that is asked once nobody
    /// can begin to use another. While something is being fetched nothing is collected: the next
    /// call does it.
    pub fn collect(&self, in_use: impl FnOnce() -> HashSet<Digest>) -> Result<(), ImageError> {
        let Some(_alone) = self.alone()? else { return Ok(()) };
        let (records, in_use) = (self.list(), in_use());
        let blobs: HashSet<&Digest> = records.iter().flat_map(|image| &image.blobs).collect();
        let layers: HashSet<&Digest> = records.iter().flat_map(|image| &image.layers).collect();
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
