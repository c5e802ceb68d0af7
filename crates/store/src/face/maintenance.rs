//! etcd's Maintenance and Cluster services, as far as they mean something for one member.
use std::io::{self, Write};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{MEMBER_ID, Member as Face, VERSION};
use crate::proto::cluster_server::Cluster;
use crate::proto::maintenance_server::Maintenance;
use crate::proto::*;

/// Bytes of a snapshot in one message.
const BLOB: usize = 64 << 10;

#[tonic::async_trait]
impl Cluster for Face {
    async fn member_list(
        &self,
        _: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        let member = Member {
            id: MEMBER_ID,
            name: "skiff".into(),
            peer_ur_ls: Vec::new(),
            client_ur_ls: vec![self.url.to_string()],
            is_learner: false,
        };
        Ok(Response::new(MemberListResponse { header: self.header(), members: vec![member] }))
    }
}

#[tonic::async_trait]
impl Maintenance for Face {
    /// There are no alarms: a full disk refuses writes by itself and recovers by itself.
    async fn alarm(&self, _: Request<AlarmRequest>) -> Result<Response<AlarmResponse>, Status> {
        Ok(Response::new(AlarmResponse { header: self.header(), alarms: Vec::new() }))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let stats = self.engine.stats();
        Ok(Response::new(StatusResponse {
            header: self.header(),
            version: VERSION.into(),
            db_size: stats.live_bytes as i64,
            db_size_in_use: stats.live_bytes as i64,
            leader: MEMBER_ID,
            raft_index: stats.revision,
            raft_applied_index: stats.revision,
            raft_term: 1,
            errors: if stats.disk_full { vec!["NOSPACE".into()] } else { Vec::new() },
            is_learner: false,
        }))
    }

    /// Space is given back all the time: there is nothing to do.
    async fn defragment(
        &self,
        _: Request<DefragmentRequest>,
    ) -> Result<Response<DefragmentResponse>, Status> {
        Ok(Response::new(DefragmentResponse { header: self.header() }))
    }

    type SnapshotStream = ReceiverStream<Result<SnapshotResponse, Status>>;

    /// Our own backup (for `skiff restore`), in etcd's wrapping: filled up to whole sectors and
    /// followed by its SHA-256, which is what `etcdctl snapshot save` looks for.
    async fn snapshot(
        &self,
        _: Request<SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        let (sender, receiver) = mpsc::channel(4);
        let face = self.clone();
        tokio::task::spawn_blocking(move || {
            let mut blobs =
                Blobs { face, sender, digest: Sha256::new(), blob: Vec::new(), bytes: 0 };
            let engine = blobs.face.engine.clone();
            let sent = engine.write_backup(&mut blobs).and_then(|_| blobs.finish());
            if let Err(error) = sent {
                // The client is gone, or hears why it has no snapshot.
                let _ = blobs.sender.blocking_send(Err(Status::internal(error.to_string())));
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Cuts a stream of bytes into messages.
struct Blobs {
    face: Face,
    sender: mpsc::Sender<Result<SnapshotResponse, Status>>,
    digest: Sha256,
    blob: Vec<u8>,
    bytes: usize,
}

impl Blobs {
    fn send(&mut self, blob: Vec<u8>, remaining_bytes: u64) -> io::Result<()> {
        let blob = Bytes::from(blob);
        let response = SnapshotResponse { header: self.face.header(), remaining_bytes, blob };
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.sender.blocking_send(Ok(response)).map_err(gone)
    }

    fn finish(&mut self) -> io::Result<()> {
        let filling = self.bytes.next_multiple_of(512) - self.bytes;
        self.write_all(&vec![0; filling])?;
        let mut last = std::mem::take(&mut self.blob);
        last.extend_from_slice(&std::mem::take(&mut self.digest).finalize());
        self.send(last, 0)
    }
}

impl Write for Blobs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.digest.update(bytes);
        self.bytes += bytes.len();
        self.blob.extend_from_slice(bytes);
        if self.blob.len() >= BLOB {
            let blob = std::mem::take(&mut self.blob);
            // How much is to come is not known before it has been read; only zero is promised.
            self.send(blob, 1)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
