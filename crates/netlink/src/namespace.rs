//! Doing something in another network namespace.
use crate::NetlinkError;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// Runs a function in the namespace at a path, on a thread that ends with it: a thread that could
/// not go back would carry the wrong namespace on.
pub fn within<T: Send>(path: &Path, run: impl FnOnce() -> T + Send) -> Result<T, NetlinkError> {
    let failed = |source| NetlinkError::Namespace { path: path.display().to_string(), source };
    let file = File::open(path).map_err(failed)?;
    let work = || {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), kind).map(|()| run())
    };
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    match done {
        Ok(done) => done.map_err(|error| failed(error.into())),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs a function in a network namespace that nobody else has, and that is gone with everything in it
/// when the function returns.
pub fn within_new<T: Send>(run: impl FnOnce() -> T + Send) -> Result<T, NetlinkError> {
    let failed = |error: rustix::io::Errno| NetlinkError::Namespace {
        path: "a new one".to_owned(),
        source: error.into(),
    };
    let done = std::thread::scope(|scope| scope.spawn(|| unshare().map(|()| run())).join());
    match done {
        Ok(done) => done.map_err(failed),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Gives the calling thread a network namespace of its own.
#[allow(unsafe_code)]
pub(crate) fn unshare() -> rustix::io::Result<()> {
    // SAFETY: only the network namespace of this one thread changes. File descriptors, memory and
    // signals, which other threads rely on sharing, stay shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
}
