//! Places for what is mounted within a volume that containers may only read: whoever mounts it there could not
//! make them any more (`MakeNestedMountpoints` of upstream's `pkg/volume/util`).
use super::{VolumeError, io_error};
use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, open, openat, openat2};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;

/// Makes a folder, or an empty file, at a path in a volume, unless something is there.
pub fn make_place(volume: &Path, inside: &Path, is_folder: bool) -> Result<(), VolumeError> {
    let shown = volume.join(inside);
    try_make(volume, inside, is_folder).map_err(|error| io_error("make", &shown)(error.into()))
}

fn try_make(volume: &Path, inside: &Path, is_folder: bool) -> Result<(), Errno> {
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = open(volume, folder | OFlags::NOFOLLOW, Mode::empty())?;
    let there = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(&at, inside, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), there) {
        Err(Errno::NOENT) => {}
        found => return found.map(drop),
    }
    let mut names = inside.components().map(|part| part.as_os_str()).peekable();
    while let Some(name) = names.next() {
        let made = match names.peek().is_some() || is_folder {
            true => mkdirat(at.as_fd(), name, Mode::from_raw_mode(0o755)),
            false => {
                let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                openat(at.as_fd(), name, new, Mode::from_raw_mode(0o644)).map(drop)
            }
        };
        match made {
            Err(error) if error != Errno::EXIST => return Err(error),
            _ if names.peek().is_none() => break,
            _ => {}
        }
        let own = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        at = openat2(at.as_fd(), name, folder, Mode::empty(), own)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn places_are_made_in_the_volume_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("v");
        fs::create_dir_all(volume.join("there")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        std::os::unix::fs::symlink("../outside", volume.join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", volume.join("broken")).unwrap();
        let make = |inside: &str, is_folder| make_place(&volume, Path::new(inside), is_folder);
        make("there", true).unwrap();
        make("a/b", true).unwrap();
        make("there/file", false).unwrap();
        assert!(volume.join("a/b").is_dir() && volume.join("there/file").is_file());
        for inside in ["link/x", "../outside/x", "/outside/x", "broken/x", "there/file/x"] {
            assert!(make(inside, true).is_err(), "{inside}");
        }
        assert_eq!(fs::read_dir(folder.path().join("outside")).unwrap().count(), 0);
    }
}
