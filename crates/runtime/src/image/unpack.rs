//! Unpacks one layer into a folder that overlayfs can use.
//!
//! Archives come from strangers. Nothing is ever resolved by the host's rules: every parent is
//! walked component by component through the new layer and those below it, links are followed
//! inside the layer's own root, and the last component is always replaced, never followed. The
//! folder is nobody else's while we write, so that walk cannot be raced.
//!
//! Whiteouts become overlayfs' own marks. A folder that the archive needs but does not list gets
//! its mode, owner and attributes from the layers below: in overlayfs the upper folder's count.
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, lsetxattr,
    mknodat, utimensat,
};
use tar::{Entry, EntryType};

use super::bounds;
use crate::users;

#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("failed to read the archive")]
    Read(#[source] io::Error),
    #[error("{} leaves the root", .0.display())]
    Escape(PathBuf),
    #[error("failed to {operation} {}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("the layer has more than {} entries", bounds::ENTRIES)]
    ManyEntries,
    #[error("something in the layer lies deeper than {} folders", bounds::DEPTH)]
    Deep,
    #[error("a name in the layer is longer than {} bytes", bounds::PATH)]
    LongName,
    #[error("{} has no valid {field}", path.display())]
    Field { field: &'static str, path: PathBuf },
}

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Links followed on one path before it counts as a loop; the kernel's own number.
const LINK_LIMIT: usize = 40;
/// Runs of zeroes at least this long become holes.
const HOLE: usize = 64 << 10;

/// Unpacks `archive` into `root`; `below` are the layers under it, topmost first. What it unpacks to
/// is at most `limit` bytes. Memory is bounded, whatever the archive says.
pub fn unpack(
    archive: impl Read,
    root: &Path,
    below: &[PathBuf],
    limit: u64,
) -> Result<(), UnpackError> {
    let (archive, between) = bounds::Archive::new(archive, limit);
    let mut archive = tar::Archive::new(archive);
    archive.set_ignore_zeros(true);
    let everywhere: Rc<[bool]> = vec![true; below.len()].into();
    let mut layer = Layer {
        root,
        below,
        known: BTreeMap::from([(OsString::new(), everywhere)]),
        folder_times: BTreeMap::new(),
        left: limit,
    };
    let mut entries = archive.entries().map_err(UnpackError::Read)?;
    let mut count = 0;
    loop {
        let entry = {
            let _reading = between.entries();
            entries.next()
        };
        let Some(entry) = entry else { break };
        count += 1;
        if count > bounds::ENTRIES {
            return Err(UnpackError::ManyEntries);
        }
        let mut entry = entry.map_err(UnpackError::Read)?;
        layer.entry(&mut entry)?;
        // What is left of it is not about the next.
        layer.skip(&mut entry)?;
    }
    layer.set_folder_times()
}

struct Layer<'a> {
    root: &'a Path,
    below: &'a [PathBuf],
    /// Folders of this layer that are real, by their path from the root, and in which of the layers
    /// below they are too. By bytes, for paths take long to compare. To be forgotten at any time.
    known: BTreeMap<OsString, Rc<[bool]>>,
    folder_times: BTreeMap<OsString, i64>,
    /// What may still be written.
    left: u64,
}

/// Folders that are remembered, of either kind.
const REMEMBERED: usize = 100_000;

