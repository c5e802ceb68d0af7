//! A log file that may grow and be rotated while it is read.
//!
//! The kernel tells of changes in the log's folder: of what is written, of the next file after a
//! rotation, and that the last writer has closed it, which is when its container is asked about.
use super::line::Writer;
use super::options::Options;
use crate::runtime::{Runtime, cri};
use bytes::Bytes;
use rustix::fd::OwnedFd;
use rustix::fs::inotify;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// How often a container is asked about whose log is silent.
const LOOK: Duration = Duration::from_secs(5);
/// How often, and how many times, one is asked about whose log was closed: the runtime closes it a
/// moment before it says that the container has ended, and also to begin another file.
const CLOSED_LOOK: Duration = Duration::from_millis(50);
const CLOSED_LOOKS: u32 = 40;
/// What is read at once.
const PIECE: usize = 64 << 10;
/// The runtime cuts lines long before this; what is longer is of no runtime.
const LONGEST: usize = 1 << 20;

pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    pub fn open(path: &Path) -> io::Result<Log> {
        Ok(Log { path: path.to_owned(), file: File::open(path)? })
    }

    /// Sends what is wanted until the end; while its container runs, if it is followed.
    pub async fn send(
        mut self,
        runtime: &dyn Runtime,
        container: &str,
        options: Options,
        to: mpsc::Sender<Bytes>,
    ) -> io::Result<()> {
        let changes = match options.follow {
            true => Some(Changes::of(self.path.parent().unwrap_or(Path::new("/")))?),
            false => None,
        };
        if let Some(tail) = options.tail {
            let start = tail_start(&mut self.file, tail)?;
            self.file.seek(SeekFrom::Start(start))?;
        }
        let mut writer = Writer::new(options);
        let mut rest = Vec::new();
        let (mut is_over, mut closed_looks) = (false, 0u32);
        loop {
            if !self.read_on(&mut writer, &mut rest, &to).await? {
                return Ok(());
            }
            let Some(changes) = &changes else { return Ok(()) };
            if let Some(next) = self.next()? {
                // Nobody writes to the old one once there is a new one: read it to its end.
                self.read_on(&mut writer, &mut rest, &to).await?;
                self.file = next;
                rest.clear();
                continue;
            }
            if is_over {
                return Ok(());
            }
            let limit = if closed_looks > 0 { CLOSED_LOOK } else { LOOK };
            let change = changes.wait(limit).await?;
            closed_looks = match change {
                Change::Closed => CLOSED_LOOKS,
                _ => closed_looks.saturating_sub(1),
            };
            is_over = change != Change::Written && !is_running(runtime, container).await;
        }
    }

    /// Reads to the present end. False: nothing more is wanted.
    async fn read_on(
        &mut self,
        writer: &mut Writer,
        rest: &mut Vec<u8>,
        to: &mpsc::Sender<Bytes>,
    ) -> io::Result<bool> {
        let mut piece = vec![0; PIECE];
        loop {
            let length = self.file.read(&mut piece)?;
            if length == 0 {
                return Ok(!writer.is_full());
            }
            let mut out = Vec::with_capacity(length);
            for line in piece[..length].split_inclusive(|byte| *byte == b'\n') {
                match (line.ends_with(b"\n"), rest.is_empty()) {
                    (true, true) => writer.write(line, &mut out),
                    (true, false) => {
                        rest.extend(line);
                        writer.write(rest, &mut out);
                        rest.clear();
                    }
                    (false, _) if rest.len() > LONGEST => rest.clear(),
                    (false, _) => rest.extend(line),
                }
                if writer.is_full() {
                    break;
                }
            }
            if !out.is_empty() && to.send(Bytes::from(out)).await.is_err() {
                return Ok(false);
            }
            if writer.is_full() {
                return Ok(false);
            }
        }
    }

    /// The file that has taken this one's place.
    fn next(&self) -> io::Result<Option<File>> {
        // Between being renamed and made again there is none.
        let Ok(file) = File::open(&self.path) else { return Ok(None) };
        let (old, new) = (self.file.metadata()?, file.metadata()?);
        Ok(((old.dev(), old.ino()) != (new.dev(), new.ino())).then_some(file))
    }
}

/// Where the last so many lines begin.
fn tail_start(file: &mut (impl Read + Seek), lines: u64) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(end);
    }
    let mut found = 0;
    let mut piece = vec![0; PIECE];
    let mut at_end = true;
    while end > 0 {
        let start = end.saturating_sub(PIECE as u64);
        let length = usize::try_from(end - start).unwrap_or(PIECE);
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut piece[..length])?;
        for (i, byte) in piece[..length].iter().enumerate().rev() {
            // The end of the last line begins none.
            let is_last = std::mem::take(&mut at_end);
            if *byte == b'\n' && !is_last {
                found += 1;
                if found == lines {
                    return Ok(start + i as u64 + 1);
                }
            }
        }
        end = start;
    }
    Ok(0)
}

async fn is_running(runtime: &dyn Runtime, container: &str) -> bool {
    let request = cri::ContainerStatusRequest {
        container_id: container.to_owned(),
        ..cri::ContainerStatusRequest::default()
    };
    match runtime.container_status(request).await {
        Ok(answer) => answer
            .status
            .is_some_and(|status| status.state() == cri::ContainerState::ContainerRunning),
        Err(_) => false,
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Written,
    Closed,
    /// Nothing for as long as was waited.
    Nothing,
}

/// Changes in a folder.
struct Changes(AsyncFd<OwnedFd>);

impl Changes {
    fn of(folder: &Path) -> io::Result<Changes> {
        use inotify::{CreateFlags, WatchFlags};
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let wanted = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE_SELF;
        inotify::add_watch(&fd, folder, wanted)?;
        #[expect(
            deprecated,
            reason = "an `OwnedFd` always has the same descriptor and keeps it open"
        )]
        Ok(Changes(AsyncFd::new(fd)?))
    }

    async fn wait(&self, limit: Duration) -> io::Result<Change> {
        let Ok(ready) = tokio::time::timeout(limit, self.0.readable()).await else {
            return Ok(Change::Nothing);
        };
        let mut ready = ready?;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.0.get_ref(), &mut buffer);
        let mut was_closed = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    use inotify::ReadFlags;
                    let ends = ReadFlags::CLOSE_WRITE | ReadFlags::DELETE_SELF | ReadFlags::IGNORED;
                    was_closed |= event.events().intersects(ends);
                }
                Err(rustix::io::Errno::AGAIN) => {
                    ready.clear_ready();
                    return Ok(if was_closed { Change::Closed } else { Change::Written });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
