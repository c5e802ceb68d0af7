//! Settings of the calling thread's network namespace.
use crate::PodNetworkError;
use std::path::Path;

/// Writes what is not so yet: where settings cannot be written, those that are right will do.
pub fn set(name: &str, value: &str) -> Result<(), PodNetworkError> {
    let path = Path::new("/proc/sys/net").join(name);
    if std::fs::read_to_string(&path).is_ok_and(|is| is.trim() == value) {
        return Ok(());
    }
    std::fs::write(&path, value).map_err(|source| PodNetworkError::File {
        what: "set",
        path,
        source,
    })
}
