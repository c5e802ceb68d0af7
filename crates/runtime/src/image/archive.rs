//! Images in files: OCI layouts (a folder or a tar of one) and docker archives, in and out.
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::bounds;
use super::content::Content;
use super::digest::Digest;
use super::manifest::{Descriptor, Document, ImageConfig, Index, Manifest, media};
use super::{Image, ImageError, Images, Reference, document, failed};

/// Annotations that name an image in a layout, the more explicit first.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerEntry {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// What an archive holds, once its blobs are in the content store.
struct Found {
    descriptor: Descriptor,
    manifest: Manifest,
    blobs: BTreeSet<Digest>,
    tags: Vec<String>,
}

impl Images {
    /// Brings in every image of a layout or archive; `name` is for those that have none.
    pub async fn import(
        &self,
        path: &Path,
        name: Option<&str>,
    ) -> Result<Vec<Arc<Image>>, ImageError> {
        let _fetching = self.fetching().await?;
        let content = self.content.clone();
        let path = path.to_owned();
        let read = tokio::task::spawn_blocking(move || read(&content, &path));
        let found = read.await.map_err(|_| ImageError::Interrupted)??;
        let mut images = Vec::new();
        for Found { descriptor, manifest, blobs, mut tags } in found {
            if tags.is_empty() {
                tags.extend(name.map(str::to_owned));
            }
            let mut names: Vec<Option<String>> = Vec::new();
            for tag in tags {
                names.push(Some(tag.parse::<Reference>()?.to_string()));
            }
            if names.is_empty() {
                names.push(None);
            }
            for name in names {
                let registered = self
                    .register(descriptor.clone(), manifest.clone(), blobs.clone(), name, None)
                    .await?;
                images.push(registered);
            }
        }
        Ok(images)
    }

