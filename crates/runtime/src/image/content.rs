//! Blobs by digest. A blob has its name only when it is whole, checked and on disk; what is being
//! received has a name of its own and is found again after an interruption.
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::bounds;
use super::digest::{Digest, Hashing};
use crate::files::{Others, own_folder};

#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    #[error("failed to {operation} {}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("content is {found}, not {wanted} as announced")]
    Mismatch { wanted: Digest, found: Digest },
    #[error("content is longer than the {limit} bytes announced, or allowed")]
    TooLong { limit: u64 },
}

pub struct Content {
    blobs: PathBuf,
    incoming: PathBuf,
}

impl Content {
    pub fn open(root: &Path) -> Result<Self, ContentError> {
        let content = Content { blobs: root.join("blobs/sha256"), incoming: root.join("incoming") };
        for folder in [&content.blobs, &content.incoming] {
            own_folder(folder, Others::Nobody).map_err(failed("create", folder))?;
        }
        Ok(content)
    }

    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.blobs.join(digest.hex())
    }

    pub fn has(&self, digest: &Digest) -> bool {
        self.path(digest).is_file()
    }

    pub fn open_blob(&self, digest: &Digest) -> Result<File, ContentError> {
        let path = self.path(digest);
        File::open(&path).map_err(failed("open", &path))
    }

    /// A document: what is longer is none.
    pub fn read(&self, digest: &Digest) -> Result<Vec<u8>, ContentError> {
        let path = self.path(digest);
        let mut bytes = Vec::new();
        let file = File::open(&path).map_err(failed("read", &path))?;
        let limit = bounds::DOCUMENT;
        file.take(limit + 1).read_to_end(&mut bytes).map_err(failed("read", &path))?;
        if bytes.len() as u64 > limit {
            return Err(ContentError::TooLong { limit });
        }
        Ok(bytes)
    }

    /// Starts, or resumes, receiving a blob.
    pub fn receive(&self, digest: Digest, size: u64) -> Result<Incoming, ContentError> {
        let open = |path: &Path| {
            let file = OpenOptions::new().read(true).append(true).create(true).open(path);
            file.map_err(failed("open", path))
        };
        let mut path = self.incoming.join(digest.hex());
        let mut file = open(&path)?;
        if file.try_lock().is_err() {
            // Another process receives the same: both go on, the first to be ready counts.
            path = self.incoming.join(format!("{}-{:016x}", digest.hex(), fastrand::u64(..)));
            file = open(&path)?;
        }
        let mut hashing = Hashing::new(io::sink());
        io::copy(&mut &file, &mut hashing).map_err(failed("read", &path))?;
        let mut incoming =
            Incoming { file, hashing, path, target: self.path(&digest), digest, size, received: 0 };
        incoming.received = incoming.file.metadata().map_err(failed("read", &incoming.path))?.len();
        Ok(incoming)
    }

    /// Stores what `reader` yields under whatever its digest turns out to be.
    pub fn store(&self, mut reader: impl Read) -> Result<(Digest, u64), ContentError> {
        let path = self.incoming.join(format!("unnamed-{:016x}", fastrand::u64(..)));
        let file = File::create_new(&path).map_err(failed("create", &path))?;
        let mut hashing = Hashing::new(file);
        let copied = io::copy(&mut reader, &mut hashing);
        let (file, digest, size) = hashing.finish();
        let stored = copied
            .and_then(|_| file.sync_all())
            .and_then(|()| fs::rename(&path, self.path(&digest)));
        stored.map_err(|source| {
            let _ = fs::remove_file(&path);
            ContentError::Io { operation: "store", path, source }
        })?;
        Ok((digest, size))
    }

    pub fn put(&self, bytes: &[u8]) -> Result<Digest, ContentError> {
        let digest = Digest::of(bytes);
        if !self.has(&digest) {
            self.store(bytes)?;
        }
        Ok(digest)
    }

    /// Removes every blob that `keep` does not want.
    pub fn retain(&self, keep: impl Fn(&Digest) -> bool) -> Result<(), ContentError> {
        let entries = fs::read_dir(&self.blobs).map_err(failed("list", &self.blobs))?;
        for entry in entries.flatten() {
            let name = format!("sha256:{}", entry.file_name().to_string_lossy());
            if !name.parse().is_ok_and(|digest| keep(&digest)) {
                let path = entry.path();
                fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(())
    }
}

/// A blob on its way in.
pub struct Incoming {
    file: File,
    hashing: Hashing<io::Sink>,
    path: PathBuf,
    target: PathBuf,
    digest: Digest,
    size: u64,
    received: u64,
}

impl Incoming {
    /// How much is here already: where a resumed download goes on.
    pub fn received(&self) -> u64 {
        self.received
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ContentError> {
        self.received += bytes.len() as u64;
        if self.received > self.size {
            self.discard();
            return Err(ContentError::TooLong { limit: self.size });
        }
        self.file
            .write_all(bytes)
            .and_then(|()| self.hashing.write_all(bytes))
            .map_err(failed("write", &self.path))
    }

    /// Forgets what was received: the server does not resume.
    pub fn restart(&mut self) -> Result<(), ContentError> {
        self.file.set_len(0).map_err(failed("truncate", &self.path))?;
        self.hashing = Hashing::new(io::sink());
        self.received = 0;
        Ok(())
    }

    /// Checks the whole and gives it its name.
    pub fn finish(mut self) -> Result<(), ContentError> {
        let hashing = std::mem::replace(&mut self.hashing, Hashing::new(io::sink()));
        let (_, found, _) = hashing.finish();
        if found != self.digest {
            self.discard();
            return Err(ContentError::Mismatch { wanted: self.digest, found });
        }
        self.file
            .sync_all()
            .and_then(|()| fs::rename(&self.path, &self.target))
            .map_err(failed("store", &self.target))
    }

    fn discard(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ContentError {
    let path = path.to_owned();
    move |source| ContentError::Io { operation, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_blob_is_resumed_and_invisible_until_whole() {
        let folder = tempfile::tempdir().unwrap();
        let content = Content::open(folder.path()).unwrap();
        let digest = Digest::of(b"hello world");
        let mut first = content.receive(digest, 11).unwrap();
        first.write(b"hello ").unwrap();
        drop(first);
        assert!(!content.has(&digest));
        let mut second = content.receive(digest, 11).unwrap();
        assert_eq!(second.received(), 6);
        second.write(b"world").unwrap();
        second.finish().unwrap();
        assert_eq!(content.read(&digest).unwrap(), b"hello world");
    }

    #[test]
    fn a_document_that_is_none_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let content = Content::open(folder.path()).unwrap();
        let (digest, _) = content.store(io::repeat(b' ').take(bounds::DOCUMENT + 1)).unwrap();
        assert!(matches!(content.read(&digest), Err(ContentError::TooLong { .. })));
        let (digest, _) = content.store(io::repeat(b' ').take(bounds::DOCUMENT)).unwrap();
        content.read(&digest).unwrap();
    }

    #[test]
    fn wrong_or_endless_content_is_refused_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let content = Content::open(folder.path()).unwrap();
        let digest = Digest::of(b"right");
        let mut wrong = content.receive(digest, 5).unwrap();
        wrong.write(b"wrong").unwrap();
        assert!(matches!(wrong.finish(), Err(ContentError::Mismatch { .. })));
        let mut long = content.receive(digest, 5).unwrap();
        assert_eq!(long.received(), 0, "nothing of the wrong content is kept");
        assert!(matches!(long.write(b"too long"), Err(ContentError::TooLong { limit: 5 })));
    }
}
