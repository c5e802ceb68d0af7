//! Many files changed at one moment: they are in a folder of their own, to which `..data` is a link
//! that is replaced by a rename; the names that containers see are links through it. The layout is
//! upstream's (`pkg/volume/util/atomic_writer.go`), for programs watch `..data`.
//!
//! Containers may only read there; one that may do anything to its own mounts may have written all the same.
//! So nothing that is found is believed: every name is looked up in its folder, and no link is followed.
use super::{Payload, VolumeError, io_error};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fchmod, mkdirat, open, openat, openat2,
    readlinkat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

const DATA: &str = "..data";
const NEW: &str = "..data_tmp";

const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Makes the folder show this and nothing else; true if something changed.
pub fn write(folder: &Path, payload: &Payload, group: Option<i64>) -> Result<bool, VolumeError> {
    let group = group.and_then(|group| u32::try_from(group).ok());
    let written = open(folder, FOLDER, Mode::empty())
        .map_err(io::Error::from)
        .and_then(|open| try_write(folder, &open, payload, group));
    written.map_err(io_error("write the files of", folder))
}

fn try_write(
    path: &Path,
    folder: &OwnedFd,
    payload: &Payload,
    group: Option<u32>,
) -> io::Result<bool> {
    if current(folder).is_some_and(|current| shows(&current, payload)) {
        return Ok(false);
    }
    let (name, fresh) = new_folder(folder)?;
    write_files(&fresh, payload, group)?;
    discard(path, folder, NEW)?;
    symlinkat(name.as_str(), folder, NEW)?;
    // Of a folder in its place nobody has a use.
    if renameat(folder, NEW, folder, DATA).is_err() {
        discard(path, folder, DATA)?;
        renameat(folder, NEW, folder, DATA)?;
    }
    let names: BTreeSet<&str> = payload.keys().filter_map(|path| path.split('/').next()).collect();
    for name in &names {
        match statat(folder, *name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => symlinkat(format!("{DATA}/{name}"), folder, *name)?,
            found => drop(found?),
        }
    }
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let found = entry.file_name().to_string_lossy().into_owned();
        if found.starts_with("..") {
            if !["..", DATA, &name].contains(&found.as_str()) {
                discard(path, folder, &found)?;
            }
            continue;
        }
        // What is no link is the place of something that is mounted here.
        let is_link = statat(folder, found.as_str(), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_symlink());
        if is_link && !names.contains(found.as_str()) {
            unlinkat(folder, found.as_str(), AtFlags::empty())?;
        }
    }
    Ok(true)
}

/// The folder whose files are shown now.
fn current(folder: &OwnedFd) -> Option<OwnedFd> {
    let name = readlinkat(folder, DATA, Vec::new()).ok()?;
    let is_plain = name.to_bytes().starts_with(b"..") && !name.to_bytes().contains(&b'/');
    inside(folder, name.to_str().ok().filter(|_| is_plain)?, FOLDER).ok()
}

/// Opens what lies below a folder by real folders alone.
fn inside(folder: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat2(folder, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

fn shows(folder: &OwnedFd, payload: &Payload) -> bool {
    let is_same = |path: &str, file: &super::payload::File| -> Option<bool> {
        // Nobody waits for the other end of a pipe.
        let found = File::from(inside(folder, path, OFlags::RDONLY | OFlags::NONBLOCK).ok()?);
        let all = found.metadata().ok()?;
        let fits = all.is_file()
            && all.mode() & file.mode == file.mode
            && file.owner.is_none_or(|owner| all.uid() == owner)
            && all.len() == u64::try_from(file.bytes.len()).ok()?;
        if !fits {
            return Some(false);
        }
        let mut bytes = Vec::with_capacity(file.bytes.len());
        found.take(all.len()).read_to_end(&mut bytes).ok()?;
        Some(bytes == file.bytes)
    };
    payload.iter().all(|(path, file)| is_same(path, file) == Some(true))
        && has_nothing_else(folder, payload).unwrap_or(false)
}

fn has_nothing_else(folder: &OwnedFd, payload: &Payload) -> Result<bool, Errno> {
    let parts = |path: &str| -> Vec<String> {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        ends.map(|end| path[..end].to_owned()).collect()
    };
    let known: BTreeSet<String> = payload.keys().flat_map(|path| parts(path)).collect();
    let mut folders = vec![(String::new(), inside(folder, ".", FOLDER)?)];
    while let Some((path, folder)) = folders.pop() {
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if matches!(name.as_str(), "." | "..") {
                continue;
            }
            let shown = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            if !known.contains(&shown) {
                return Ok(false);
            }
            if !payload.contains_key(&shown) {
                folders.push((shown, inside(&folder, &name, FOLDER)?));
            }
        }
    }
    Ok(true)
}

/// A folder named after the moment, as upstream's are; another if that is taken.
fn new_folder(folder: &OwnedFd) -> Result<(String, OwnedFd), Errno> {
    let mut number = jiff::Timestamp::now().as_nanosecond();
    loop {
        let name = format!("..{number}");
        match mkdirat(folder, name.as_str(), Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                let made = inside(folder, &name, FOLDER)?;
                fchmod(&made, Mode::from_raw_mode(0o755))?;
                return Ok((name, made));
            }
            Err(Errno::EXIST) => number += 1,
            Err(error) => return Err(error),
        }
    }
}

