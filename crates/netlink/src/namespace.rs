//! Doing something in another network namespace.
use crate::NetlinkError;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
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