impl Layer<'_> {
    fn entry(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<(), UnpackError> {
        let name = entry.path().map_err(UnpackError::Read)?.into_owned();
        let link = entry.link_name_bytes().map_or(0, |link| link.len());
        if name.as_os_str().len().max(link) > bounds::PATH {
            return Err(UnpackError::LongName);
        }
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        let Some((parent, last)) = split(&name)? else {
            // The root itself: its mode and owner count, its kind is given.
            self.attributes(entry, Path::new(""), true)?;
            return Ok(());
        };
        let parent = self.folder(&parent)?;
        let path = parent.join(&last);
        let target = self.root.join(&path);
        if last.as_bytes() == OPAQUE {
            return set_xattr(&self.root.join(&parent), users::opaque_mark(), b"y");
        }
        if let Some(hidden) = last.as_bytes().strip_prefix(WHITEOUT) {
            if hidden.is_empty() || hidden == b"." || hidden == b".." || hidden.contains(&b'/') {
                return Err(UnpackError::Escape(name));
            }
            let target = self.root.join(parent.join(OsStr::from_bytes(hidden)));
            // Some tools hide what the same layer also brings; the content wins, as with others.
            if fs::symlink_metadata(&target).is_ok() {
                return Ok(());
            }
            return make_node(&target, FileType::CharacterDevice, 0);
        }
        if !kind.is_dir() {
            self.clear(&path)?;
        }
        match kind {
            EntryType::Directory => self.make_folder(&path)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                write_file(entry, &target, &mut self.left)?;
            }
            EntryType::Symlink => {
                let link = entry.link_name().map_err(UnpackError::Read)?;
                let link = link.ok_or_else(|| field("link target", &name))?;
                symlink(&*link, &target).map_err(failed("link", &target))?;
            }
            EntryType::Link => {
                let link = entry.link_name().map_err(UnpackError::Read)?;
                let link = link.ok_or_else(|| field("link target", &name))?.into_owned();
                self.hard_link(&link, &target)?;
                return Ok(());
            }
            EntryType::Char | EntryType::Block => {
                let major = entry.header().device_major().ok().flatten();
                let minor = entry.header().device_minor().ok().flatten();
                let (Some(major), Some(minor)) = (major, minor) else {
                    return Err(field("device number", &name));
                };
                let kind = match kind {
                    EntryType::Char => FileType::CharacterDevice,
                    _ => FileType::BlockDevice,
                };
                make_node(&target, kind, rustix::fs::makedev(major, minor))?;
            }
            EntryType::Fifo => make_node(&target, FileType::Fifo, 0)?,
            // What is no file system object (volume labels, multi-volume marks) is passed over.
            _ => return Ok(()),
        }
        self.attributes(entry, &path, kind.is_dir())
    }

    /// Owner, mode, extended attributes and time, in the order in which they survive each other.
    fn attributes(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        path: &Path,
        is_folder: bool,
    ) -> Result<(), UnpackError> {
        let target = self.root.join(path);
        let header = entry.header();
        let number = |value: io::Result<u64>, name| {
            value.ok().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| field(name, path))
        };
        let uid = number(header.uid(), "owner")?;
        let gid = number(header.gid(), "group")?;
        let mode = header.mode().map_err(|_| field("mode", path))? & 0o7777;
        let time = header.mtime().map_err(|_| field("time", path))?.cast_signed();
        let is_link = header.entry_type().is_symlink();
        set_owner(&target, uid, gid)?;
        if !is_link {
            fs::set_permissions(&target, fs::Permissions::from_mode(mode))
                .map_err(failed("set the mode of", &target))?;
        }
        if let Some(extensions) = entry.pax_extensions().map_err(UnpackError::Read)? {
            for extension in extensions {
                let extension = extension.map_err(UnpackError::Read)?;
                let Ok(key) = extension.key() else { continue };
                if let Some(name) = key.strip_prefix("SCHILY.xattr.")
                    && is_kept_attribute(name)
                {
                    set_xattr(&target, name, extension.value_bytes())?;
                }
            }
        }
        if is_folder { self.remember_time(path, time) } else { set_time(&target, time) }
    }

    /// Reads what nobody wants of an entry, which may be sparse and yield more than there is.
    fn skip(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<(), UnpackError> {
        let mut rest = entry.take(self.left.saturating_add(1));
        let skipped = io::copy(&mut rest, &mut io::sink()).map_err(UnpackError::Read)?;
        self.left =
            self.left.checked_sub(skipped).ok_or_else(|| UnpackError::Read(bounds::too_much()))?;
        Ok(())
    }

    fn remember_time(&mut self, folder: &Path, time: i64) -> Result<(), UnpackError> {
        self.folder_times.insert(folder.into(), time);
        // Set too early, the time of a folder is moved by what is still to come. So be it.
        if self.folder_times.len() > REMEMBERED { self.set_folder_times() } else { Ok(()) }
    }

    /// Last, for every file made in a folder moves its time.
    fn set_folder_times(&mut self) -> Result<(), UnpackError> {
        for (folder, time) in std::mem::take(&mut self.folder_times).iter().rev() {
            set_time(&self.root.join(folder), *time)?;
        }
        Ok(())
    }

    /// The real folder `path` means, made if need be.
    fn folder(&mut self, path: &Path) -> Result<PathBuf, UnpackError> {
        if self.known.contains_key(path.as_os_str()) {
            return Ok(path.to_owned());
        }
        let mut real = PathBuf::new();
        // What is still to be walked, last component first.
        let mut rest: Vec<OsString> = Vec::new();
        push_components(&mut rest, path);
        let (mut links, mut depth) = (0, 0);
        while let Some(name) = rest.pop() {
            if name == ".." {
                real.pop();
                depth = usize::saturating_sub(depth, 1);
                continue;
            }
            if depth >= bounds::DEPTH {
                return Err(UnpackError::Deep);
            }
            let candidate = real.join(&name);
            let link = match self.known.contains_key(candidate.as_os_str()) {
                true => None,
                false => self.lookup(&candidate).filter(|(_, found)| found.is_symlink()),
            };
            let Some((holder, _)) = link else {
                self.make_folder(&candidate)?;
                real = candidate;
                depth += 1;
                continue;
            };
            links += 1;
            if links > LINK_LIMIT {
                return Err(UnpackError::Escape(path.to_owned()));
            }
            let link = fs::read_link(&holder).map_err(failed("read link", &holder))?;
            if link.has_root() {
                real = PathBuf::new();
                depth = 0;
            }
            push_components(&mut rest, &link);
        }
        Ok(real)
    }

    /// What `path` (whose parent is a real folder of this layer) is, here or below, and where.
    fn lookup(&self, path: &Path) -> Option<(PathBuf, fs::Metadata)> {
        let own = self.root.join(path);
        if let Ok(found) = fs::symlink_metadata(&own) {
            return Some((own, found));
        }
        let present = self.present(path.parent().unwrap_or(Path::new("")));
        self.lookup_below(&present, path)
    }

    fn lookup_below(&self, present: &[bool], path: &Path) -> Option<(PathBuf, fs::Metadata)> {
        let layers = self.below.iter().zip(present).filter(|(_, present)| **present);
        layers.map(|(layer, _)| layer.join(path)).find_map(|holder| {
            let found = fs::symlink_metadata(&holder).ok()?;
            Some((holder, found))
        })
    }

    /// In which layers below a folder is a real one, with all its parents.
    fn present(&self, folder: &Path) -> Rc<[bool]> {
        match self.known.get(folder.as_os_str()) {
            Some(present) => present.clone(),
            None => self.below.iter().map(|layer| is_folder_inside(layer, folder)).collect(),
        }
    }

    /// Makes `path` a folder of this layer, with the looks it has below.
    fn make_folder(&mut self, path: &Path) -> Result<(), UnpackError> {
        if self.known.contains_key(path.as_os_str()) {
            return Ok(());
        }
        let target = self.root.join(path);
        let around = self.present(path.parent().unwrap_or(Path::new("")));
        match fs::symlink_metadata(&target) {
            Ok(found) if found.is_dir() => {}
            found => {
                if found.is_ok() {
                    fs::remove_file(&target).map_err(failed("replace", &target))?;
                }
                fs::create_dir(&target).map_err(failed("create", &target))?;
                fs::set_permissions(&target, fs::Permissions::from_mode(0o755))
                    .map_err(failed("set the mode of", &target))?;
                if let Some((source, found)) = self.lookup_below(&around, path)
                    && found.is_dir()
                {
                    copy_looks(&source, &found, &target)?;
                    self.remember_time(path, found.mtime())?;
                }
            }
        }
        let is_folder =
            |layer: &Path| fs::symlink_metadata(layer.join(path)).is_ok_and(|found| found.is_dir());
        let layers = self.below.iter().zip(around.iter());
        let present: Rc<[bool]> = layers.map(|(layer, has)| *has && is_folder(layer)).collect();
        if self.known.len() > REMEMBERED {
            self.known.retain(|folder, _| folder.is_empty());
        }
        self.known.insert(path.into(), if present == around { around } else { present });
        Ok(())
    }

    /// Makes room for something that is not a folder.
    fn clear(&mut self, path: &Path) -> Result<(), UnpackError> {
        let target = self.root.join(path);
        match fs::symlink_metadata(&target) {
            Err(_) => Ok(()),
            Ok(found) if found.is_dir() => {
                forget(&mut self.known, path);
                forget(&mut self.folder_times, path);
                crate::files::remove_folder(&target).map_err(failed("replace", &target))
            }
            Ok(_) => fs::remove_file(&target).map_err(failed("replace", &target)),
        }
    }

    fn hard_link(&mut self, link: &Path, target: &Path) -> Result<(), UnpackError> {
        let (parent, last) = split(link)?.ok_or_else(|| UnpackError::Escape(link.to_owned()))?;
        let path = self.folder(&parent)?.join(last);
        let source = self.root.join(&path);
        if fs::symlink_metadata(&source).is_err() {
            // A link to a file of a lower layer: it has to be in this one first.
            let Some((holder, found)) = self.lookup(&path).filter(|(_, found)| found.is_file())
            else {
                return Err(field("link target", link));
            };
            let left = self.left.checked_sub(found.blocks().saturating_mul(512));
            self.left = left.ok_or_else(|| UnpackError::Read(bounds::too_much()))?;
            fs::copy(&holder, &source).map_err(failed("copy", &source))?;
            copy_looks(&holder, &found, &source)?;
            set_time(&source, found.mtime())?;
        }
        fs::hard_link(&source, target).map_err(failed("link", target))
    }
}

