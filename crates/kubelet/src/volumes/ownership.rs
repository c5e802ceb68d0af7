//! Gives a volume's files to the pod's group: `fsGroup` (`pkg/volume/volume_linux.go`).
use super::{VolumeError, io_error};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// What the group may do with files, and with folders besides.
const FILES: u32 = 0o660;
const FOLDERS: u32 = 0o2110;

/// `only_if_needed`: not if the folder itself is the group's already.
pub fn give(folder: &Path, group: i64, only_if_needed: bool) -> Result<(), VolumeError> {
    let group = u32::try_from(group).unwrap_or(u32::MAX);
    let top = fs::metadata(folder).map_err(io_error("read", folder))?;
    let wanted = FILES | FOLDERS;
    if only_if_needed && top.gid() == group && top.mode() & wanted == wanted {
        return Ok(());
    }
    let mut folders = vec![folder.to_owned()];
    let mut at = 0;
    while let Some(folder) = folders.get(at).cloned() {
        at += 1;
        for entry in fs::read_dir(&folder).map_err(io_error("read", &folder))?.flatten() {
            let path = entry.path();
            // A link is given away itself, not what it leads to.
            let file = fs::symlink_metadata(&path).map_err(io_error("read", &path))?;
            if file.is_dir() {
                folders.push(path);
            } else {
                give_one(&path, &file, group)?;
            }
        }
    }
    // The outermost folder is last: what is interrupted begins again.
    for folder in folders.iter().rev() {
        let own = fs::symlink_metadata(folder).map_err(io_error("read", folder))?;
        give_one(folder, &own, group)?;
    }
    Ok(())
}

fn give_one(path: &Path, file: &fs::Metadata, group: u32) -> Result<(), VolumeError> {
    if file.gid() != group {
        std::os::unix::fs::lchown(path, None, Some(group)).map_err(io_error("give away", path))?;
    }
    if file.is_symlink() {
        return Ok(());
    }
    let wanted = if file.is_dir() { FILES | FOLDERS } else { FILES };
    let mode = file.mode() & 0o7777;
    if mode & wanted != wanted {
        let permissions = fs::Permissions::from_mode(mode | wanted);
        fs::set_permissions(path, permissions).map_err(io_error("open up", path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
