//! The layer of the built-in images: the running executable and what the loader gave it.
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::PROGRAM;
use crate::shim::sys;

/// A file of this machine and its place in the layer.
pub struct Linked {
    host: PathBuf,
    place: PathBuf,
}

/// The executable, and the libraries this process runs with at the paths the loader knows them by;
/// a statically linked one has none.
pub fn files(executable: &Path) -> Vec<Linked> {
    let program = Linked { host: executable.to_owned(), place: PROGRAM.into() };
    let libraries = sys::loaded_objects().into_iter().filter_map(|host| {
        let place = host.strip_prefix("/").ok()?.to_owned();
        host.is_file().then_some(Linked { host, place })
    });
    [program].into_iter().chain(libraries).collect()
}

/// Tells the loader where the libraries are: not every machine has them where it looks first.
pub fn library_path(files: &[Linked]) -> Option<String> {
    let folders: BTreeSet<String> = files
        .iter()
        .filter_map(|file| file.place.parent())
        .filter(|folder| !folder.as_os_str().is_empty())
        .map(|folder| format!("/{}", folder.display()))
        .collect();
    let folders: Vec<String> = folders.into_iter().collect();
    (!folders.is_empty()).then(|| format!("LD_LIBRARY_PATH={}", folders.join(":")))
}

/// What an executable is called that has not changed.
pub fn identity(executable: &Path) -> io::Result<String> {
    let found = fs::metadata(executable)?;
    let (seconds, nanoseconds) = (found.mtime(), found.mtime_nsec());
    Ok(format!("{}:{}:{}:{seconds}.{nanoseconds}", found.dev(), found.ino(), found.size()))
}

/// Puts the files into an empty folder without doubling them on disk, if that can be.
pub fn fill(folder: &Path, files: &[Linked]) -> io::Result<()> {
    for file in files {
        let target = folder.join(&file.place);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        // A clone is better than a link: it stays what it is if somebody writes to the original.
        // The loader's paths may be links themselves, so what they lead to is taken.
        let real = fs::canonicalize(&file.host)?;
        let cloned = File::open(&real).and_then(|from| {
            let to = File::create_new(&target)?;
            rustix::fs::ioctl_ficlone(&to, &from)?;
            to.set_permissions(from.metadata()?.permissions())
        });
        if cloned.is_err() {
            let _ = fs::remove_file(&target);
            if fs::hard_link(&real, &target).is_err() {
                fs::copy(&real, &target)?;
            }
        }
    }
    Ok(())
}

/// Writes a folder of files and folders as an archive, always in the same order.
pub fn pack(folder: &Path, output: impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(output);
    archive.mode(tar::HeaderMode::Deterministic);
    // Holes are a matter of the disk that a file is on, and containerd does not read them.
    archive.sparse(false);
    append(&mut archive, folder, Path::new(""))?;
    archive.finish()
}

fn append(archive: &mut tar::Builder<impl Write>, root: &Path, below: &Path) -> io::Result<()> {
    let mut names: Vec<_> = Vec::new();
    for entry in fs::read_dir(root.join(below))? {
        names.push(below.join(entry?.file_name()));
    }
    names.sort();
    for name in names {
        let path = root.join(&name);
        if path.is_dir() {
            archive.append_dir(&name, &path)?;
            append(archive, root, &name)?;
        } else {
            archive.append_path_with_name(&path, &name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_shares_the_bytes_of_what_runs_and_packs_alike_twice() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "bytes").unwrap();
        let layer = folder.path().join("layer");
        fs::create_dir(&layer).unwrap();
        let files = files(&program);
        fill(&layer, &files).unwrap();
        assert_eq!(fs::read_to_string(layer.join(PROGRAM)).unwrap(), "bytes");
        for file in &files[1..] {
            assert!(layer.join(&file.place).is_file(), "{}", file.place.display());
        }
        let packed = || {
            let mut bytes = Vec::new();
            pack(&layer, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(packed(), packed());
        let before = identity(&program).unwrap();
        fs::write(&program, "other bytes").unwrap();
        assert_ne!(identity(&program).unwrap(), before);
    }
}
