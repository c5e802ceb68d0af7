//! The few things the engine asks of a disk, behind a trait, so that tests can hand it a disk
//! that writes short, fails to sync, fills up or loses power.
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A directory of flat files.
pub trait Disk: Send + Sync + 'static {
    fn list(&self) -> io::Result<Vec<String>>;
    /// A new file of zeros whose space is taken already, and whose name survives a power cut.
    fn create(&self, name: &str, size: u64) -> io::Result<Box<dyn DiskFile>>;
    /// Reads a whole file in place of what the buffer held.
    fn read(&self, name: &str, into: &mut Vec<u8>) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Cuts a file that is no longer written to the bytes that matter.
    fn truncate(&self, name: &str, size: u64) -> io::Result<()>;
    /// Changes whenever what was not synced may have been lost.
    fn boot_id(&self) -> u128;
}

pub trait DiskFile: Send {
    /// May write less than asked, as `pwrite` may.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Returns when everything written is durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A directory of the real file system, held exclusively.
pub struct Directory {
    path: PathBuf,
    /// Whether what is written is to survive a power cut.
    is_durable: bool,
    /// Unlocked by the kernel when the process ends, however it ends.
    _lock: File,
}

const LOCK: &str = "LOCK";

impl Directory {
    pub fn open(path: &Path) -> io::Result<Self> {
        make_directory(path)?;
        let lock = private().truncate(false).open(path.join(LOCK))?;
        lock.try_lock().map_err(|e| {
            let e: io::Error = e.into();
            io::Error::new(
                e.kind(),
                format!("{} is in use by another process: {e}", path.display()),
            )
        })?;
        Ok(Directory { path: path.to_owned(), is_durable: true, _lock: lock })
    }

    /// The same for what nobody will miss after a power cut; the end of the process loses nothing.
    pub fn forgetful(self) -> Self {
        Directory { is_durable: false, ..self }
    }
}

impl Disk for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            if let Ok(name) = entry?.file_name().into_string()
                && name != LOCK
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Box<dyn DiskFile>> {
        let path = self.path.join(name);
        let file = private().truncate(true).open(&path)?;
        if !self.is_durable {
            return Ok(Box::new(Unsynced(file)));
        }
        let allocated = allocate(&file, size).and_then(|()| file.sync_all());
        if let Err(e) = allocated.and_then(|()| sync_name(&path)) {
            // A half allocated file would only hold the space that is missing.
            let _ = fs::remove_file(&path);
            return Err(e);
        }
        Ok(Box::new(file))
    }

    fn read(&self, name: &str, into: &mut Vec<u8>) -> io::Result<()> {
        into.clear();
        File::open(self.path.join(name))?.read_to_end(into).map(drop)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn truncate(&self, name: &str, size: u64) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.path.join(name))?.set_len(size)
    }

    fn boot_id(&self) -> u128 {
        // Zero is never taken for the same boot: every start after a crash then counts as one
        // after a power cut, the safe answer.
        fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .ok()
            .and_then(|id| u128::from_str_radix(&id.trim().replace('-', ""), 16).ok())
            .unwrap_or(0)
    }
}

/// Makes a directory and those above it, so that a power cut leaves them.
fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    make_directory(parent(path))?;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        // Another process was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    sync_name(path)
}

/// Returns when the name of a file or directory is durable: what it was made or renamed to.
pub(super) fn sync_name(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// Opens a file for writing, made if need be. Values may be secrets: only their owner reads them.
pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).write(true).mode(0o600);
    options
}

/// Takes the space now, so that a full disk shows here and not in the middle of a write.
fn allocate(file: &File, size: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    match fallocate(file, FallocateFlags::empty(), 0, size) {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let zeros = vec![0; 1 << 20];
            let mut offset = 0;
            while offset < size {
                let n = (size - offset).min(zeros.len() as u64);
                file.write_all_at(&zeros[..n as usize], offset)?;
                offset += n;
            }
            Ok(())
        }
        other => Ok(other?),
    }
}

/// A file whose bytes reach the disk when the kernel sees fit.
struct Unsynced(File);

impl DiskFile for Unsynced {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(&self.0, bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for File {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