/// Puts a path's components, the last one first, on the stack of those to be walked.
fn push_components(rest: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().rev().filter_map(|component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    });
    rest.extend(parts);
}

/// The entry's parent and last component; none for the root itself.
fn split(name: &Path) -> Result<Option<(PathBuf, OsString)>, UnpackError> {
    let mut clean = PathBuf::new();
    for component in name.components() {
        match component {
            Component::Normal(part) => clean.push(part),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(UnpackError::Escape(name.to_owned()));
            }
        }
    }
    Ok(clean
        .file_name()
        .map(|last| (clean.parent().unwrap_or(Path::new("")).to_owned(), last.to_owned())))
}

/// Whether a path below a layer is a real folder, with all its parents.
fn is_folder_inside(layer: &Path, path: &Path) -> bool {
    let mut walked = layer.to_owned();
    path.components().all(|component| {
        walked.push(component);
        fs::symlink_metadata(&walked).is_ok_and(|found| found.is_dir())
    })
}

/// Forgets a folder and all in it: by their bytes these are next to each other.
fn forget<T>(folders: &mut BTreeMap<OsString, T>, path: &Path) {
    let (mut first, mut end) = (path.as_os_str().to_owned(), path.as_os_str().to_owned());
    folders.remove(&first);
    first.push("/");
    // What follows the slash.
    end.push("0");
    let inside: Vec<OsString> =
        folders.range(first..end).map(|(folder, _)| folder.clone()).collect();
    for folder in inside {
        folders.remove(&folder);
    }
}