    /// Writes an image as a tar that is both an OCI layout and a docker archive.
    pub fn export(&self, name: &str, output: impl Write) -> Result<(), ImageError> {
        let image = self.find(name).ok_or_else(|| ImageError::NotFound(name.to_owned()))?;
        let blob = |digest: &Digest| format!("blobs/sha256/{}", digest.hex());
        let manifest = self.content.read(&image.manifest.digest)?;
        let Document::Manifest(manifest) = document(&manifest, name)? else {
            return Err(ImageError::Platform(name.to_owned()));
        };
        let tags: Vec<String> = image.tags.iter().cloned().collect();
        let mut described = Vec::new();
        for tag in tags.iter().map(Some).chain(tags.is_empty().then_some(None)) {
            let mut descriptor = image.manifest.clone();
            if let Some(tag) = tag {
                descriptor.annotations.insert(NAMES[0].to_owned(), tag.clone());
            }
            described.push(descriptor);
        }
        let index = Index {
            schema_version: 2,
            media_type: media::OCI_INDEX.to_owned(),
            manifests: described,
        };
        let docker = [DockerEntry {
            config: blob(&image.id),
            repo_tags: Some(tags),
            layers: manifest.layers.iter().map(|layer| blob(&layer.digest)).collect(),
        }];
        let path = Path::new("archive");
        let written = (|| {
            let mut archive = tar::Builder::new(output);
            append(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
            append(&mut archive, "index.json", &serde_json::to_vec(&index)?)?;
            append(&mut archive, "manifest.json", &serde_json::to_vec(&docker)?)?;
            let layers = image.layers.iter().zip(&manifest.layers);
            let layers = layers.map(|(chain, layer)| (&layer.digest, Some(chain)));
            let own = [(&image.manifest.digest, None), (&image.id, None)];
            for (digest, chain) in own.into_iter().chain(layers) {
                let mut file = self.blob_file(digest, chain)?;
                archive.append_file(blob(digest), &mut file)?;
            }
            archive.into_inner()?.flush()
        })();
        written.map_err(failed("write", path))
    }

    /// A blob as a file. That of a built-in layer is not kept: it is packed again, into a file
    /// without a name.
    fn blob_file(&self, digest: &Digest, chain: Option<&Digest>) -> io::Result<File> {
        use rustix::fs::{Mode, OFlags, open};
        let path = self.content.path(digest);
        match (File::open(&path), chain) {
            (Err(error), Some(chain)) if error.kind() == io::ErrorKind::NotFound => {
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
                let mut file = File::from(open(&self.root, flags, Mode::RUSR | Mode::WUSR)?);
                crate::builtin::pack(&self.layers.path(chain), &mut file)?;
                io::Seek::rewind(&mut file)?;
                Ok(file)
            }
            (file, _) => file,
        }
    }
}

fn append(archive: &mut tar::Builder<impl Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    archive.append_data(&mut header, name, bytes)
}

/// Reads a layout's folder, or a tar of one, or a docker archive.
fn read(content: &Content, path: &Path) -> Result<Vec<Found>, ImageError> {
    let mut files: BTreeMap<PathBuf, Digest> = BTreeMap::new();
    if path.is_dir() {
        store_folder(content, path, Path::new(""), &mut files)?;
    } else {
        let file = File::open(path).map_err(failed("open", path))?;
        store_archive(content, file, &mut files).map_err(|error| match error {
            ImageError::Io { operation, source, .. } => {
                ImageError::Io { operation, path: path.to_owned(), source }
            }
            other => other,
        })?;
    }
    if let Some(index) = files.get(Path::new("index.json")) {
        return from_layout(content, &content.read(index)?, path);
    }
    if let Some(entries) = files.get(Path::new("manifest.json")) {
        return from_docker(content, &content.read(entries)?, &files, path);
    }
    Err(ImageError::NotAnArchive(path.to_owned()))
}

fn store_folder(
    content: &Content,
    root: &Path,
    below: &Path,
    files: &mut BTreeMap<PathBuf, Digest>,
) -> Result<(), ImageError> {
    let folder = root.join(below);
    for entry in fs::read_dir(&folder).map_err(failed("list", &folder))?.flatten() {
        let path = below.join(entry.file_name());
        let kind = entry.file_type().map_err(failed("read", &folder))?;
        if kind.is_dir() {
            store_folder(content, root, &path, files)?;
        } else if kind.is_file() {
            let file = File::open(root.join(&path)).map_err(failed("open", &root.join(&path)))?;
            files.insert(path, content.store(file)?.0);
        }
    }
    Ok(())
}

/// Most files in an archive of images.
const FILES: usize = 10_000;

/// Every file of the archive goes straight into the content store: nothing of it is ever a path on
/// this machine.
fn store_archive(
    content: &Content,
    file: impl Read,
    files: &mut BTreeMap<PathBuf, Digest>,
) -> Result<(), ImageError> {
    let here = Path::new("archive");
    let mut reader = io::BufReader::with_capacity(256 << 10, file);
    let start = io::BufRead::fill_buf(&mut reader).map_err(failed("read", here))?;
    let plain: Box<dyn Read> = if start.starts_with(&[0x1f, 0x8b]) {
        Box::new(flate2::bufread::MultiGzDecoder::new(reader))
    } else {
        Box::new(reader)
    };
    let mut links = Vec::new();
    let (plain, between) = bounds::Archive::new(plain, u64::MAX);
    let mut archive = tar::Archive::new(plain);
    let mut entries = archive.entries().map_err(failed("read", here))?;
    loop {
        let entry = {
            let _reading = between.entries();
            entries.next()
        };
        let Some(entry) = entry else { break };
        let mut entry = entry.map_err(failed("read", here))?;
        if files.len() + links.len() > FILES {
            return Err(failed("read", here)(io::Error::other("it has too many files")));
        }
        let path = entry.path().map_err(failed("read", here))?.into_owned();
        let path: PathBuf =
            path.components().filter(|c| matches!(c, Component::Normal(_))).collect();
        let kind = entry.header().entry_type();
        if kind.is_file() {
            files.insert(path, content.store(&mut entry)?.0);
        } else if let (true, Ok(Some(link))) =
            (kind.is_symlink() || kind.is_hard_link(), entry.link_name())
        {
            // Old docker archives link equal layers to each other.
            let from = if kind.is_symlink() { path.parent() } else { None };
            let target = from.unwrap_or(Path::new("")).join(link);
            links.push((path, lexical(&target)));
        }
        // What is left of it is not about the next.
        io::copy(&mut entry, &mut io::sink()).map_err(failed("read", here))?;
    }
    for (path, target) in links {
        if let Some(digest) = files.get(&target).copied() {
            files.insert(path, digest);
        }
    }
    Ok(())
}

fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => clean.push(part),
            Component::ParentDir => drop(clean.pop()),
            _ => {}
        }
    }
    clean
}

