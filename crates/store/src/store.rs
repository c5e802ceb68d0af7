//! [`Store`]: one interface, whichever engine is behind it.
use std::sync::Arc;

use bytes::Bytes;

use crate::embedded::{self, Embedded, EmbeddedWatch};
use crate::error::{Error, Result};
use crate::etcd::{self, Etcd, EtcdWatch};
use crate::model::*;

/// A handle on the store; clones share it.
///
/// Reads are linearizable: they see every write acknowledged before they began.
#[derive(Clone)]
pub enum Store {
    Embedded(Embedded),
    Etcd(Etcd),
}

/// A watch of one range: see [`Store::watch`].
pub enum Watch {
    Embedded(EmbeddedWatch),
    Etcd(EtcdWatch),
}

/// Asks a watch to report how far it is, from another task than the one that reads it.
#[derive(Clone)]
pub enum Progress {
    Embedded(embedded::Progress),
    Etcd(etcd::Progress),
}

impl From<Embedded> for Store {
    fn from(engine: Embedded) -> Self {
        Store::Embedded(engine)
    }
}

impl From<Etcd> for Store {
    fn from(engine: Etcd) -> Self {
        Store::Etcd(engine)
    }
}

impl Store {
    /// The newest revision.
    pub async fn revision(&self) -> Result<Revision> {
        match self {
            Store::Embedded(engine) => Ok(engine.revision()),
            Store::Etcd(engine) => engine.revision().await,
        }
    }

    pub async fn get(&self, key: &[u8]) -> Result<Option<Arc<KeyValue>>> {
        match self {
            Store::Embedded(engine) => Ok(engine.get(key)),
            Store::Etcd(engine) => engine.get(key).await,
        }
    }

    /// Reads a range in key order. To continue a list that was cut short, ask again from
    /// [`RangeResponse::continue_key`] at the first answer's revision.
    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse> {
        match self {
            Store::Embedded(engine) => engine.range(&request),
            Store::Etcd(engine) => engine.range(request).await,
        }
    }

    /// Writes a key that must not exist.
    pub async fn create(
        &self,
        key: impl Into<Key>,
        value: impl Into<Bytes>,
        options: WriteOptions,
    ) -> Result<Outcome> {
        self.update(key, value, 0, options).await
    }

    /// Writes a key whose newest version has this mod revision (zero: that does not exist).
    pub async fn update(
        &self,
        key: impl Into<Key>,
        value: impl Into<Bytes>,
        mod_revision: Revision,
        options: WriteOptions,
    ) -> Result<Outcome> {
        let key = key.into();
        let put = Op::put(&key, value, options.lease);
        self.guarded(key, mod_revision, put, options.durability).await
    }

    /// Deletes a key whose newest version has this mod revision.
    pub async fn delete(&self, key: impl Into<Key>, mod_revision: Revision) -> Result<Outcome> {
        let key = key.into();
        let delete = Op::Delete(KeyRange::key(&key));
        self.guarded(key, mod_revision, delete, Durability::Durable).await
    }

    async fn guarded(
        &self,
        key: Key,
        mod_revision: Revision,
        op: Op,
        durability: Durability,
    ) -> Result<Outcome> {
        let txn = Txn {
            compare: vec![Compare::mod_revision(&key, mod_revision)],
            success: vec![op],
            failure: vec![Op::get(key)],
            durability,
        };
        let mut response = self.txn(txn).await?;
        match response.responses.pop() {
            Some(OpResponse::Put(event)) => Ok(Outcome::Applied(event)),
            Some(OpResponse::Delete(mut events)) => {
                // The guard "does not exist" held: there was nothing to delete.
                Ok(events.pop().map_or(Outcome::Conflict(None), Outcome::Applied))
            }
            Some(OpResponse::Range(mut range)) => Ok(Outcome::Conflict(range.kvs.pop())),
            Some(OpResponse::Txn(_)) | None => {
                Err(Error::Unavailable("the engine gave an answer to another question".into()))
            }
        }
    }

    pub async fn txn(&self, txn: Txn) -> Result<TxnResponse> {
        match self {
            Store::Embedded(engine) => engine.txn(txn).await,
            Store::Etcd(engine) => engine.txn(txn).await,
        }
    }

    /// Watches a range: first what happened from this revision on (zero: nothing), then what
    /// happens. Every event is delivered once, in order.
    pub async fn watch(&self, range: KeyRange, from: Revision) -> Result<Watch> {
        match self {
            Store::Embedded(engine) => engine.watch(range, from).map(Watch::Embedded),
            Store::Etcd(engine) => engine.watch(range, from).await.map(Watch::Etcd),
        }
    }

    /// Gives up history before a revision. Reads at it still work; watches begin after it. The
    /// embedded engine does it by itself as time passes.
    pub async fn compact(&self, revision: Revision) -> Result<()> {
        match self {
            Store::Embedded(engine) => engine.compact(revision).await,
            Store::Etcd(engine) => engine.compact(revision).await,
        }
    }

    /// A lease of so many seconds; keys written with it go when it does.
    pub async fn grant(&self, ttl: u64) -> Result<LeaseId> {
        match self {
            Store::Embedded(engine) => engine.grant(0, ttl).await,
            Store::Etcd(engine) => engine.grant(ttl).await,
        }
    }

    /// Begins the lease's time anew; returns its seconds.
    pub async fn keep_alive(&self, lease: LeaseId) -> Result<u64> {
        match self {
            Store::Embedded(engine) => engine.keep_alive(lease),
            Store::Etcd(engine) => engine.keep_alive(lease).await,
        }
    }

    /// Ends a lease and deletes its keys.
    pub async fn revoke(&self, lease: LeaseId) -> Result<()> {
        match self {
            Store::Embedded(engine) => engine.revoke(lease).await.map(drop),
            Store::Etcd(engine) => engine.revoke(lease).await,
        }
    }

    /// The oldest revision that can be read, where the engine knows it: what a cache begins with
    /// to offer as much history as there is.
    pub fn oldest_revision(&self) -> Option<Revision> {
        match self {
            Store::Embedded(engine) => Some(engine.stats().compacted),
            Store::Etcd(_) => None,
        }
    }

    /// Whether a watch can be asked how far it is ([`Watch::progress`]) and be believed.
    pub fn answers_progress(&self) -> bool {
        match self {
            Store::Embedded(_) => true,
            Store::Etcd(engine) => engine.answers_progress(),
        }
    }
}

impl Watch {
    /// The next events, or the answer to a request for progress: a batch without events.
    ///
    /// Cancel safe: an event is lost only with the batch that was returned. After an error the
    /// watch is over.
    pub async fn next(&mut self) -> Result<WatchBatch> {
        match self {
            Watch::Embedded(watch) => watch.next().await,
            Watch::Etcd(watch) => watch.next().await,
        }
    }

    pub fn progress(&self) -> Progress {
        match self {
            Watch::Embedded(watch) => Progress::Embedded(watch.progress()),
            Watch::Etcd(watch) => Progress::Etcd(watch.progress()),
        }
    }
}

impl Progress {
    pub fn request(&self) {
        match self {
            Progress::Embedded(progress) => progress.request(),
            Progress::Etcd(progress) => progress.request(),
        }
    }
}
