//! Which images there are: a file for each, read once and again when somebody changes one.
//!
//! Several processes may work on the same folder (a daemon, and `skiff image` beside it). Files are
//! whole or not there; whoever changes one holds the folder's lock; and the kernel tells everybody
//! else of a change before the one who made it goes on, so what was done is seen by whoever asks
//! afterwards, in any process.
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::inotify;

use super::digest::Digest;
use super::{Image, ImageError, Reference, failed};

pub struct Records {
    folder: PathBuf,
    known: Mutex<Known>,
}

struct Known {
    images: BTreeMap<Digest, Arc<Image>>,
    /// Tells of changes; without it everything is read every time.
    changes: Option<OwnedFd>,
}

impl Records {
    pub fn open(folder: &Path) -> Result<Self, ImageError> {
        fs::create_dir_all(folder).map_err(failed("create", folder))?;
        // Watched before it is read, so that nothing falls in between.
        let changes = watch(folder)
            .inspect_err(|error| tracing::warn!("failed to watch {}: {error}", folder.display()))
            .ok();
        let known = Known { images: read(folder)?, changes };
        Ok(Records { folder: folder.to_owned(), known: Mutex::new(known) })
    }

    /// Clears away what was half written. Only for one who is alone.
    pub fn clear(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension != "json") {
                let _ = fs::remove_file(path);
            }
        }
    }

    pub fn list(&self) -> Vec<Arc<Image>> {
        self.current(|images| images.values().cloned().collect())
    }

    /// By full or short name, by `name@digest`, by identity or a beginning of it.
    pub fn find(&self, name: &str) -> Option<Arc<Image>> {
        self.current(|images| find(images, name))
    }

    fn current<T>(&self, ask: impl FnOnce(&BTreeMap<Digest, Arc<Image>>) -> T) -> T {
        let mut known = self.known.lock();
        if known.changes.as_ref().is_none_or(has_changed) {
            match read(&self.folder) {
                Ok(images) => known.images = images,
                Err(error) => tracing::warn!("failed to read what images there are: {error}"),
            }
        }
        ask(&known.images)
    }

    /// Writes a record; names that led elsewhere lead here from now on.
    pub fn write(&self, mut image: Image) -> Result<Arc<Image>, ImageError> {
        let _changing = self.lock()?;
        let others: Vec<Arc<Image>> = self.list();
        for other in others {
            if other.id == image.id {
                image.tags.extend(other.tags.iter().cloned());
                image.digests.extend(other.digests.iter().cloned());
                image.blobs.extend(other.blobs.iter().copied());
                image.pinned |= other.pinned;
            }
        }
        self.save(&image)?;
        for other in self.list() {
            if other.id != image.id && !other.tags.is_disjoint(&image.tags) {
                let mut other = Image::clone(&other);
                other.tags.retain(|tag| !image.tags.contains(tag));
                self.save(&other)?;
            }
        }
        Ok(Arc::new(image))
    }

    /// Removes an image with all its names. One that is not here is gone already.
    pub fn remove(&self, name: &str) -> Result<(), ImageError> {
        let _changing = self.lock()?;
        let Some(image) = self.find(name) else { return Ok(()) };
        let path = self.path(&image.id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    fn lock(&self) -> Result<File, ImageError> {
        let path = self.folder.join("lock");
        let file = File::create(&path).map_err(failed("create", &path))?;
        file.lock().map_err(failed("lock", &path))?;
        Ok(file)
    }

    fn path(&self, id: &Digest) -> PathBuf {
        self.folder.join(format!("{}.json", id.hex()))
    }

    fn save(&self, image: &Image) -> Result<(), ImageError> {
        let path = self.path(&image.id);
        let bytes = serde_json::to_vec(image).map_err(io::Error::from);
        bytes
            .and_then(|bytes| crate::files::write_durably(&path, &bytes))
            .map_err(failed("write", &path))
    }
}

fn find(images: &BTreeMap<Digest, Arc<Image>>, name: &str) -> Option<Arc<Image>> {
    if let Ok(id) = name.parse::<Digest>() {
        return images.get(&id).cloned();
    }
    if let Ok(reference) = name.parse::<Reference>() {
        let full = reference.to_string();
        let at = reference.digest.as_ref().map(|digest| reference.at(digest));
        let found = images.values().find(|image| {
            image.tags.contains(&full) || at.as_ref().is_some_and(|at| image.digests.contains(at))
        });
        if let Some(found) = found {
            return Some(found.clone());
        }
    }
    let hex = name.strip_prefix("sha256:").unwrap_or(name);
    if hex.len() < 3 || !hex.chars().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let mut matches = images.values().filter(|image| image.id.hex().starts_with(hex));
    match (matches.next(), matches.next()) {
        (Some(image), None) => Some(image.clone()),
        _ => None,
    }
}

fn read(folder: &Path) -> Result<BTreeMap<Digest, Arc<Image>>, ImageError> {
    let mut images = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed("list", folder))?.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let bytes = match fs::read(&path) {
            // Removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            bytes => bytes.map_err(failed("read", &path))?,
        };
        match serde_json::from_slice::<Image>(&bytes) {
            Ok(image) => drop(images.insert(image.id, Arc::new(image))),
            Err(error) => tracing::warn!("{} is not a record: {error}", path.display()),
        }
    }
    Ok(images)
}

fn watch(folder: &Path) -> io::Result<OwnedFd> {
    let changes = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let wanted = inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::DELETE;
    inotify::add_watch(&changes, folder, wanted)?;
    Ok(changes)
}

/// Whether a record was written or removed since this was last asked.
fn has_changed(changes: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(changes, &mut buffer);
    let mut changed = false;
    while reader.next().is_ok() {
        changed = true;
    }
    changed
}
