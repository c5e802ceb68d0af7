//! The key pair of a node, for what pods of different nodes say to each other: X25519, as WireGuard has it.
//!
//! The private key is made once, and is in the folder of the network's state in the form that `wg` has, for
//! root alone. It ends with the machine's run, as the sessions do that it is for: no disk, and no copy of
//! one, has it. The public key is an annotation of the node's own Node, where the others read it (`live`).
use crate::PodNetworkError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use x25519_dalek::StaticSecret;

pub use netlink::wireguard::Key as PublicKey;

const FILE: &str = "wireguard-key";

#[derive(Clone)]
pub struct PrivateKey([u8; 32]);

/// What has one may be logged; the key is not.
impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey")
    }
}

impl PrivateKey {
    /// The one in a folder, made if there is none yet.
    pub fn open(folder: &Path) -> Result<PrivateKey, PodNetworkError> {
        let path = folder.join(FILE);
        let failed = |what| {
            let path = path.clone();
            move |source: io::Error| PodNetworkError::File { what, path, source }
        };
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return PrivateKey::create(folder, &path).map_err(failed("write"));
            }
            read => read.map_err(failed("read"))?,
        };
        let key = parse(text.trim()).map(PrivateKey::clamped);
        key.ok_or_else(|| io::Error::from(ErrorKind::InvalidData)).map_err(failed("read"))
    }

    /// Written whole or not at all, and never readable by others.
    fn create(folder: &Path, path: &Path) -> io::Result<PrivateKey> {
        let mut bytes = [0; 32];
        getrandom(&mut bytes[..], GetRandomFlags::empty())?;
        let key = PrivateKey::clamped(bytes);
        fs::create_dir_all(folder)?;
        let draft = path.with_extension("draft");
        let _ = fs::remove_file(&draft);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
        writeln!(file, "{}", text(&key.0))?;
        fs::rename(&draft, path)?;
        Ok(key)
    }

    /// As the kernel keeps it: a key that is told again is to be the same one.
    fn clamped(mut key: [u8; 32]) -> PrivateKey {
        key[0] &= 248;
        key[31] = (key[31] & 127) | 64;
        PrivateKey(key)
    }

    pub fn public(&self) -> PublicKey {
        x25519_dalek::PublicKey::from(&StaticSecret::from(self.0)).to_bytes()
    }

    /// For the kernel.
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A key as `wg` writes it.
pub(crate) fn text(key: &[u8; 32]) -> String {
    STANDARD.encode(key)
}

pub(crate) fn parse(text: &str) -> Option<[u8; 32]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let key = PrivateKey::open(&state).unwrap();
        assert_eq!(PrivateKey::open(&state).unwrap().public(), key.public());
        let file = state.join(FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "nothing else is left");
        assert_ne!(PrivateKey::open(folder.path()).unwrap().public(), key.public());
        let written = fs::read_to_string(&file).unwrap();
        assert!(!format!("{key:?}").contains(written.trim()));
        fs::write(&file, "x").unwrap();
        let refused = PrivateKey::open(&state).unwrap_err().to_string();
        assert!(refused.starts_with("failed to read ") && !refused.contains("\"x\""), "{refused}");
    }

    /// Bytes that count up, and what other implementations make of them.
    #[test]
    fn public_keys_are_those_of_wireguard() {
        let check = |private: &str, public: &str| {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(FILE), private).unwrap();
            let key = PrivateKey::open(folder.path()).unwrap();
            assert_eq!(text(&key.public()), public);
            assert_eq!(parse(public), Some(key.public()));
        };
        let public = "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=";
        check("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n", public);
        check("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHl8=", public);
        for wrong in ["", "AAEC", "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8", "not a key"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
