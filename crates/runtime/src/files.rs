//! Small files, of which a crash leaves nothing half written to be read; and where folders lie.
//!
//! Those about images are on disk before they are seen: an image outlives the machine's power.
//! Those about containers need not be, for after a power cut there are no containers.
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes beside the target, then renames: a reader, or a crash, sees the old or the new.
pub fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:08x}", fastrand::u32(..)));
    let beside = Path::new(&name);
    let written = File::create(beside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_data()))
        .and_then(|()| fs::rename(beside, path));
    if written.is_err() {
        let _ = fs::remove_file(beside);
    }
    written
}

/// A file for nobody else: a container's environment is in it.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.create(true).write(true).truncate(true).mode(0o600).open(path)?.write_all(bytes)
}

/// Adds a line of JSON to a file for nobody else, made if it is not there. A crash, or a full disk,
/// may cut it short: [`lines`] leaves out what is no JSON, and the next line begins on its own.
pub fn append<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let mut line = vec![b'\n'];
    serde_json::to_writer(&mut line, value)?;
    line.push(b'\n');
    let mut options = File::options();
    options.create(true).append(true).mode(0o600).open(path)?.write_all(&line)
}

/// The lines of a file that are whole and of this kind, in their order.
pub fn lines<T: DeserializeOwned>(text: &str) -> impl Iterator<Item = T> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok())
}

/// Who may enter a folder beside its owner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Others {
    Nobody,
    /// Whoever knows the way, for users of a namespace whose root has another number out here.
    Passing,
}

/// Makes a folder, if it is not there, that others of the machine keep out of. What containers have in theirs is as
/// they like it: files that anybody may read, programs that run as root whoever starts them.
pub fn own_folder(path: &Path, others: Others) -> io::Result<()> {
    fs::create_dir_all(path)?;
    let mode = match others {
        Others::Nobody => 0o700,
        Others::Passing => 0o711,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// How deep a folder is removed as it lies.
const DEPTH: u32 = 64;

/// Removes a folder with all that is in it; one that is not there is gone already. What is in it may be
/// a container's, which can nest folders deeper than there are descriptors or room on the stack: what
/// lies too deep is moved up first. Links are removed, never followed; what is mounted in it is
/// somebody's and never entered, and the folder stays for as long as it is there.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = match openat(CWD, path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        top => top?,
    };
    // What was moved up is in the folder again, so it is looked at once more.
    while empty(&top, &top, 0)? {}
    unlinkat(CWD, path, AtFlags::REMOVEDIR)?;
    Ok(())
}

/// Removes what is in a folder; whether something of it was moved up to `top`.
fn empty(folder: &OwnedFd, top: &OwnedFd, depth: u32) -> io::Result<bool> {
    use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, openat2, renameat, unlinkat};
    use rustix::io::Errno;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let here = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let mut moved = false;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match unlinkat(folder, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {}
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        }
        if depth >= DEPTH {
            renameat(folder, name, top, format!("deep-{:016x}", fastrand::u64(..)))?;
            moved = true;
            continue;
        }
        moved |= empty(&openat2(folder, name, flags, Mode::empty(), here)?, top, depth + 1)?;
        unlinkat(folder, name, AtFlags::REMOVEDIR)?;
    }
    Ok(moved)
}

/// Where something is mounted that this process sees, what was mounted first before the others.
pub fn mount_points() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped).collect()
}

/// The kernel writes spaces and the like as `\040`.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code =
            digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Says that the folders in this one have nothing to do with each other. An ext4 then puts each
/// into another group of inodes; otherwise all are in their parent's. There one without a journal
/// looks, for every file it makes, at those that were deleted there lately, one by one, and where
/// containers come and go those are many: it took longer than everything else about a container.
/// A hint: other file systems know nothing of it, and nothing depends on it.
pub fn scatter(folder: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let Ok(folder) = File::open(folder) else { return };
    let _ =
        ioctl_getflags(&folder).and_then(|flags| ioctl_setflags(&folder, flags | IFlags::TOPDIR));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_short_takes_no_other_along() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        append(&path, &[1, 2]).unwrap();
        append(&path, &[3]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, whole.trim_end().trim_end_matches(']')).unwrap();
        append(&path, &[4]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(lines::<Vec<u8>>(&text).collect::<Vec<_>>(), [vec![1, 2], vec![4]]);
    }

    #[test]
    fn a_folder_goes_however_deep_it_is_and_nothing_behind_its_links() {
        use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("kept")).unwrap();
        fs::write(path("kept/file"), "").unwrap();
        fs::create_dir(path("deep")).unwrap();
        fs::write(path("deep/file"), "").unwrap();
        std::os::unix::fs::symlink(path("kept"), path("deep/link")).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = openat(CWD, path("deep"), flags, Mode::empty()).unwrap();
        for _ in 0..22_000 {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        remove_folder(&path("deep")).unwrap();
        assert!(!path("deep").exists() && path("kept/file").exists());
        remove_folder(&path("deep")).unwrap();
        std::os::unix::fs::symlink(path("kept"), path("link")).unwrap();
        assert!(remove_folder(&path("link")).is_err());
        assert!(path("kept/file").exists());
    }

    #[test]
    fn a_mount_in_a_folder_is_nobodys_to_empty() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let point = ours.join("a b");
        fs::create_dir_all(&point).unwrap();
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("kept"), "").unwrap();
        // Root alone may mount.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // Of the same file system, so that its number tells nothing.
        rustix::mount::mount_bind(&theirs, &point).unwrap();
        let found = mount_points();
        let refused = remove_folder(&ours);
        rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH).unwrap();
        assert!(found.contains(&point), "{found:?}");
        assert!(refused.is_err() && theirs.join("kept").exists(), "{refused:?}");
        remove_folder(&ours).unwrap();
        assert!(!ours.exists() && theirs.join("kept").exists());
    }

    #[test]
    fn paths_are_read_as_the_kernel_writes_them() {
        for (text, expected) in
            [(r"/a\040b", "/a b"), (r"/a\134040", r"/a\040"), (r"/a\0", r"/a\0")]
        {
            assert_eq!(unescaped(text), Path::new(expected), "{text}");
        }
    }

    #[test]
    fn what_is_scattered_has_the_flag_where_there_is_one() {
        use rustix::fs::{IFlags, fstatfs, ioctl_getflags};
        const EXT: i64 = 0xef53;
        let folder = tempfile::tempdir().unwrap();
        scatter(folder.path());
        let open = File::open(folder.path()).unwrap();
        if fstatfs(&open).unwrap().f_type as i64 == EXT {
            assert!(ioctl_getflags(&open).unwrap().contains(IFlags::TOPDIR));
        }
        scatter(&folder.path().join("nowhere"));
    }
}
