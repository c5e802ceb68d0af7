//! Unpacked layers, each in a folder named for the stack it is the top of. A folder has its name
//! only when it is complete and its content has been checked against the image's configuration.
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::bounds;
use super::digest::{Digest, Hashing};
use super::unpack::{UnpackError, unpack};
use crate::files::{Others, own_folder};

#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("failed to {operation} {}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("failed to unpack a layer")]
    Unpack(#[from] UnpackError),
    #[error("the layer's content is {found}, not {wanted} as its image says")]
    Mismatch { wanted: Digest, found: Digest },
}

pub struct Layers {
    root: PathBuf,
}

/// Names of folders that are not yet layers.
const UNFINISHED: &str = "unfinished-";

impl Layers {
    pub fn open(root: &Path) -> Result<Self, LayerError> {
        own_folder(root, Others::Nobody).map_err(failed("create", root))?;
        Ok(Layers { root: root.to_owned() })
    }

    /// Clears away what an earlier process left half done. Only for one who is alone.
    pub fn clear(&self) -> Result<(), LayerError> {
        self.each(|name, path| match name.starts_with(UNFINISHED) {
            true => crate::files::remove_folder(path).map_err(failed("remove", path)),
            false => Ok(()),
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, chain: &Digest) -> PathBuf {
        self.root.join(chain.hex())
    }

    pub fn has(&self, chain: &Digest) -> bool {
        self.path(chain).is_dir()
    }

    /// Unpacks `blob`, whose plain content is `diff`, as the layer `chain` on `below` (topmost
    /// first).
    pub fn add(
        &self,
        chain: &Digest,
        diff: &Digest,
        blob: File,
        below: &[Digest],
    ) -> Result<(), LayerError> {
        if self.has(chain) {
            return Ok(());
        }
        let make = |path: &Path| self.fill(path, diff, blob, below).map(|()| (*chain, ()));
        self.make(make).map(drop)
    }

    /// A layer that is not unpacked but made here, without others below it: what it is called, and
    /// how long the archive is that it would come in.
    pub fn add_folder(
        &self,
        fill: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(Digest, u64), LayerError> {
        self.make(|path| {
            let mut archive = Hashing::new(io::sink());
            fill(path)
                .and_then(|()| crate::builtin::pack(path, &mut archive))
                .map_err(failed("fill", path))?;
            let (_, diff, size) = archive.finish();
            Ok((diff, (diff, size)))
        })
    }

    /// Lets `fill` make a folder, then gives it the name that `fill` says.
    fn make<T>(
        &self,
        fill: impl FnOnce(&Path) -> Result<(Digest, T), LayerError>,
    ) -> Result<T, LayerError> {
        let path = self.root.join(format!("{UNFINISHED}{:016x}", fastrand::u64(..)));
        fs::create_dir(&path).map_err(failed("create", &path))?;
        let made = fill(&path).and_then(|(chain, made)| {
            match fs::rename(&path, self.path(&chain)) {
                // Somebody else was faster with the same content.
                Err(_) if self.has(&chain) => crate::files::remove_folder(&path),
                renamed => renamed,
            }
            .map_err(failed("store", &path))?;
            Ok(made)
        });
        if made.is_err() {
            let _ = crate::files::remove_folder(&path);
        }
        made
    }

    fn fill(
        &self,
        path: &Path,
        diff: &Digest,
        blob: File,
        below: &[Digest],
    ) -> Result<(), LayerError> {
        let below: Vec<PathBuf> = below.iter().map(|chain| self.path(chain)).collect();
        let limit = bounds::unpacked(blob.metadata().map_err(failed("read", path))?.len());
        let mut content = Hashing::new(plain(blob).map_err(failed("read", path))?);
        unpack(&mut content, path, &below, limit)?;
        // What follows the archive's end counts in its digest.
        let rest = io::copy(&mut (&mut content).take(limit), &mut io::sink());
        if rest.map_err(failed("read", path))? == limit {
            return Err(UnpackError::Read(bounds::too_much()).into());
        }
        let (_, found, _) = content.finish();
        if found != *diff {
            return Err(LayerError::Mismatch { wanted: *diff, found });
        }
        Ok(())
    }

    /// Removes every layer that `keep` does not want.
    pub fn retain(&self, keep: impl Fn(&Digest) -> bool) -> Result<(), LayerError> {
        self.each(|name, path| {
            if format!("sha256:{name}").parse().is_ok_and(|chain| !keep(&chain)) {
                // Renamed first: a layer is whole or it is not there.
                let away = self.root.join(format!("{UNFINISHED}{:016x}", fastrand::u64(..)));
                fs::rename(path, &away).map_err(failed("remove", path))?;
                crate::files::remove_folder(&away).map_err(failed("remove", &away))?;
            }
            Ok(())
        })
    }

    fn each(
        &self,
        mut visit: impl FnMut(&str, &Path) -> Result<(), LayerError>,
    ) -> Result<(), LayerError> {
        for entry in fs::read_dir(&self.root).map_err(failed("list", &self.root))?.flatten() {
            visit(&entry.file_name().to_string_lossy(), &entry.path())?;
        }
        Ok(())
    }
}

/// The content behind gzip, zstd or nothing: what it is shows in its first bytes, whatever its
/// media type claims.
fn plain(blob: File) -> io::Result<Box<dyn Read>> {
    let mut blob = BufReader::with_capacity(256 << 10, blob);
    let start = blob.fill_buf()?;
    Ok(match start {
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(blob)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd::Decoder::with_buffer(blob)?),
        _ => Box::new(blob),
    })
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LayerError {
    let path = path.to_owned();
    move |source| LayerError::Io { operation, path, source }
}
