//! Content digests. Only SHA-256 is spoken: it is what every registry serves.
use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a digest of the form sha256:…")]
pub struct InvalidDigest(String);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Digest(Sha256::digest(bytes).into())
    }

    /// The digest's hexadecimal part: its file name.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The name of a stack of layers: `below` with the layer `self` on top.
    pub fn chained(&self, below: Option<&Digest>) -> Digest {
        match below {
            None => *self,
            Some(below) => Digest::of(format!("{below} {self}").as_bytes()),
        }
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let invalid = || InvalidDigest(text.to_owned());
        let hex = text.strip_prefix("sha256:").ok_or_else(invalid)?;
        let nibble = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if hex.len() != 64 {
            return Err(invalid());
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let high = nibble(pair[0]).ok_or_else(invalid)?;
            *byte = high << 4 | nibble(pair[1]).ok_or_else(invalid)?;
        }
        Ok(Digest(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

/// Digests and counts what passes through, read or written.
pub struct Hashing<T> {
    inner: T,
    hash: Sha256,
    length: u64,
}

impl<T> Hashing<T> {
    pub fn new(inner: T) -> Self {
        Hashing { inner, hash: Sha256::new(), length: 0 }
    }

    pub fn finish(self) -> (T, Digest, u64) {
        (self.inner, Digest(self.hash.finalize().into()), self.length)
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.length += read as u64;
        Ok(read)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