fn from_layout(content: &Content, index: &[u8], path: &Path) -> Result<Vec<Found>, ImageError> {
    let name = path.display().to_string();
    let index: Index = serde_json::from_slice(index).map_err(|source| ImageError::Document {
        what: "the index",
        image: name.clone(),
        source,
    })?;
    let mut found: Vec<Found> = Vec::new();
    for top in index.manifests {
        let tags = NAMES.iter().find_map(|key| top.annotations.get(*key)).cloned();
        let mut blobs = BTreeSet::from([top.digest]);
        let (descriptor, manifest) = match document(&content.read(&top.digest)?, &name)? {
            Document::Manifest(manifest) => (top, manifest),
            Document::Index(inner) => {
                let chosen = inner.choose().ok_or_else(|| ImageError::Platform(name.clone()))?;
                blobs.insert(chosen.digest);
                match document(&content.read(&chosen.digest)?, &name)? {
                    Document::Manifest(manifest) => (chosen.clone(), manifest),
                    Document::Index(_) => return Err(ImageError::Platform(name)),
                }
            }
        };
        let tags = tags.filter(|tag| tag.parse::<Reference>().is_ok()).into_iter().collect();
        found.push(Found { descriptor, manifest, blobs, tags });
    }
    Ok(found)
}

fn from_docker(
    content: &Content,
    entries: &[u8],
    files: &BTreeMap<PathBuf, Digest>,
    path: &Path,
) -> Result<Vec<Found>, ImageError> {
    let name = path.display().to_string();
    let broken = |what| move |source| ImageError::Document { what, image: name.clone(), source };
    let entries: Vec<DockerEntry> =
        serde_json::from_slice(entries).map_err(broken.clone()("the manifest"))?;
    let mut found = Vec::new();
    for entry in entries {
        let blob = |name: &str, media_type: &str| {
            let digest = files.get(&lexical(Path::new(name))).copied();
            let digest = digest.ok_or_else(|| ImageError::NotFound(name.to_owned()))?;
            let path = content.path(&digest);
            let size = fs::metadata(&path).map_err(failed("read", &path))?.len();
            Ok::<_, ImageError>(Descriptor::new(media_type, digest, size))
        };
        let config = blob(&entry.config, media::OCI_CONFIG)?;
        let read: Result<ImageConfig, _> = serde_json::from_slice(&content.read(&config.digest)?);
        read.map_err(broken.clone()("the configuration"))?;
        let layers = entry
            .layers
            .iter()
            .map(|layer| blob(layer, media::OCI_LAYER))
            .collect::<Result<_, _>>()?;
        let media_type = media::OCI_MANIFEST.to_owned();
        let manifest =
            Manifest { schema_version: 2, media_type: media_type.clone(), config, layers };
        // The archive has no manifest of its own kind: this one is what an export gives back.
        let bytes = serde_json::to_vec(&manifest).map_err(broken.clone()("the manifest"))?;
        let digest = content.put(&bytes)?;
        let descriptor = Descriptor::new(&media_type, digest, bytes.len() as u64);
        let tags = entry.repo_tags.unwrap_or_default();
        found.push(Found { descriptor, manifest, blobs: BTreeSet::from([digest]), tags });
    }
    Ok(found)
}
