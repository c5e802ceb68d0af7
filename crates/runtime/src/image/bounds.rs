//! How much of an image is believed. Every number in it is a stranger's: an archive of a few megabytes
//! can state terabytes, and say them, in records that a reader keeps in memory or in files.
use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// Longest manifest, index or configuration.
pub const DOCUMENT: u64 = 4 << 20;
/// Most bytes of an archive between one entry and the next: long names, attributes. Go's reader, which
/// upstream's runtimes use, has the same limit for one of them.
const EXTENSIONS: u64 = 1 << 20;
/// Longest path in an archive; the kernel takes no longer one.
pub const PATH: usize = 4096;
/// How many folders deep an entry may lie, by its name or by links: what is done for one takes longer
/// the deeper it is, and nobody's files are.
pub const DEPTH: usize = 256;
/// Most entries of one layer.
pub const ENTRIES: u64 = 2_000_000;

/// Most bytes that a layer of `compressed` bytes may unpack to. Gzip cannot do more than a thousand to
/// one; others can, and those who need that are few.
pub fn unpacked(compressed: u64) -> u64 {
    const RATIO: u64 = 2000;
    const ALWAYS: u64 = 1 << 30;
    compressed.saturating_mul(RATIO).saturating_add(ALWAYS)
}

/// An archive that is read only as far as it is believed.
pub struct Archive<R> {
    inner: R,
    left: u64,
    between: Between,
}

/// What may still be read before the next entry; none while in one.
#[derive(Clone, Default)]
pub struct Between(Rc<Cell<Option<u64>>>);

impl Between {
    /// Until it is dropped, what is read is about the next entry.
    pub fn entries(&self) -> impl Drop + use<> {
        struct Reading(Between);
        impl Drop for Reading {
            fn drop(&mut self) {
                self.0.0.set(None);
            }
        }
        self.0.set(Some(EXTENSIONS));
        Reading(self.clone())
    }
}

impl<R> Archive<R> {
    pub fn new(inner: R, limit: u64) -> (Self, Between) {
        let between = Between::default();
        (Archive { inner, left: limit, between: between.clone() }, between)
    }
}

impl<R: Read> Read for Archive<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let length = read as u64;
        self.left = self.left.checked_sub(length).ok_or_else(too_much)?;
        if let Some(left) = self.between.0.get() {
            // Blocks of zeroes after an archive are read one at a time, and not kept.
            let padding = buffer.len() <= 512 && buffer[..read].iter().all(|byte| *byte == 0);
            let taken = if padding { 0 } else { length };
            let left = left.checked_sub(taken).ok_or_else(|| {
                let text = format!("names and attributes of one entry are over {EXTENSIONS} bytes");
                io::Error::new(io::ErrorKind::InvalidData, text)
            })?;
            self.between.0.set(Some(left));
        }
        Ok(read)
    }
}

pub fn too_much() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it unpacks to more than its size allows")
}
