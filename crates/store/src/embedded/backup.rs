//! The whole store in one file, taken while it runs.
//!
//! The file is a heading with the format's version, then frames as in the log: one with the
//! revision and the leases, many with keys, one that says how many there were. Every frame is
//! checksummed and numbered, so a file that is cut, damaged or out of order is refused before
//! anything is restored from it.
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Directory, Disk, private, sync_name};
use super::log::{Claim, Facts, Log, Spares};
use super::record::{self, Checkpoint, FRAME_HEADER, Record};
use super::{Embedded, Options, Pin, replay};
use crate::model::{KeyRange, Revision};

const MAGIC: &[u8; 8] = b"SKIFFBAK";
const VERSION: u32 = 1;

/// What frames of a backup carry where the log's carry their segment.
const OWNER: u64 = u64::from_le_bytes(*MAGIC);

/// A frame is closed beyond this.
const FRAME_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupInfo {
    pub revision: Revision,
    pub keys: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("failed to {action} {path}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{path} is not a backup of this program")]
    NotABackup { path: PathBuf },
    #[error("{path} is a backup of format {found}; this program reads format {VERSION}")]
    Version { path: PathBuf, found: u32 },
    #[error("the backup {path} is damaged at byte {offset}: use another one")]
    Damaged { path: PathBuf, offset: usize },
    #[error("{path} already holds data: restore into an empty or new directory")]
    NotEmpty { path: PathBuf },
    #[error("the store is unavailable: {0}")]
    Store(#[from] crate::error::Error),
}

type Result<T> = std::result::Result<T, BackupError>;

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> BackupError + 'a {
    move |source| BackupError::Io { action, path: path.to_owned(), source }
}

impl Embedded {
    /// Writes a backup to a file, which appears under its name only when it is whole. Blocking.
    pub fn backup(&self, path: &Path) -> Result<BackupInfo> {
        whole_file(path, |out| self.write_backup(out))
    }

    /// Writes the backup's bytes, as of the revision it returns.
    pub fn write_backup(&self, out: &mut dyn Write) -> io::Result<BackupInfo> {
        let pin = Pin::new(&self.shared, 0).map_err(io::Error::other)?;
        let leases: Vec<_> = {
            let state = self.shared.state.read();
            state.leases().iter().map(|(id, lease)| (*id, lease.ttl)).collect()
        };
        let mut writer = Writer::begin(out, pin.revision, leases)?;
        let mut range = KeyRange::prefix("");
        loop {
            let chunk: Vec<_> = {
                let state = self.shared.state.read();
                state.live(&range, pin.revision).take(super::CHUNK).cloned().collect()
            };
            let Some(last) = chunk.last() else { break };
            range.start = last.key.next();
            for kv in &chunk {
                writer.put(|frame| record::encode_version(kv, frame))?;
            }
        }
        writer.end(pin.revision)
    }
}

fn whole_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<BackupInfo>,
) -> Result<BackupInfo> {
    let partial = path.with_extension("partial");
    let written = || -> io::Result<BackupInfo> {
        let mut out = BufWriter::new(private().truncate(true).open(&partial)?);
        let info = write(&mut out)?;
        out.into_inner().map_err(|e| e.into_error())?.sync_all()?;
        fs::rename(&partial, path)?;
        sync_name(path)?;
        Ok(info)
    };
    written().map_err(|e| {
        let _ = fs::remove_file(&partial);
        failed("write", path)(e)
    })
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    frame: Vec<u8>,
    frames: u64,
    keys: u64,
}

impl<'a> Writer<'a> {
    fn begin(
        out: &'a mut dyn Write,
        revision: Revision,
        leases: Vec<(i64, u64)>,
    ) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut writer = Writer { out, frame: vec![0; FRAME_HEADER], frames: 0, keys: 0 };
        let checkpoint = Checkpoint { revision, compacted: revision, leases, ..Default::default() };
        record::encode(&Record::Checkpoint(checkpoint), &mut writer.frame);
        writer.flush()?;
        Ok(writer)
    }

    fn put(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        encode(&mut self.frame);
        self.keys += 1;
        if self.frame.len() > FRAME_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.frame.len() > FRAME_HEADER {
            record::seal_frame(&mut self.frame, OWNER, self.frames);
            self.frames += 1;
            self.out.write_all(&self.frame)?;
            self.frame.truncate(FRAME_HEADER);
        }
        Ok(())
    }

    fn end(mut self, revision: Revision) -> io::Result<BackupInfo> {
        self.flush()?;
        record::encode(&Record::End { records: self.keys }, &mut self.frame);
        self.flush()?;
        Ok(BackupInfo { revision, keys: self.keys })
    }
}

