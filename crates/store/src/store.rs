//! [`Store`]: one interface, whichever engine is behind it.
use std::sync::Arc;

use bytes::Bytes;

use crate::embedded::{self, Embedded, EmbeddedWatch};
use crate::error::{Error, Result};
use crate::etcd::{self, Etcd, EtcdWatch};
use crate::model::*;
use crate::transform::{Transform, Transformer};

/// A handle on the store; clones share it.
///
/// Reads are linearizable: they see every write acknowledged before they began.
#[derive(Clone)]
pub struct Store {
    engine: Engine,
    transform: Transform,
}

#[derive(Clone)]
enum Engine {
    Embedded(Embedded),
    Etcd(Etcd),
}

/// A watch of one range: see [`Store::watch`].
pub struct Watch {
    engine: EngineWatch,
    transform: Transform,
    /// What the engine handed over, and how many of its events are opened.
    pending: Option<(WatchBatch, usize)>,
}

enum EngineWatch {
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
        Store { engine: Engine::Embedded(engine), transform: Transform::default() }
    }
}

impl From<Etcd> for Store {
    fn from(engine: Etcd) -> Self {
        Store { engine: Engine::Etcd(engine), transform: Transform::default() }
    }
}

impl Store {
    /// The same store with values transformed on their way in and out.
    pub fn with_transformer(self, transformer: Arc<dyn Transformer>) -> Store {
        Store { transform: Transform(Some(transformer)), ..self }
    }

    /// The same store with values as the engine has them: for what cannot be read otherwise.
    pub fn untransformed(&self) -> Store {
        Store { engine: self.engine.clone(), transform: Transform::default() }
    }

    /// Whether a key's newest version would be kept differently if it were written now.
    pub async fn is_stale(&self, key: &[u8]) -> Result<bool> {
        if self.transform.0.is_none() {
            return Ok(false);
        }
        Ok(match self.raw(key).await? {
            Some(kv) => self.transform.is_stale(&kv).await,
            None => false,
        })
    }

    async fn raw(&self, key: &[u8]) -> Result<Option<Arc<KeyValue>>> {
        match &self.engine {
            Engine::Embedded(engine) => Ok(engine.get(key)),
            Engine::Etcd(engine) => engine.get(key).await,
        }
    }

    /// The newest revision.
    pub async fn revision(&self) -> Result<Revision> {
        match &self.engine {
            Engine::Embedded(engine) => Ok(engine.revision()),
            Engine::Etcd(engine) => engine.revision().await,
        }
    }

    pub async fn get(&self, key: &[u8]) -> Result<Option<Arc<KeyValue>>> {
        let mut found = self.raw(key).await?;
        if let Some(kv) = &mut found {
            self.transform.open(kv).await.map_err(Error::Untransformable)?;
        }
        Ok(found)
    }

    /// Reads a range in key order. To continue a list that was cut short, ask again from
    /// [`RangeResponse::continue_key`] at the first answer's revision.
    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse> {
        let mut found = match &self.engine {
            Engine::Embedded(engine) => engine.range(&request)?,
            Engine::Etcd(engine) => engine.range(request).await?,
        };
        self.transform.open_range(&mut found).await?;
        Ok(found)
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

    pub async fn txn(&self, mut txn: Txn) -> Result<TxnResponse> {
        self.transform.seal(&mut txn)?;
        let mut response = match &self.engine {
            Engine::Embedded(engine) => engine.txn(txn).await?,
            Engine::Etcd(engine) => engine.txn(txn).await?,
        };
        self.transform.open_all(&mut response).await?;
        Ok(response)
    }

    /// Watches a range: first what happened from this revision on (zero: nothing), then what
    /// happens. Every event is delivered once, in order.
    pub async fn watch(&self, range: KeyRange, from: Revision) -> Result<Watch> {
        let engine = match &self.engine {
            Engine::Embedded(engine) => EngineWatch::Embedded(engine.watch(range, from)?),
            Engine::Etcd(engine) => EngineWatch::Etcd(engine.watch(range, from).await?),
        };
        Ok(Watch { engine, transform: self.transform.clone(), pending: None })
    }

    /// Gives up history before a revision. Reads at it still work; watches begin after it. The
    /// embedded engine does it by itself as time passes.
    pub async fn compact(&self, revision: Revision) -> Result<()> {
        match &self.engine {
            Engine::Embedded(engine) => engine.compact(revision).await,
            Engine::Etcd(engine) => engine.compact(revision).await,
        }
    }

    /// A lease of so many seconds; keys written with it go when it does.
    pub async fn grant(&self, ttl: u64) -> Result<LeaseId> {
        match &self.engine {
            Engine::Embedded(engine) => engine.grant(0, ttl).await,
            Engine::Etcd(engine) => engine.grant(ttl).await,
        }
    }

    /// Begins the lease's time anew; returns its seconds.
    pub async fn keep_alive(&self, lease: LeaseId) -> Result<u64> {
        match &self.engine {
            Engine::Embedded(engine) => engine.keep_alive(lease),
            Engine::Etcd(engine) => engine.keep_alive(lease).await,
        }
    }

    /// Ends a lease and deletes its keys.
    pub async fn revoke(&self, lease: LeaseId) -> Result<()> {
        match &self.engine {
            Engine::Embedded(engine) => engine.revoke(lease).await.map(drop),
            Engine::Etcd(engine) => engine.revoke(lease).await,
        }
    }

    /// The oldest revision that can be read, where the engine knows it: what a cache begins with
    /// to offer as much history as there is.
    pub fn oldest_revision(&self) -> Option<Revision> {
        match &self.engine {
            Engine::Embedded(engine) => Some(engine.stats().compacted),
            Engine::Etcd(_) => None,
        }
    }

    /// Whether a watch can be asked how far it is ([`Watch::progress`]) and be believed.
    pub fn answers_progress(&self) -> bool {
        match &self.engine {
            Engine::Embedded(_) => true,
            Engine::Etcd(engine) => engine.answers_progress(),
        }
    }
}

impl Watch {
    /// The next events, or the answer to a request for progress: a batch without events.
    ///
    /// Cancel safe: an event is lost only with the batch that was returned. After an error the
    /// watch is over.
    pub async fn next(&mut self) -> Result<WatchBatch> {
        let (batch, opened) = match &mut self.pending {
            Some(pending) => pending,
            none => none.insert((self.engine.next().await?, 0)),
        };
        while let Some(event) = batch.events.get_mut(*opened) {
            self.transform.open_event(event).await?;
            *opened += 1;
        }
        Ok(self.pending.take().map(|(batch, _)| batch).unwrap_or_default())
    }

    pub fn progress(&self) -> Progress {
        match &self.engine {
            EngineWatch::Embedded(watch) => Progress::Embedded(watch.progress()),
            EngineWatch::Etcd(watch) => Progress::Etcd(watch.progress()),
        }
    }
}

impl EngineWatch {
    async fn next(&mut self) -> Result<WatchBatch> {
        match self {
            EngineWatch::Embedded(watch) => watch.next().await,
            EngineWatch::Etcd(watch) => watch.next().await,
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
