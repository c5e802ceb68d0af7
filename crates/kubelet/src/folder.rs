//! A folder whose changes are heard of as they happen.
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use tokio::io::unix::AsyncFd;

/// Hears of files that come, go, or have been written.
pub struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    pub fn new(folder: &Path) -> io::Result<Watched> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let wanted = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CLOSE_WRITE;
        inotify::add_watch(&fd, folder, wanted)?;
        #[expect(
            deprecated,
            reason = "an `OwnedFd` always has the same descriptor and keeps it open"
        )]
        Ok(Watched(AsyncFd::new(fd)?))
    }

    /// Returns once something has changed since the last time.
    pub async fn changed(&self) -> io::Result<()> {
        let mut ready = self.0.readable().await?;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.0.get_ref(), &mut buffer);
        loop {
            match reader.next() {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    ready.clear_ready();
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_that_come_change_and_go_are_heard_of() {
        let folder = tempfile::tempdir().unwrap();
        let watched = Watched::new(folder.path()).unwrap();
        let file = folder.path().join("a");
        for text in ["1", "2"] {
            std::fs::write(&file, text).unwrap();
            watched.changed().await.unwrap();
        }
        std::fs::remove_file(&file).unwrap();
        watched.changed().await.unwrap();
    }
}