/// Makes a data directory from a backup. `bump` is added to the revision, so that clients that
/// have seen more than the backup holds cannot mistake new revisions for those they know.
/// Blocking.
pub fn restore(backup: &Path, directory: &Path, bump: Revision) -> Result<BackupInfo> {
    let mut bytes = Vec::new();
    let mut file = File::open(backup).map_err(failed("open", backup))?;
    file.read_to_end(&mut bytes).map_err(failed("read", backup))?;
    // All of it is read and checked before anything is written.
    let (mut head, payloads) = read(backup, &bytes)?;
    head.revision += bump;
    let occupied = fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some());
    if occupied {
        return Err(BackupError::NotEmpty { path: directory.to_owned() });
    }
    // A restore that is interrupted leaves nothing under the directory's own name.
    let partial = directory.with_extension("restoring");
    let _ = fs::remove_dir_all(&partial);
    let written = write_log(&partial, &head, &payloads);
    let placed = written.and_then(|()| {
        let _ = fs::remove_dir(directory);
        fs::rename(&partial, directory)?;
        sync_name(directory)
    });
    placed.map_err(failed("restore into", directory))?;
    let keys = payloads.iter().filter_map(|p| record::decode(p)).map(|r| r.len() as u64).sum();
    Ok(BackupInfo { revision: head.revision, keys })
}

fn write_log(directory: &Path, head: &Checkpoint, payloads: &[&[u8]]) -> io::Result<()> {
    let disk: Arc<dyn Disk> = Arc::new(Directory::open(directory)?);
    let boot_id = disk.boot_id();
    let spares = Arc::new(Spares::new(disk, Options::default().segment_size, 1));
    let mut log = Log::new(spares, (0, 0), Vec::new(), Vec::new(), boot_id);
    let facts =
        || Facts { revision: head.revision, compacted: head.revision, leases: head.leases.clone() };
    let mut closed = Vec::new();
    record::encode(&Record::Closed, &mut closed);
    for payload in payloads.iter().copied().chain([closed.as_slice()]) {
        log.append(payload, true, Claim::Cleaning, facts)?;
    }
    Ok(())
}

/// The backup's revision and leases, and the payloads that hold its keys.
fn read<'a>(path: &Path, bytes: &'a [u8]) -> Result<(Checkpoint, Vec<&'a [u8]>)> {
    let not_a_backup = || BackupError::NotABackup { path: path.to_owned() };
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(not_a_backup)?;
    let (version, _) = rest.split_first_chunk::<4>().ok_or_else(not_a_backup)?;
    let found = u32::from_le_bytes(*version);
    if found != VERSION {
        return Err(BackupError::Version { path: path.to_owned(), found });
    }
    let mut offset = MAGIC.len() + 4;
    let (mut head, mut payloads, mut keys, mut number) = (None, Vec::new(), 0, 0);
    loop {
        let damaged = || BackupError::Damaged { path: path.to_owned(), offset };
        let frame = bytes.get(offset..).and_then(|rest| record::read_frame(rest, OWNER).ok());
        let payload = match frame {
            Some((payload, n)) if n == number => payload,
            _ => return Err(damaged()),
        };
        let records = record::decode(payload).ok_or_else(damaged)?;
        match (&records[..], &head) {
            ([Record::Checkpoint(checkpoint)], None) => head = Some(checkpoint.clone()),
            ([Record::End { records }], Some(head)) if *records == keys => {
                return Ok((head.clone(), payloads));
            }
            (puts, Some(_)) if puts.iter().all(|r| matches!(r, Record::Put(_))) => {
                keys += puts.len() as u64;
                payloads.push(payload);
            }
            _ => return Err(damaged()),
        }
        offset += FRAME_HEADER + payload.len();
        number += 1;
    }
}

/// Reads what can still be read of a damaged directory into a backup. Blocking.
pub fn salvage(directory: &Path, backup: &Path) -> Result<BackupInfo> {
    let disk = Directory::open(directory).map_err(failed("open", directory))?;
    let salvaged =
        replay::salvage(&disk).map_err(|e| failed("read", directory)(io::Error::other(e)))?;
    whole_file(backup, |out| {
        let mut writer = Writer::begin(out, salvaged.revision, Vec::new())?;
        for mut kv in salvaged.versions {
            // Leases are not salvaged: a key without one is kept rather than lost.
            Arc::make_mut(&mut kv).lease = 0;
            writer.put(|frame| record::encode_version(&kv, frame))?;
        }
        writer.end(salvaged.revision)
    })
}
