//! Unpacks one layer into a folder that overlayfs can use.
//!
//! Archives come from strangers. Nothing is ever resolved by the host's rules: every parent is
//! walked component by component through the new layer and those below it, links are followed
//! inside the layer's own root, and the last component is always replaced, never followed. The
//! folder is nobody else's while we write, so that walk cannot be raced.
//!
//! Whiteouts become overlayfs' own marks. A folder that the archive needs but does not list gets
//! its mode, owner and attributes from the layers below: in overlayfs the upper folder's count.
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, lsetxattr,
    mknodat, utimensat,
};
use tar::{Entry, EntryType};

#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("failed to read the archive")]
    Read(#[source] io::Error),
    #[error("{} leaves the root", .0.display())]
    Escape(PathBuf),
    #[error("failed to {operation} {}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("{} has no valid {field}", path.display())]
    Field { field: &'static str, path: PathBuf },
}

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Links followed on one path before it counts as a loop; the kernel's own number.
const LINK_LIMIT: usize = 40;
/// Runs of zeroes at least this long become holes.
const HOLE: usize = 64 << 10;

/// Unpacks `archive` into `root`; `below` are the layers under it, topmost first.
pub fn unpack(archive: impl Read, root: &Path, below: &[PathBuf]) -> Result<(), UnpackError> {
    let mut archive = tar::Archive::new(archive);
    archive.set_ignore_zeros(true);
    let mut layer =
        Layer { root, below, known: HashSet::from([PathBuf::new()]), folder_times: Vec::new() };
    for entry in archive.entries().map_err(UnpackError::Read)? {
        layer.entry(entry.map_err(UnpackError::Read)?)?;
    }
    // Last, for every file made in a folder moves its time.
    for (folder, time) in layer.folder_times.iter().rev() {
        set_time(&layer.root.join(folder), *time)?;
    }
    Ok(())
}

struct Layer<'a> {
    root: &'a Path,
    below: &'a [PathBuf],
    /// Folders of this layer that are real, by their path from the root.
    known: HashSet<PathBuf>,
    folder_times: Vec<(PathBuf, i64)>,
}

impl Layer<'_> {
    fn entry(&mut self, mut entry: Entry<'_, impl Read>) -> Result<(), UnpackError> {
        let name = entry.path().map_err(UnpackError::Read)?.into_owned();
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        let Some((parent, last)) = split(&name)? else {
            // The root itself: its mode and owner count, its kind is given.
            self.attributes(&mut entry, Path::new(""), true)?;
            return Ok(());
        };
        let parent = self.folder(&parent)?;
        let path = parent.join(&last);
        let target = self.root.join(&path);
        if last.as_bytes() == OPAQUE {
            return set_xattr(&self.root.join(&parent), "trusted.overlay.opaque", b"y");
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
                write_file(&mut entry, &target)?;
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
        self.attributes(&mut entry, &path, kind.is_dir())
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
        if is_folder {
            self.folder_times.push((path.to_owned(), time));
            Ok(())
        } else {
            set_time(&target, time)
        }
    }

    /// The real folder `path` means, made if need be.
    fn folder(&mut self, path: &Path) -> Result<PathBuf, UnpackError> {
        if self.known.contains(path) {
            return Ok(path.to_owned());
        }
        let mut real = PathBuf::new();
        // What is still to be walked, last component first.
        let mut rest: Vec<OsString> = Vec::new();
        push_components(&mut rest, path);
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                real.pop();
                continue;
            }
            let candidate = real.join(&name);
            if !self.lookup(&candidate).is_some_and(|found| found.is_symlink()) {
                self.make_folder(&candidate)?;
                real = candidate;
                continue;
            }
            links += 1;
            if links > LINK_LIMIT {
                return Err(UnpackError::Escape(path.to_owned()));
            }
            let holder = self.holder(&candidate);
            let link = fs::read_link(&holder).map_err(failed("read link", &holder))?;
            if link.has_root() {
                real = PathBuf::new();
            }
            push_components(&mut rest, &link);
        }
        Ok(real)
    }

    /// What `path` (whose parents are real) is, here or below.
    fn lookup(&self, path: &Path) -> Option<fs::FileType> {
        std::iter::once(self.root)
            .chain(self.below.iter().map(PathBuf::as_path))
            .find_map(|layer| lstat_inside(layer, path))
            .map(|found| found.file_type())
    }

    fn holder(&self, path: &Path) -> PathBuf {
        std::iter::once(self.root)
            .chain(self.below.iter().map(PathBuf::as_path))
            .find(|layer| lstat_inside(layer, path).is_some())
            .unwrap_or(self.root)
            .join(path)
    }

    /// Makes `path` a folder of this layer, with the looks it has below.
    fn make_folder(&mut self, path: &Path) -> Result<(), UnpackError> {
        if self.known.contains(path) {
            return Ok(());
        }
        let target = self.root.join(path);
        match fs::symlink_metadata(&target) {
            Ok(found) if found.is_dir() => {}
            found => {
                if found.is_ok() {
                    fs::remove_file(&target).map_err(failed("replace", &target))?;
                }
                fs::create_dir(&target).map_err(failed("create", &target))?;
                fs::set_permissions(&target, fs::Permissions::from_mode(0o755))
                    .map_err(failed("set the mode of", &target))?;
                let below = self.below.iter().find_map(|layer| {
                    let found = lstat_inside(layer, path)?;
                    Some((layer.join(path), found))
                });
                if let Some((source, found)) = below
                    && found.is_dir()
                {
                    copy_looks(&source, &found, &target)?;
                    self.folder_times.push((path.to_owned(), found.mtime()));
                }
            }
        }
        self.known.insert(path.to_owned());
        Ok(())
    }

    /// Makes room for something that is not a folder.
    fn clear(&mut self, path: &Path) -> Result<(), UnpackError> {
        let target = self.root.join(path);
        match fs::symlink_metadata(&target) {
            Err(_) => Ok(()),
            Ok(found) if found.is_dir() => {
                self.known.retain(|known| !known.starts_with(path));
                self.folder_times.retain(|(folder, _)| !folder.starts_with(path));
                fs::remove_dir_all(&target).map_err(failed("replace", &target))
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
            let holder = self.holder(&path);
            let found = fs::symlink_metadata(&holder).map_err(failed("link to", &source))?;
            if !found.is_file() {
                return Err(field("link target", link));
            }
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

/// `lstat` of a path below a layer, none if one of its parents there is not a real folder.
fn lstat_inside(layer: &Path, path: &Path) -> Option<fs::Metadata> {
    let mut walked = layer.to_owned();
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        walked.push(component);
        let found = fs::symlink_metadata(&walked).ok()?;
        if components.peek().is_none() {
            return Some(found);
        }
        if !found.is_dir() {
            return None;
        }
    }
    fs::symlink_metadata(layer).ok()
}

fn write_file(entry: &mut Entry<'_, impl Read>, target: &Path) -> Result<(), UnpackError> {
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
    chownat(CWD, target, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|error| failed("set the owner of", target)(error.into()))
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
            unpack(&archive(lines)[..], &root, &below).unwrap();
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
            assert!(unpack(&archive(lines)[..], folder.path(), &[]).is_err(), "{lines}");
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
        unpack(archive, folder.path(), &[]).unwrap();
        let found = fs::metadata(folder.path().join("zeroes")).unwrap();
        assert_eq!((found.len(), found.blocks()), (1 << 30, 0));
    }
}