fn write_file(
    entry: &mut Entry<'_, impl Read>,
    target: &Path,
    left: &mut u64,
) -> Result<(), UnpackError> {
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(target)
        .map_err(failed("create", target))?;
    let mut buffer = vec![0; HOLE];
    let mut length = 0;
    let mut ends_in_hole = false;
    loop {
        let mut filled = 0;
        while filled < buffer.len() {
            match entry.read(&mut buffer[filled..]).map_err(UnpackError::Read)? {
                0 => break,
                read => filled += read,
            }
        }
        if filled == 0 {
            break;
        }
        length += filled as u64;
        *left =
            left.checked_sub(filled as u64).ok_or_else(|| UnpackError::Read(bounds::too_much()))?;
        ends_in_hole = filled == HOLE && buffer.iter().all(|byte| *byte == 0);
        let written = if ends_in_hole {
            file.seek(SeekFrom::Current(filled as i64)).map(drop)
        } else {
            file.write_all(&buffer[..filled])
        };
        written.map_err(failed("write", target))?;
    }
    if ends_in_hole {
        file.set_len(length).map_err(failed("write", target))?;
    }
    Ok(())
}

/// Attributes an image may set: a file's capabilities, its users' own, access lists. Those of
/// overlayfs itself would let an archive forge what is below it.
fn is_kept_attribute(name: &str) -> bool {
    (name.starts_with("user.") && !name.starts_with("user.overlay."))
        || name == "security.capability"
        || name.starts_with("system.posix_acl_")
}

