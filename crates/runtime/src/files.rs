//! Small files that are whole or not there, and where folders lie on the disk.
//!
//! Those about images are also on disk before they are seen: an image outlives the machine's power.
//! Those about containers need not be, for after a power cut there are no containers.
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes beside the target, then renames: a reader, or a crash, sees the old or the new.
pub fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, bytes, File::sync_data)
}

/// The same, as far as this process's own crash goes.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, bytes, |_| Ok(()))
}

fn write(path: &Path, bytes: &[u8], sync: fn(&File) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:08x}", fastrand::u32(..)));
    let beside = Path::new(&name);
    let written = File::create(beside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| sync(&file)))
        .and_then(|()| fs::rename(beside, path));
    if written.is_err() {
        let _ = fs::remove_file(beside);
    }
    written
}

/// Says that the folders in this one have nothing to do with each other. An ext4 then puts each
/// into another group of inodes; otherwise all are in their parent's. There one without a journal
/// looks, for every file it makes, at all that were deleted there in the last minutes, and where
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
