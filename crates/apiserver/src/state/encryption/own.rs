//! The configuration that a cluster makes for itself: Secrets are encrypted with a key of its own.
use super::Error;
use super::ciphers::random;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file with the key, made if it is not there. Whoever loses it has lost the Secrets, so it is
/// on disk before anything is written with it.
///
/// Secretbox has nonces long enough to be random for ever; plain values of an older cluster are
/// still read.
pub fn own_configuration(folder: &Path) -> Result<PathBuf, Error> {
    let file = folder.join("encryption-config.yaml");
    if file.exists() {
        return Ok(file);
    }
    let key = STANDARD.encode(random::<32>().map_err(Error::Invalid)?);
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox:
      keys:
      - name: key1
        secret: {key}
  - identity: {{}}
"
    );
    let write = || {
        fs::create_dir_all(folder)?;
        let unfinished = file.with_extension("new");
        let mut out = OpenOptions::new();
        let mut out = out.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        fs::rename(&unfinished, &file)?;
        File::open(folder)?.sync_all()
    };
    match write() {
        Ok(()) => Ok(file),
        Err(source) => Err(Error::Write { file, source }),
    }
}
