//! A part of a volume. A container may have put a link there that leads outside: the kernel is told
//! not to leave the volume, and what it found is pinned by a mount of the kubelet's own, so that
//! nothing can be put in its place before the container has it.
use super::{VolumeError, io_error, is_mounted};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, mkdirat, open, openat2, stat};
use rustix::io::Errno;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Mounts `volume/part` at `target`; missing folders are made. What shows objects is written as new files: a
/// container that starts again gets those of now.
pub fn pin(volume: &Path, part: &str, target: &Path) -> Result<(), VolumeError> {
    let found = find(volume, part)?;
    if is_mounted(target) {
        if is_same(&found, target) {
            return Ok(());
        }
        rustix::mount::unmount(target, rustix::mount::UnmountFlags::DETACH)
            .map_err(|error| io_error("unmount", target)(error.into()))?;
    }
    let is_folder = fs::metadata(format!("/proc/self/fd/{}", found.as_raw_fd()))
        .is_ok_and(|found| found.is_dir());
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(io_error("create", parent))?;
    }
    // The place of a file is no place for a folder, and the other way round.
    match fs::symlink_metadata(target) {
        Ok(place) if place.is_dir() && !is_folder => {
            fs::remove_dir(target).map_err(io_error("remove", target))?;
        }
        Ok(place) if !place.is_dir() && is_folder => {
            fs::remove_file(target).map_err(io_error("remove", target))?;
        }
        _ => {}
    }
    let made = if is_folder { fs::create_dir_all(target) } else { fs::write(target, "") };
    made.map_err(io_error("create", target))?;
    rustix::mount::mount_bind(format!("/proc/self/fd/{}", found.as_raw_fd()), target)
        .map_err(|error| io_error("mount a volume's part at", target)(error.into()))
}

/// Whether what is mounted at a place is what was found.
fn is_same(found: &OwnedFd, target: &Path) -> bool {
    let Ok(found) = fstat(found) else { return false };
    stat(target).is_ok_and(|there| (there.st_dev, there.st_ino) == (found.st_dev, found.st_ino))
}

/// Opens what is there without leaving the volume, or makes it as folders.
pub fn find(volume: &Path, part: &str) -> Result<OwnedFd, VolumeError> {
    let shown = volume.join(part);
    let failed = |error: Errno| io_error("open", &shown)(error.into());
    let root = open(volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(failed)?;
    let inside =
        |flags| openat2(root.as_fd(), part, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), flags);
    match inside(ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS) {
        Err(Errno::NOENT) => {}
        found => return found.map_err(failed),
    }
    let mut at = root;
    for name in part.split('/').filter(|name| !name.is_empty() && *name != ".") {
        match mkdirat(at.as_fd(), name, Mode::from_raw_mode(0o750)) {
            Err(error) if error != Errno::EXIST => return Err(failed(error)),
            _ => {}
        }
        let flags = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let next = openat2(
            at.as_fd(),
            name,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            flags,
        );
        at = next.map_err(failed)?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_part_never_leaves_its_volume() {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("v");
        fs::create_dir_all(volume.join("a")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        symlink(folder.path().join("outside"), volume.join("absolute")).unwrap();
        symlink("../outside", volume.join("relative")).unwrap();
        symlink("a", volume.join("inside")).unwrap();
        let is_ok = |part: &str| find(&volume, part).is_ok();
        assert!(is_ok("a") && is_ok("inside") && is_ok("b/c"));
        assert!(volume.join("b/c").is_dir());
        for part in ["absolute", "relative", "absolute/x", "relative/x", "..", "a/../../outside"] {
            assert!(!is_ok(part), "{part}");
        }
        assert!(!folder.path().join("outside/x").exists());
    }

    #[test]
    fn what_was_written_anew_is_pinned_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (volume, target) = (folder.path().join("v"), folder.path().join("pins/0"));
        fs::create_dir(&volume).unwrap();
        let write = |text: &str| {
            fs::write(volume.join("new"), text).unwrap();
            fs::rename(volume.join("new"), volume.join("file")).unwrap();
        };
        write("old");
        let before = find(&volume, "file").unwrap();
        assert!(is_same(&before, &volume.join("file")));
        write("new");
        assert!(!is_same(&before, &volume.join("file")) && !is_same(&before, &target));
        // Mounts are for root alone.
        if pin(&volume, "file", &target).is_err() {
            return;
        }
        let read = || fs::read_to_string(&target).unwrap();
        write("newer");
        assert_eq!(read(), "new", "what runs keeps what it has");
        pin(&volume, "file", &target).unwrap();
        assert_eq!(read(), "newer");
        fs::remove_file(volume.join("file")).unwrap();
        fs::create_dir(volume.join("file")).unwrap();
        pin(&volume, "file", &target).unwrap();
        assert!(target.is_dir());
        rustix::mount::unmount(&target, rustix::mount::UnmountFlags::DETACH).unwrap();
    }

    /// A container puts a folder and a link to the host in each other's place as fast as it can.
    #[test]
    fn nobody_is_quick_enough_to_lead_a_part_outside() {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("v");
        fs::create_dir_all(volume.join("a")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        symlink("../outside", volume.join("b")).unwrap();
        let outside = fs::canonicalize(folder.path().join("outside")).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                use rustix::fs::{CWD, RenameFlags, renameat_with};
                // Bounded, so that a test that fails ends.
                for _ in 0..1_000_000 {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    let (one, other) = (volume.join("a"), volume.join("b"));
                    renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                }
            });
            for _ in 0..5000 {
                for part in ["a", "a/c"] {
                    let Ok(found) = find(&volume, part) else { continue };
                    let seen = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()));
                    let seen = seen.unwrap();
                    assert!(!seen.starts_with(&outside), "{}", seen.display());
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
}
