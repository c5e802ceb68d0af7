//! What lies between a value and the engine: a caller's transformation (encryption at rest).
//!
//! The engine keeps what [`Transformer::seal`] makes of a value; everybody above, the watch cache
//! included, sees the value itself. A value that is kept as it is is passed on as the engine's own
//! allocation.
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::model::*;

/// A caller's two-way transformation of values. Causes are text: they are for people.
pub trait Transformer: Send + Sync {
    /// What to keep of a value that is written; nothing if it is kept as it is.
    fn seal(&self, key: &[u8], value: &Bytes) -> std::result::Result<Option<Bytes>, String>;

    /// Whether a kept value is the value itself. Asked of every value that is read.
    fn is_plain(&self, key: &[u8], kept: &[u8]) -> bool;

    /// The value of what is kept.
    fn open<'a>(&'a self, key: &'a [u8], kept: &'a Bytes) -> Opening<'a>;
}

/// Somebody else may have to be asked for a key.
pub type Opening<'a> =
    Pin<Box<dyn Future<Output = std::result::Result<Opened, String>> + Send + 'a>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    pub value: Bytes,
    /// It would be kept differently if it were written now: write it again when there is occasion.
    pub stale: bool,
}

/// A transformer, or none.
#[derive(Clone, Default)]
pub(crate) struct Transform(pub Option<Arc<dyn Transformer>>);

impl Transform {
    /// Seals what a transaction writes.
    pub fn seal(&self, txn: &mut Txn) -> Result<()> {
        let Some(transformer) = &self.0 else { return Ok(()) };
        for op in txn.success.iter_mut().chain(&mut txn.failure) {
            match op {
                Op::Put(Put { key, value: Some(value), .. }) => {
                    if let Some(kept) =
                        transformer.seal(key, value).map_err(Error::Untransformable)?
                    {
                        *value = kept;
                    }
                }
                Op::Txn(inner) => self.seal(inner)?,
                Op::Put(_) | Op::Range(_) | Op::Delete(_) => {}
            }
        }
        Ok(())
    }

    /// Opens what a transaction found. What cannot be read is left as it is: the transaction has
    /// happened, whatever it found.
    pub async fn open_all(&self, response: &mut TxnResponse) -> Result<()> {
        if self.0.is_none() {
            return Ok(());
        }
        let mut waiting: Vec<&mut OpResponse> = response.responses.iter_mut().collect();
        while let Some(found) = waiting.pop() {
            match found {
                OpResponse::Range(range) => self.open_range(range).await?,
                OpResponse::Put(event) => self.open_event(event).await?,
                OpResponse::Delete(events) => {
                    for event in events {
                        self.open_event(event).await?;
                    }
                }
                OpResponse::Txn(inner) => waiting.extend(&mut inner.responses),
            }
        }
        Ok(())
    }

    pub async fn open_range(&self, range: &mut RangeResponse) -> Result<()> {
        if self.0.is_none() {
            return Ok(());
        }
        for kv in &mut range.kvs {
            self.open(kv).await.map_err(|cause| {
                let key = kv.key.to_string();
                Error::Untransformable(format!("unable to transform key {key:?}: {cause}"))
            })?;
        }
        Ok(())
    }

    pub async fn open_event(&self, event: &mut Event) -> Result<()> {
        self.open(&mut event.kv).await.map_err(Error::Untransformable)?;
        if let Some(prev) = &mut event.prev
            && self.open(prev).await.is_err()
        {
            // What nobody could read, nobody has: to them it is as if it had not been there.
            event.prev = None;
        }
        Ok(())
    }

    /// Puts the value in the place of what is kept.
    pub async fn open(&self, kv: &mut Arc<KeyValue>) -> std::result::Result<(), String> {
        let Some(transformer) = &self.0 else { return Ok(()) };
        if kv.is_tombstone() || transformer.is_plain(&kv.key, &kv.value) {
            return Ok(());
        }
        let value = transformer.open(&kv.key, &kv.value).await?.value;
        *kv = Arc::new(KeyValue { value, ..KeyValue::clone(kv) });
        Ok(())
    }

    /// Whether what is kept would be kept differently now.
    pub async fn is_stale(&self, kv: &KeyValue) -> bool {
        match &self.0 {
            None => false,
            Some(transformer) => transformer.open(&kv.key, &kv.value).await.is_ok_and(|o| o.stale),
        }
    }
}
