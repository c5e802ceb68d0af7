//! Many files changed at one moment: they are in a folder of their own, to which `..data` is a link
//! that is replaced by a rename; the names that containers see are links through it. The layout is
//! upstream's (`pkg/volume/util/atomic_writer.go`), for programs watch `..data`.
use super::{Payload, VolumeError, io_error};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

const DATA: &str = "..data";
const NEW: &str = "..data_tmp";

/// Makes the folder show this and nothing else; true if something changed.
pub fn write(folder: &Path, payload: &Payload, group: Option<i64>) -> Result<bool, VolumeError> {
    let old = fs::read_link(folder.join(DATA)).ok();
    if old.as_ref().is_some_and(|old| shows(&folder.join(old), payload)) {
        return Ok(false);
    }
    let fresh = new_folder(folder)?;
    let group = group.and_then(|group| u32::try_from(group).ok());
    write_files(&folder.join(&fresh), payload, group)?;
    let link = folder.join(NEW);
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("remove", &link)(error));
        }
        _ => {}
    }
    symlink(&fresh, &link).map_err(io_error("make", &link))?;
    fs::rename(&link, folder.join(DATA)).map_err(io_error("replace", &link))?;
    let names: BTreeSet<&str> = payload.keys().filter_map(|path| path.split('/').next()).collect();
    for name in &names {
        let link = folder.join(name);
        if link.symlink_metadata().is_err() {
            symlink(Path::new(DATA).join(name), &link).map_err(io_error("make", &link))?;
        }
    }
    let there = fs::read_dir(folder).map_err(io_error("read", folder))?;
    for entry in there.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !names.contains(name.as_str()) {
            let path = entry.path();
            fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
    }
    if let Some(old) = old {
        let old = folder.join(old);
        fs::remove_dir_all(&old).map_err(io_error("remove", &old))?;
    }
    Ok(true)
}

fn shows(folder: &Path, payload: &Payload) -> bool {
    let same = payload.iter().all(|(path, file)| {
        let path = folder.join(path);
        let found = fs::metadata(&path).is_ok_and(|all| {
            all.permissions().mode() & file.mode == file.mode
                && file.owner.is_none_or(|owner| all.uid() == owner)
        });
        found && fs::read(&path).is_ok_and(|read| read == file.bytes)
    });
    same && count(folder) == payload.len()
}

fn count(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

/// A folder named after the moment, as upstream's are; another if that is taken.
fn new_folder(folder: &Path) -> Result<String, VolumeError> {
    let mut number = jiff::Timestamp::now().as_nanosecond();
    loop {
        let name = format!("..{number}");
        let path = folder.join(&name);
        match fs::create_dir(&path) {
            Ok(()) => {
                let open = fs::Permissions::from_mode(0o755);
                fs::set_permissions(&path, open).map_err(io_error("open up", &path))?;
                return Ok(name);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(io_error("create", &path)(error)),
        }
    }
}

fn write_files(folder: &Path, payload: &Payload, group: Option<u32>) -> Result<(), VolumeError> {
    for (path, file) in payload {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(io_error("create", parent))?;
        }
        fs::write(&path, &file.bytes).map_err(io_error("write", &path))?;
        let mut mode = file.mode;
        if group.is_some() {
            // The group that the pod's processes are in has to be able to read it.
            mode |= 0o440;
        }
        if group.is_some() || file.owner.is_some() {
            chown(&path, file.owner, group).map_err(io_error("give away", &path))?;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .map_err(io_error("open up", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::payload::File;

    fn payload(files: &[(&str, &str)]) -> Payload {
        files.iter().map(|(path, text)| (String::from(*path), File::new(*text, 0o644))).collect()
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
}