fn copy_looks(source: &Path, found: &fs::Metadata, target: &Path) -> Result<(), UnpackError> {
    set_owner(target, found.uid(), found.gid())?;
    fs::set_permissions(target, fs::Permissions::from_mode(found.mode() & 0o7777))
        .map_err(failed("set the mode of", target))?;
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(source, &mut names[..]).unwrap_or(0);
    for name in names[..length].split(|byte| *byte == 0) {
        let Ok(name) = std::str::from_utf8(name) else { continue };
        if !is_kept_attribute(name) {
            continue;
        }
        let mut value = vec![0; 64 << 10];
        if let Ok(length) = rustix::fs::lgetxattr(source, name, &mut value[..]) {
            set_xattr(target, name, &value[..length])?;
        }
    }
    Ok(())
}

fn set_owner(target: &Path, uid: u32, gid: u32) -> Result<(), UnpackError> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    match chownat(CWD, target, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
        // Somebody whom this namespace does not have: the file is root's.
        Err(rustix::io::Errno::INVAL) if !users::is_initial() => Ok(()),
        owned => owned.map_err(|error| failed("set the owner of", target)(error.into())),
    }
}

fn set_time(target: &Path, seconds: i64) -> Result<(), UnpackError> {
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|error| failed("set the time of", target)(error.into()))
}

fn set_xattr(target: &Path, name: &str, value: &[u8]) -> Result<(), UnpackError> {
    match lsetxattr(target, name, value, XattrFlags::empty()) {
        // A file system without such attributes loses nothing that it could have honoured.
        Err(rustix::io::Errno::NOTSUP) if name.starts_with("user.") => Ok(()),
        result => result.map_err(|error| failed("set an attribute of", target)(error.into())),
    }
}

fn make_node(target: &Path, kind: FileType, device: u64) -> Result<(), UnpackError> {
    mknodat(CWD, target, kind, Mode::from_raw_mode(0o600), device)
        .map_err(|error| failed("create", target)(error.into()))
}