fn write_files(folder: &OwnedFd, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    for (path, file) in payload {
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut below: Option<OwnedFd> = None;
        for parent in parents.split('/').filter(|parent| !parent.is_empty()) {
            let at = below.as_ref().unwrap_or(folder);
            match mkdirat(at, parent, Mode::from_raw_mode(0o755)) {
                Err(error) if error != Errno::EXIST => return Err(error.into()),
                _ => below = Some(inside(at, parent, FOLDER)?),
            }
        }
        let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let at = below.as_ref().unwrap_or(folder);
        let mut made = File::from(openat(at, name, new, Mode::from_raw_mode(0o600))?);
        made.write_all(&file.bytes)?;
        let mut mode = file.mode;
        if group.is_some() {
            // The group that the pod's processes are in has to be able to read it.
            mode |= 0o440;
        }
        if group.is_some() || file.owner.is_some() {
            fchown(&made, file.owner, group)?;
        }
        fchmod(&made, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

/// Takes away what has a name here, whatever it is.
fn discard(path: &Path, folder: &OwnedFd, name: &str) -> io::Result<()> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => runtime::remove_folder(&path.join(name)),
        Err(error) if error != Errno::NOENT => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::payload;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |text: &str| payload::File::new(text, 0o644);
        files.iter().map(|(path, text)| (String::from(*path), file(text))).collect()
    }

    #[test]
    fn files_change_together_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let read = |name: &str| fs::read_to_string(path.join(name)).ok();
        assert!(write(path, &payload(&[("a", "1"), ("d/b", "2")]), None).unwrap());
        assert_eq!((read("a"), read("d/b")), (Some("1".into()), Some("2".into())));
        let first = fs::read_link(path.join(DATA)).unwrap();
        assert!(!write(path, &payload(&[("a", "1"), ("d/b", "2")]), None).unwrap());
        assert_eq!(fs::read_link(path.join(DATA)).unwrap(), first);
        assert!(write(path, &payload(&[("a", "3"), ("c", "4")]), None).unwrap());
        assert_eq!((read("a"), read("c"), read("d/b")), (Some("3".into()), Some("4".into()), None));
        assert!(!path.join(&first).exists());
        assert!(path.join("d").symlink_metadata().is_err());
    }

    #[test]
    fn the_place_of_a_mount_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        write(path, &payload(&[("a", "1")]), None).unwrap();
        fs::create_dir(path.join("place")).unwrap();
        assert!(write(path, &payload(&[("b", "1")]), None).unwrap());
        assert!(path.join("place").is_dir() && path.join("a").symlink_metadata().is_err());
    }

    /// What a container may have put there that could write to the folder after all.
    #[test]
    fn no_link_leads_what_is_written_or_removed_outside() {
        let outside = |place: &Path| {
            let outside = place.join("outside");
            fs::create_dir(&outside).unwrap();
            fs::write(outside.join("kept"), "kept").unwrap();
            outside
        };
        let replace = |link: &Path, target: &Path| {
            let _ = fs::remove_file(link).or_else(|_| fs::remove_dir_all(link));
            symlink(target, link).unwrap();
        };
        type Attack = fn(&Path, &Path, &dyn Fn(&Path, &Path));
        let attacks: [Attack; 6] = [
            |path, outside, replace| replace(&path.join(DATA), outside),
            |path, _, replace| replace(&path.join(DATA), Path::new("../outside")),
            |path, outside, replace| {
                let current = path.join(fs::read_link(path.join(DATA)).unwrap());
                replace(&current, outside);
            },
            |path, outside, replace| replace(&path.join(NEW), outside),
            |path, outside, replace| replace(&path.join("..old"), outside),
            |path, _, _| {
                fs::remove_file(path.join(DATA)).unwrap();
                fs::create_dir_all(path.join(DATA).join("a")).unwrap();
            },
        ];
        for (number, attack) in attacks.into_iter().enumerate() {
            let place = tempfile::tempdir().unwrap();
            let (path, outside) = (place.path().join("v"), outside(place.path()));
            fs::create_dir(&path).unwrap();
            write(&path, &payload(&[("a", "1"), ("d/b", "2")]), None).unwrap();
            attack(&path, &outside, &replace);
            write(&path, &payload(&[("a", "2"), ("kept", "no")]), None).unwrap();
            let names: Vec<_> = fs::read_dir(&outside).unwrap().flatten().collect();
            assert_eq!(names.len(), 1, "attack {number}: {names:?}");
            assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept", "{number}");
            assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "2", "attack {number}");
        }
        // A pipe has no other end.
        let place = tempfile::tempdir().unwrap();
        let files = payload(&[("a", "1")]);
        write(place.path(), &files, None).unwrap();
        let file = place.path().join(DATA).join("a");
        fs::remove_file(&file).unwrap();
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, &file, FileType::Fifo, mode, 0).unwrap();
        assert!(write(place.path(), &files, None).unwrap());
        assert_eq!(fs::read_to_string(file).unwrap(), "1");
    }
}
