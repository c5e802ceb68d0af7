//! A backup of a store that another process has open: asked for at its face.
use crate::proto::SnapshotRequest;
use crate::proto::maintenance_client::MaintenanceClient;
use sha2::{Digest, Sha256};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tonic::transport::Endpoint;

#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    #[error("nobody answers at {url}")]
    Connect { url: String, source: tonic::transport::Error },
    #[error("{url}: {}", .status.message())]
    Refused { url: String, status: Box<tonic::Status> },
    #[error("failed to write {path}")]
    Write { path: String, source: io::Error },
    #[error("the backup did not arrive whole: try again")]
    Cut,
}

/// What follows a snapshot in etcd's wrapping.
const DIGEST: usize = 32;

/// Writes the backup of the store that has its face at this address (`unix:///run/…`) to a file that only
/// its owner reads. What arrives is checked; of what does not arrive whole nothing is kept.
pub async fn save(url: &str, file: &Path) -> Result<(), SaveError> {
    let saved = fetch(url, file).await;
    if saved.is_err() {
        let _ = std::fs::remove_file(file);
    }
    saved
}

async fn fetch(url: &str, file: &Path) -> Result<(), SaveError> {
    let connect = |source| SaveError::Connect { url: url.to_owned(), source };
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(connect)?;
    let channel = endpoint.connect().await.map_err(connect)?;
    let refused = |status| SaveError::Refused { url: url.to_owned(), status: Box::new(status) };
    let asked = MaintenanceClient::new(channel).snapshot(SnapshotRequest {}).await;
    let mut blobs = asked.map_err(refused)?.into_inner();
    let failed = |source| SaveError::Write { path: file.display().to_string(), source };
    let mut options = OpenOptions::new();
    let mut out =
        options.write(true).create(true).truncate(true).mode(0o600).open(file).map_err(failed)?;
    // The last bytes are the digest of all others: they are held back until there are more.
    let (mut digest, mut tail) = (Sha256::new(), Vec::new());
    while let Some(blob) = blobs.message().await.map_err(refused)? {
        tail.extend_from_slice(&blob.blob);
        let body = tail.len().saturating_sub(DIGEST);
        let body: Vec<u8> = tail.drain(..body).collect();
        digest.update(&body);
        out.write_all(&body).map_err(failed)?;
    }
    if tail != digest.finalize()[..] {
        return Err(SaveError::Cut);
    }
    out.sync_all().map_err(failed)
}
