//! The folders of local volumes, made and removed by pods that have the folder of all of them.
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// What containers see of a volume: open to everybody, for a claim does not say as whom its pods run.
const OPEN: u32 = 0o777;
/// The folder around it: no user of the machine gets there.
const CLOSED: u32 = 0o700;

/// Makes a folder, and the one around it. What is there already stays.
pub fn make(folder: &Path) -> io::Result<()> {
    let around = folder.parent().ok_or_else(|| io::Error::other("it is in no folder"))?;
    directory(around, CLOSED)?;
    directory(folder, OPEN)?;
    // The API is told of it next: it has to be there after a power cut, too.
    for changed in [Some(around), around.parent()].into_iter().flatten() {
        File::open(changed)?.sync_all()?;
    }
    Ok(())
}

fn directory(path: &Path, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(CLOSED).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ if !fs::symlink_metadata(path)?.is_dir() => {
            return Err(io::Error::other("there is something else of that name"));
        }
        _ => {}
    }
    // Whatever the mask is.
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Removes a folder with all that is in it, however deep, and follows no link out of it.
pub fn remove(folder: &Path) -> io::Result<()> {
    crate::files::remove_folder(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_comes_and_goes_as_often_as_it_is_asked_for() {
        let base = tempfile::tempdir().unwrap();
        let volume = base.path().join("pvc-1");
        let data = volume.join("data");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        for _ in 0..2 {
            make(&data).unwrap();
            assert_eq!((mode(&volume), mode(&data)), (CLOSED, OPEN));
            fs::write(data.join("kept"), "").unwrap();
        }
        for _ in 0..2 {
            remove(&volume).unwrap();
            assert!(!volume.exists());
        }
    }

    #[test]
    fn links_lead_nowhere() {
        let base = tempfile::tempdir().unwrap();
        let (volume, other) = (base.path().join("pvc-1"), base.path().join("other"));
        fs::create_dir(&other).unwrap();
        fs::write(other.join("file"), "").unwrap();
        // What is to be a folder is a link to another.
        std::os::unix::fs::symlink(&other, &volume).unwrap();
        assert!(make(&volume.join("data")).is_err());
        assert!(remove(&volume).is_err());
        fs::remove_file(&volume).unwrap();
        make(&volume.join("data")).unwrap();
        std::os::unix::fs::symlink(&other, volume.join("data/link")).unwrap();
        remove(&volume).unwrap();
        assert!(other.join("file").exists());
    }
}