fn field(field: &'static str, path: &Path) -> UnpackError {
    UnpackError::Field { field, path: path.to_owned() }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> UnpackError {
    let path = path.to_owned();
    move |source| UnpackError::Io { operation, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tar::{Builder, Header};

    const LIMIT: u64 = 2 << 30;

    /// One entry a line: `kind path [content, target or attribute]`.
    fn archive(lines: &str) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut words = line.splitn(3, ' ');
            let (kind, path) = (words.next().unwrap(), words.next().unwrap());
            let rest = words.next().unwrap_or("");
            let mut header = Header::new_gnu();
            header.set_mode(0o711);
            header.set_uid(7);
            header.set_gid(8);
            header.set_mtime(1000);
            header.set_size(0);
            // Written raw: the library would not let us make hostile names.
            let name = &mut header.as_old_mut().name;
            name[..path.len()].copy_from_slice(path.as_bytes());
            match kind {
                "dir" => header.set_entry_type(EntryType::Directory),
                "file" => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_size(rest.len() as u64);
                }
                "link" | "hard" => {
                    header.set_entry_type(if kind == "link" {
                        EntryType::Symlink
                    } else {
                        EntryType::Link
                    });
                    header.as_old_mut().linkname[..rest.len()].copy_from_slice(rest.as_bytes());
                }
                "char" => {
                    header.set_entry_type(EntryType::Char);
                    header.set_device_major(1).unwrap();
                    header.set_device_minor(3).unwrap();
                }
                other => panic!("no kind {other}"),
            }
            header.set_cksum();
            let data = if kind == "file" { rest.as_bytes() } else { &[] };
            builder.append(&header, data).unwrap();
        }
        builder.into_inner().unwrap()
    }

    /// Unpacks the layers on each other and lists the topmost.
    fn check(layers: &[&str], expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let mut below: Vec<PathBuf> = Vec::new();
        for (number, lines) in layers.iter().enumerate() {
            let root = folder.path().join(number.to_string());
            fs::create_dir(&root).unwrap();
            unpack(&archive(lines)[..], &root, &below, LIMIT).unwrap();
            below.insert(0, root);
        }
        let mut listed = Vec::new();
        list(&below[0], Path::new(""), &mut listed);
        let expected: Vec<&str> =
            expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(listed, expected);
    }

    fn list(root: &Path, path: &Path, lines: &mut Vec<String>) {
        let mut names: Vec<_> = fs::read_dir(root.join(path)).unwrap().flatten().collect();
        names.sort_by_key(fs::DirEntry::file_name);
        for entry in names {
            let path = path.join(entry.file_name());
            let found = fs::symlink_metadata(root.join(&path)).unwrap();
            let look = format!("{:o} {}:{}", found.mode() & 0o7777, found.uid(), found.gid());
            let shown = path.display();
            if found.is_dir() {
                let mut value = [0; 8];
                let opaque = rustix::fs::lgetxattr(
                    root.join(&path),
                    "trusted.overlay.opaque",
                    &mut value[..],
                )
                .is_ok();
                lines.push(format!("{shown}/ {look}{}", if opaque { " opaque" } else { "" }));
                list(root, &path, lines);
            } else if found.is_symlink() {
                let link = fs::read_link(root.join(&path)).unwrap();
                lines.push(format!("{shown} -> {}", link.display()));
            } else if found.is_file() {
                let text = fs::read_to_string(root.join(&path)).unwrap();
                lines.push(format!("{shown} {look} {text:?} links={}", found.nlink()));
            } else {
                let device = found.rdev();
                lines.push(format!(
                    "{shown} device {}",
                    if device == 0 { "whiteout" } else { "real" }
                ));
            }
        }
    }

    #[test]
    fn files_links_and_devices_come_with_owner_and_mode() {
        check(
            &["dir a\nfile a/b text\nlink l /a/b\nhard a/c a/b\nchar null"],
            r#"a/ 711 7:8
               a/b 711 7:8 "text" links=2
               a/c 711 7:8 "text" links=2
               l -> /a/b
               null device real"#,
        );
    }

    #[test]
    fn whiteouts_become_overlayfs_marks_and_parents_keep_their_looks() {
        check(
            &["dir a\ndir a/b\nfile a/b/x 1\ndir o", "file a/b/.wh.x \nfile o/.wh..wh..opq "],
            "a/ 711 7:8
             a/b/ 711 7:8
             a/b/x device whiteout
             o/ 711 7:8 opaque",
        );
    }

    #[test]
    fn links_are_followed_inside_the_root_only() {
        check(
            &["link out /tmp\nfile out/x 1\nlink up ../../..\nfile up/y 2"],
            r#"out -> /tmp
               tmp/ 755 0:0
               tmp/x 711 7:8 "1" links=1
               up -> ../../..
               y 711 7:8 "2" links=1"#,
        );
    }

    #[test]
    fn links_of_lower_layers_are_followed_too() {
        check(
            &[
                "dir usr\ndir usr/lib\nlink lib usr/lib\nfile usr/lib/a 1",
                "file lib/b 2\nhard lib/c lib/a",
            ],
            r#"usr/ 711 7:8
               usr/lib/ 711 7:8
               usr/lib/a 711 7:8 "1" links=2
               usr/lib/b 711 7:8 "2" links=1
               usr/lib/c 711 7:8 "1" links=2"#,
        );
    }

    #[test]
    fn a_link_is_replaced_by_what_has_its_name() {
        check(&["link x /etc/passwd\nfile x mine"], r#"x 711 7:8 "mine" links=1"#);
    }

    #[test]
    fn hostile_archives_are_refused() {
        for lines in [
            "file ../x 1",
            "file a/../../x 1",
            "hard x ../../etc/passwd",
            "hard x nowhere",
            "file .wh... ",
            "link a b\nlink b a\nfile a/x 1",
            "link a a/a\nfile a/x 1",
        ] {
            let folder = tempfile::tempdir().unwrap();
            assert!(unpack(&archive(lines)[..], folder.path(), &[], LIMIT).is_err(), "{lines}");
        }
    }

    #[test]
    fn a_gigabyte_of_zeroes_takes_no_space() {
        let mut header = Header::new_gnu();
        header.set_path("zeroes").unwrap();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(1 << 30);
        header.set_entry_type(EntryType::Regular);
        header.set_cksum();
        let bytes = header.as_bytes().to_vec();
        let archive = io::Cursor::new(bytes).chain(io::repeat(0).take((1 << 30) + 1024));
        let folder = tempfile::tempdir().unwrap();
        unpack(archive, folder.path(), &[], LIMIT).unwrap();
        let found = fs::metadata(folder.path().join("zeroes")).unwrap();
        assert_eq!((found.len(), found.blocks()), (1 << 30, 0));
    }

    /// A header of this kind that states this size.
    fn raw(kind: u8, name: &str, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_path(name).unwrap();
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(size);
        header.set_entry_type(EntryType::new(kind));
        header.set_cksum();
        header
    }

    fn refused(archive: impl Read, limit: u64) -> String {
        let folder = tempfile::tempdir().unwrap();
        let error = unpack(archive, folder.path(), &[], limit).unwrap_err();
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    }

    #[test]
    fn records_about_an_entry_are_not_kept_without_limit() {
        for kind in [b'x', b'L', b'K'] {
            for content in [b'a', 0] {
                // Endless, as if it were unpacked from next to nothing; read, it would fill memory.
                let header = raw(kind, "x", 1 << 40).as_bytes().to_vec();
                let archive = io::Cursor::new(header).chain(io::repeat(content));
                let text = refused(archive, u64::MAX);
                assert!(text.contains("names and attributes"), "{}: {text}", kind as char);
            }
        }
        // Long names that are no files' of this machine.
        let mut builder = Builder::new(Vec::new());
        let name = "d/".repeat(3000) + "x";
        builder.append_data(&mut raw(b'0', "x", 0), name, &[][..]).unwrap();
        let text = refused(&builder.into_inner().unwrap()[..], LIMIT);
        assert!(text.contains("longer than 4096"), "{text}");
    }

    #[test]
    fn zeroes_after_an_archive_are_read_however_many() {
        let archive = archive("file a 1");
        let folder = tempfile::tempdir().unwrap();
        let archive = io::Cursor::new(archive).chain(io::repeat(0).take(32 << 20));
        unpack(archive, folder.path(), &[], LIMIT).unwrap();
        assert!(folder.path().join("a").exists());
    }

    #[test]
    fn what_an_archive_unpacks_to_is_bounded() {
        let header = raw(b'0', "x", 1 << 40).as_bytes().to_vec();
        let text = refused(io::Cursor::new(header).chain(io::repeat(b'a')), 1 << 20);
        assert!(text.contains("more than its size allows"), "{text}");
        // A file that is all hole: nothing of it is in the archive.
        let mut sparse = raw(b'S', "x", 0);
        let gnu = sparse.as_gnu_mut().unwrap();
        gnu.set_real_size(1 << 60);
        gnu.sparse[0].set_offset(1 << 60);
        gnu.sparse[0].set_length(0);
        sparse.set_cksum();
        let text = refused(&sparse.as_bytes()[..], 1 << 30);
        assert!(text.contains("more than its size allows"), "{text}");
    }

    #[test]
    fn nothing_lies_deeper_than_files_do() {
        let deep = |levels: usize, links: &str| {
            let mut bytes = archive(links);
            // Without its end, for more follows.
            bytes.truncate(bytes.len() - 1024);
            let mut builder = Builder::new(Vec::new());
            let name = "d/".repeat(levels) + "x";
            builder.append_data(&mut raw(b'0', "x", 0), name, &[][..]).unwrap();
            bytes.extend(builder.into_inner().unwrap());
            bytes
        };
        let folder = tempfile::tempdir().unwrap();
        unpack(&deep(bounds::DEPTH, "")[..], folder.path(), &[], LIMIT).unwrap();
        let text = refused(&deep(bounds::DEPTH + 1, "")[..], LIMIT);
        assert!(text.contains("deeper than 256"), "{text}");
        // The link is where the folder would be: it adds what it says.
        let text = refused(&deep(bounds::DEPTH, "link d a/b")[..], LIMIT);
        assert!(text.contains("deeper than 256"), "{text}");
    }
}
