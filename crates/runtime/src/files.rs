//! Small files that are whole or not there.
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
