//! Gives a volume's files to the pod's group: `fsGroup` (`pkg/volume/volume_linux.go`).
//!
//! Containers of other pods may have the volume already and put links in the place of files meanwhile: each is
//! opened in its folder, without following one, and changed as what was opened.
use super::{VolumeError, io_error};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, chmod, chownat, fstat, openat,
};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// What the group may do with files, and with folders besides.
const FILES: u32 = 0o660;
const FOLDERS: u32 = 0o2110;

/// How deep folders may lie in each other; each is held open. By its path nobody reaches what is much deeper.
const DEEPEST: usize = 2048;

/// `only_if_needed`: not if the folder itself is the group's already.
pub fn give(folder: &Path, group: i64, only_if_needed: bool) -> Result<(), VolumeError> {
    let given = try_give(folder, u32::try_from(group).unwrap_or(u32::MAX), only_if_needed);
    given.map_err(|error| io_error("give away", folder)(error.into()))
}

fn try_give(folder: &Path, group: u32, only_if_needed: bool) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = openat(CWD, folder, flags, Mode::empty())?;
    let found = fstat(&top)?;
    let wanted = FILES | FOLDERS;
    if only_if_needed && found.st_gid == group && found.st_mode & wanted == wanted {
        return Ok(());
    }
    // A folder is given away when all in it is, the outermost last: what is interrupted begins again.
    let mut open = vec![(entries(&top)?, top)];
    while let Some((left, folder)) = open.last_mut() {
        let Some(entry) = left.next() else {
            let (_, folder) = open.pop().expect("it was there a moment ago");
            let found = fstat(&folder)?;
            give_one(&folder, &found, group)?;
            continue;
        };
        let entry = entry?;
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        let one = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let one = match openat(&*folder, entry.file_name(), one, Mode::empty()) {
            // Somebody else uses the volume.
            Err(Errno::NOENT) => continue,
            one => one?,
        };
        let found = fstat(&one)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory if open.len() >= DEEPEST => return Err(Errno::NAMETOOLONG),
            FileType::Directory => open.push((entries(&one)?, one)),
            _ => give_one(&one, &found, group)?,
        }
    }
    Ok(())
}

fn entries(folder: &OwnedFd) -> Result<Dir, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Dir::new(openat(folder, ".", flags, Mode::empty())?)
}

/// Gives away what was opened: a link itself, not what it leads to.
fn give_one(file: &OwnedFd, found: &Stat, group: u32) -> Result<(), Errno> {
    if found.st_gid != group {
        chownat(file, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)?;
    }
    let kind = FileType::from_raw_mode(found.st_mode);
    if kind.is_symlink() {
        return Ok(());
    }
    let wanted = if kind.is_dir() { FILES | FOLDERS } else { FILES };
    let mode = found.st_mode & 0o7777;
    if mode & wanted != wanted {
        // What is open for its path alone is changed by that of its descriptor.
        chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), Mode::from_raw_mode(mode | wanted))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn everything_below_is_the_groups() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::create_dir(place("inner")).unwrap();
        fs::write(place("inner/file"), "x").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", place("link")).unwrap();
        let group = fs::metadata(folder.path()).unwrap().gid();
        let before = fs::metadata("/etc/passwd").unwrap().mode();
        give(folder.path(), group.into(), false).unwrap();
        let mode = |name: &str| fs::metadata(place(name)).unwrap().mode() & 0o7777;
        assert_eq!(mode("inner") & 0o2770, 0o2770);
        assert_eq!(mode("inner/file") & 0o660, 0o660);
        assert_eq!(fs::metadata("/etc/passwd").unwrap().mode(), before);
        fs::set_permissions(place("inner/file"), fs::Permissions::from_mode(0o600)).unwrap();
        give(folder.path(), group.into(), true).unwrap();
        assert_eq!(mode("inner/file"), 0o600, "the folder is the group's already");
    }

    /// A container of another pod puts a file and a link to the host in each other's place as fast as it can.
    #[test]
    fn nobody_is_quick_enough_to_have_what_is_outside_given_to_him() {
        let place = tempfile::tempdir().unwrap();
        let (volume, outside) = (place.path().join("v"), place.path().join("outside"));
        fs::create_dir_all(volume.join("folder")).unwrap();
        fs::create_dir(&outside).unwrap();
        let secret = outside.join("secret");
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(volume.join("folder/secret"), "").unwrap();
        fs::write(volume.join("file"), "").unwrap();
        std::os::unix::fs::symlink(&outside, volume.join("to-folder")).unwrap();
        std::os::unix::fs::symlink(&secret, volume.join("to-file")).unwrap();
        let group = fs::metadata(&volume).unwrap().gid();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                use rustix::fs::{RenameFlags, renameat_with};
                // Bounded, so that a test that fails ends.
                for _ in 0..1_000_000 {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    for (one, other) in [("folder", "to-folder"), ("file", "to-file")] {
                        let (one, other) = (volume.join(one), volume.join(other));
                        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                    }
                }
            });
            for _ in 0..5000 {
                let _ = fs::set_permissions(
                    volume.join("folder/secret"),
                    fs::Permissions::from_mode(0o600),
                );
                let _ = give(&volume, group.into(), false);
                let mode = fs::metadata(&secret).unwrap().mode() & 0o7777;
                if mode != 0o600 {
                    stop.store(true, std::sync::atomic::Ordering::Relaxed);
                    panic!("{mode:o}");
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
