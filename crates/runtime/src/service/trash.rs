//! Folders that nobody needs any more.
//!
//! One is renamed into `root/trash`: at that moment it is gone for everybody, whole, also after a
//! crash, for the next daemon empties the trash. The removal itself is left to one thread. It waits
//! for the disk, with the folder above locked, so that many at once, or one in the folder where
//! containers are made, would hold up those who come next.
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crate::files::{Others, own_folder};

pub struct Trash {
    folder: PathBuf,
    queue: SyncSender<PathBuf>,
}

/// How many may wait to be removed; whoever has one more removes it, so that a thread that cannot
/// keep up does not fill the disk.
const WAITING: usize = 1024;
/// Those who start something go first.
const NICE: i32 = 10;

impl Trash {
    /// Opens it, and removes what an earlier daemon has left there.
    pub fn open(root: &Path) -> io::Result<Self> {
        let folder = root.join("trash");
        own_folder(&folder, Others::Nobody)?;
        let left: Vec<PathBuf> = fs::read_dir(&folder)?.flatten().map(|e| e.path()).collect();
        let (queue, waiting) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("trash".to_owned());
        thread.spawn(move || empty(left, waiting))?;
        Ok(Trash { folder, queue })
    }

    /// Throws a folder away; it is gone on return. One that is not there is gone already.
    pub fn put(&self, folder: &Path) -> io::Result<()> {
        let name = folder.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
        // Another of that name may still be there.
        let mut name = name.to_owned();
        name.push(format!(".{:016x}", fastrand::u64(..)));
        let path = self.folder.join(name);
        match fs::rename(folder, &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result?,
        }
        if let Err(full) = self.queue.try_send(path) {
            let (TrySendError::Full(path) | TrySendError::Disconnected(path)) = full;
            remove(&path);
        }
        Ok(())
    }
}

/// Ends with the daemon's last handle.
fn empty(left: Vec<PathBuf>, waiting: Receiver<PathBuf>) {
    // On Linux that is the thread's own.
    let _ = rustix::process::nice(NICE);
    for path in left.into_iter().chain(waiting) {
        remove(&path);
    }
}

fn remove(path: &Path) {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let removed = if is_folder { crate::files::remove_folder(path) } else { fs::remove_file(path) };
    if let Err(error) = removed {
        tracing::warn!("failed to remove {}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_thrown_away_is_gone_at_once_and_what_was_left_goes_too() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("trash/left/deep")).unwrap();
        fs::create_dir_all(path("things/one/deep")).unwrap();
        let trash = Trash::open(root.path()).unwrap();
        trash.put(&path("things/one")).unwrap();
        assert!(!path("things/one").exists());
        trash.put(&path("things/one")).unwrap();
        // The queue is drained before the thread ends.
        drop(trash);
        while fs::read_dir(path("trash")).unwrap().count() > 0 {
            std::thread::yield_now();
        }
    }
}
