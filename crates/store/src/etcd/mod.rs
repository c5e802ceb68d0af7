//! The etcd engine: the same interface over an etcd v3 cluster.
//!
//! For high availability: consensus is etcd's, there is none of our own. [`client`] finds a member
//! that answers and says which errors leave a write's outcome open; [`watch`] follows a range over
//! broken connections and changes of leader without losing or repeating an event; [`translate`]
//! turns requests into etcd's and back.
//!
//! A write is retried on another member only when the first was certainly never reached: a
//! compare-and-swap that is sent twice would see its own first success as a conflict. Everything
//! else ends as [`Error::Unavailable`], and the caller, who knows what it wanted, reads again.
mod client;
mod translate;
mod watch;

use std::sync::Arc;
use std::time::Duration;

pub use watch::{EtcdWatch, Progress};

use crate::error::{Error, Result};
use crate::model::*;
use crate::proto;
use client::Client;
use translate::Prefix;

#[derive(Clone)]
pub struct EtcdOptions {
    /// Such as `https://10.0.0.1:2379`.
    pub endpoints: Vec<String>,
    /// Put before every key, for several clusters on one etcd.
    pub prefix: String,
    pub tls: Option<EtcdTls>,
    /// How long a request may take, finding a member included.
    pub timeout: Duration,
}

impl EtcdOptions {
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        EtcdOptions {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: String::new(),
            tls: None,
            timeout: Duration::from_secs(10),
        }
    }
}

/// PEM texts: who signs the members' certificates, and who we are.
#[derive(Clone)]
pub struct EtcdTls {
    pub ca: String,
    pub certificate: Option<String>,
    pub key: Option<String>,
}

#[derive(Clone)]
pub struct Etcd {
    client: Client,
    prefix: Prefix,
    answers_progress: bool,
}

impl Etcd {
    /// Connects to the first member that answers.
    pub async fn connect(options: EtcdOptions) -> Result<Self> {
        let client = Client::new(&options)?;
        let status =
            client.read(|m| async move { m.maintenance().status(proto::StatusRequest {}).await });
        let version = status.await?.version;
        let prefix = Prefix(Arc::from(options.prefix.as_bytes()));
        Ok(Etcd { client, prefix, answers_progress: progress_is_reliable(&version) })
    }

    pub fn answers_progress(&self) -> bool {
        self.answers_progress
    }

    pub async fn revision(&self) -> Result<Revision> {
        // Any linearizable read tells it.
        let request = proto::RangeRequest {
            key: self.prefix.add(b"\0"),
            count_only: true,
            ..Default::default()
        };
        let response = self.client.range(request).await?;
        Ok(response.header.unwrap_or_default().revision as u64)
    }

    pub async fn get(&self, key: &[u8]) -> Result<Option<Arc<KeyValue>>> {
        let request = RangeRequest::new(KeyRange::key(key));
        Ok(self.range(request).await?.kvs.pop())
    }

    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse> {
        let wanted = request.revision;
        let response = self.client.range(self.prefix.range_request(&request)).await;
        let response = response.map_err(|error| at_revision(error, wanted))?;
        Ok(self.prefix.range_response(response))
    }

    pub async fn txn(&self, txn: Txn) -> Result<TxnResponse> {
        let bytes = txn.payload_bytes();
        if bytes > MAX_REQUEST_BYTES {
            return Err(Error::TooLarge { bytes });
        }
        let request = self.prefix.txn_request(&txn);
        let response = self
            .client
            .write(|m| {
                let request = request.clone();
                async move { m.kv().txn(request).await }
            })
            .await?;
        self.prefix.txn_response(&txn, response)
    }

    pub async fn watch(&self, range: KeyRange, from: Revision) -> Result<EtcdWatch> {
        // A watch that begins "now" must know when that was, should its first stream break.
        let from = if from == 0 { self.revision().await? + 1 } else { from };
        Ok(EtcdWatch::start(self.client.clone(), self.prefix.clone(), range, from))
    }

    pub async fn compact(&self, revision: Revision) -> Result<()> {
        let request = proto::CompactionRequest { revision: revision as i64, physical: false };
        let compacted = self.client.write(|m| async move { m.kv().compact(request).await }).await;
        compacted.map(drop).map_err(|error| at_revision(error, revision))
    }

    pub async fn grant(&self, ttl: u64) -> Result<LeaseId> {
        let request = proto::LeaseGrantRequest { ttl: ttl as i64, id: 0 };
        Ok(self.client.write(|m| async move { m.lease().lease_grant(request).await }).await?.id)
    }

    pub async fn keep_alive(&self, lease: LeaseId) -> Result<u64> {
        let request = proto::LeaseKeepAliveRequest { id: lease };
        let once = |m: client::Member| async move {
            let requests = tokio_stream::once(request);
            let mut answers = m.lease().lease_keep_alive(requests).await?.into_inner();
            let answer = answers.message().await?;
            answer.map(tonic::Response::new).ok_or_else(|| tonic::Status::unavailable("no answer"))
        };
        match self.client.read(once).await?.ttl {
            1.. => self.granted_ttl(lease).await,
            _ => Err(Error::LeaseNotFound(lease)),
        }
    }

    async fn granted_ttl(&self, lease: LeaseId) -> Result<u64> {
        let request = proto::LeaseTimeToLiveRequest { id: lease, keys: false };
        let status = |m: client::Member| async move { m.lease().lease_time_to_live(request).await };
        Ok(self.client.read(status).await?.granted_ttl.max(0) as u64)
    }

    pub async fn revoke(&self, lease: LeaseId) -> Result<()> {
        let request = proto::LeaseRevokeRequest { id: lease };
        let revoked =
            self.client.write(|m| async move { m.lease().lease_revoke(request).await }).await;
        revoked.map(drop).map_err(|error| match error {
            Error::LeaseNotFound(_) => Error::LeaseNotFound(lease),
            error => error,
        })
    }
}

/// etcd's messages do not repeat the revision that was asked for.
fn at_revision(error: Error, requested: Revision) -> Error {
    match error {
        Error::Compacted { compacted, .. } => Error::Compacted { requested, compacted },
        Error::FutureRevision { current, .. } => Error::FutureRevision { requested, current },
        error => error,
    }
}

/// Before these releases a member could answer a request for progress with a revision whose
/// events it had not yet sent; Kubernetes asks for the same ones.
fn progress_is_reliable(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0u32);
    match (next(), next(), next()) {
        (3, 4, patch) => patch >= 31,
        (3, 5, patch) => patch >= 13,
        (major, minor, _) => (major, minor) > (3, 5),
    }
}

#[cfg(test)]
mod tests {
    use super::progress_is_reliable;

    #[test]
    fn old_releases_are_not_believed() {
        for (version, believed) in [
            ("3.4.23", false),
            ("3.4.31", true),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.6.0-rc.1", true),
            ("3.3.27", false),
            ("4.0.0", true),
            ("", false),
        ] {
            assert_eq!(progress_is_reliable(version), believed, "{version}");
        }
    }
}
