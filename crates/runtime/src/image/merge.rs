//! A stack of layers as one folder, copied: for machines whose file system overlayfs does not take.
//! What overlayfs would hide or replace is left out.
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, utimensat};

use crate::shim::sys;
use crate::users;

/// Copies `layers`, the topmost first, into `target`, which is made anew.
pub fn merge(layers: &[PathBuf], target: &Path) -> io::Result<()> {
    remove(target)?;
    fs::create_dir_all(target)?;
    for layer in layers.iter().rev() {
        let mut copy = Copy { links: HashMap::new() };
        copy.folder(layer, target)?;
        looks(layer, target, &fs::symlink_metadata(layer)?)?;
    }
    Ok(())
}

struct Copy {
    /// Files of this layer that have several names: where the first was put.
    links: HashMap<u64, PathBuf>,
}

impl Copy {
    /// What is in a layer's folder. Whatever `to` is, it is a real folder: nothing is followed.
    fn folder(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            self.entry(&entry.path(), &to.join(entry.file_name()))?;
        }
        Ok(())
    }

    fn entry(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let found = fs::symlink_metadata(from)?;
        let kind = found.file_type();
        if kind.is_char_device() && found.rdev() == 0 {
            // Overlayfs's mark for what is gone.
            return remove(to);
        }
        let stays = kind.is_dir()
            && !is_opaque(from)
            && fs::symlink_metadata(to).is_ok_and(|below| below.is_dir());
        if !stays {
            remove(to)?;
        }
        if kind.is_dir() {
            if !stays {
                fs::create_dir(to)?;
            }
            self.folder(from, to)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(from)?, to)?;
        } else if let Some(first) = self.links.get(&found.ino()).filter(|_| found.nlink() > 1) {
            return fs::hard_link(first, to);
        } else if kind.is_file() {
            copy_file(from, to)?;
        } else {
            sys::mknod(&sys::c_path(to)?, found.mode(), found.rdev())?;
        }
        if !kind.is_dir() && found.nlink() > 1 {
            self.links.insert(found.ino(), to.to_owned());
        }
        looks(from, to, &found)
    }
}

fn is_opaque(folder: &Path) -> bool {
    let mut value = [0; 1];
    rustix::fs::lgetxattr(folder, users::opaque_mark(), &mut value[..]).is_ok() && value == *b"y"
}

/// The file system's own copy if it has one; else holes stay holes.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let (source, target) = (File::open(from)?, File::create_new(to)?);
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        return Ok(());
    }
    let size = source.metadata()?.len();
    target.set_len(size)?;
    let mut at = 0;
    while at < size {
        let Ok(start) = rustix::fs::seek(&source, rustix::fs::SeekFrom::Data(at)) else {
            // Nothing but a hole is left.
            break;
        };
        let end = rustix::fs::seek(&source, rustix::fs::SeekFrom::Hole(start))?;
        let (mut read, mut write) = (start, start);
        while read < end {
            let length = usize::try_from(end - read).unwrap_or(usize::MAX);
            let copied = rustix::fs::copy_file_range(
                &source,
                Some(&mut read),
                &target,
                Some(&mut write),
                length,
            )?;
            if copied == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        at = end;
    }
    Ok(())
}

/// Owner, attributes, permissions, times: in this order, for a change of owner takes bits and
/// attributes away.
fn looks(from: &Path, to: &Path, found: &fs::Metadata) -> io::Result<()> {
    lchown(to, Some(found.uid()), Some(found.gid()))?;
    attributes(from, to)?;
    if !found.is_symlink() {
        fs::set_permissions(to, found.permissions())?;
    }
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(found.atime(), found.atime_nsec()),
        last_modification: time(found.mtime(), found.mtime_nsec()),
    };
    Ok(utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn attributes(from: &Path, to: &Path) -> io::Result<()> {
    let mut names = vec![0; 64 << 10];
    let length = rustix::fs::llistxattr(from, &mut names[..]).unwrap_or(0);
    let mut value = vec![0; 64 << 10];
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        // Marks of overlayfs have done their work.
        let is_mark =
            [&b"trusted.overlay."[..], b"user.overlay."].iter().any(|mark| name.starts_with(mark));
        if !is_mark && let Ok(length) = rustix::fs::lgetxattr(from, name, &mut value[..]) {
            match rustix::fs::lsetxattr(to, name, &value[..length], XattrFlags::empty()) {
                // A file system without them: the file is better than none.
                Err(rustix::io::Errno::NOTSUP) | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The same layers through overlayfs and through us look the same.
    #[test]
    fn a_copy_looks_as_overlayfs_shows_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), text).unwrap();
        };
        write("low/kept", "low");
        write("low/gone", "low");
        write("low/changed", "low");
        write("low/opaque/below", "low");
        write("low/merged/low", "low");
        symlink("/etc", at("low/link")).unwrap();
        write("top/changed", "top");
        write("top/opaque/above", "top");
        write("top/merged/top", "top");
        write("top/link/inside", "top");
        fs::set_permissions(at("top/changed"), fs::Permissions::from_mode(0o4711)).unwrap();
        fs::hard_link(at("top/changed"), at("top/second")).unwrap();
        lchown(at("low/kept"), Some(12), Some(34)).unwrap();
        sys::mknod(&sys::c_path(at("top/gone")).unwrap(), libc::S_IFCHR, 0).unwrap();
        let mark = "trusted.overlay.opaque";
        rustix::fs::lsetxattr(at("top/opaque"), mark, b"y", XattrFlags::empty()).unwrap();
        File::create(at("top/sparse")).unwrap().set_len(1 << 30).unwrap();
        merge(&[at("top"), at("low")], &at("copy")).unwrap();

        let overlay = format!("lowerdir={}:{}", at("top").display(), at("low").display());
        let shown = sys::new_filesystem("overlay", &overlay, 0).unwrap();
        use std::os::fd::AsRawFd;
        let shown = PathBuf::from(format!("/proc/self/fd/{}", shown.as_raw_fd()));
        assert_eq!(listing(&at("copy")), listing(&shown));
        let found = |name: &str| fs::symlink_metadata(at(name)).unwrap();
        assert_eq!(found("copy/changed").ino(), found("copy/second").ino());
        assert!(found("copy/sparse").blocks() < 100, "a hole is still one");
    }

    fn listing(folder: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        let entries = fs::read_dir(folder).unwrap().flatten();
        for path in entries.map(|entry| entry.path()) {
            let found = fs::symlink_metadata(&path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let (mode, owner) = (found.mode(), (found.uid(), found.gid()));
            let text = if found.is_file() && found.len() < 10 {
                fs::read_to_string(&path).unwrap()
            } else {
                String::new()
            };
            lines.push(format!("{name} {mode:o} {owner:?} {} {text}", found.mtime_nsec()));
            if found.is_dir() {
                lines.extend(listing(&path).into_iter().map(|line| format!("{name}/{line}")));
            }
        }
        lines.sort();
        lines
    }
}
