//! Kinds that are followed in the store, for an index or a loop that must stay true.
//!
//! [`keep`] is for what objects come to together (who may what, which policies hold): each change
//! reads the one object that changed. [`follow`] is for whoever wants the changes themselves.
use crate::server::ApiServer;
use crate::state::keys::{range, status_of};
use crate::state::stored;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use futures_util::future::select_all;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;
use store::cache::{At, CacheWatch, Item, Selection};
use store::{Key, KeyValue};

/// What a follower hears.
pub enum Change {
    /// What happened to objects of this kind.
    Item(&'static Resource, Item),
    /// A watch was cut: whatever was known counts no more, and every object comes again.
    Anew,
}

/// How long to wait when the store cannot be read.
const PAUSE: Duration = Duration::from_secs(1);

/// What the objects of some kinds come to. It begins empty, takes every object once and then each that
/// changes.
pub trait Index: Default + Send + 'static {
    /// Version and name of each.
    const KINDS: &'static [(&'static str, &'static str)];

    /// An object is this now; or it is gone, or cannot be read, which is the same.
    fn take(&mut self, kind: &'static Resource, key: &Key, object: Option<Value>);

    /// Puts in force what was taken.
    fn settle(&mut self, api: &ApiServer) -> impl Future<Output = ()> + Send;
}

/// The objects of one kind as an index has them, in the order of their keys.
#[derive(Debug)]
pub struct Kept<T>(BTreeMap<Key, T>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept(BTreeMap::new())
    }
}

impl<T> Kept<T> {
    pub fn put(&mut self, key: &Key, object: Option<T>) {
        match object {
            Some(object) => self.0.insert(key.clone(), object),
            None => self.0.remove(key),
        };
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut()
    }
}

impl<T: DeserializeOwned> Kept<T> {
    /// What does not fit its type counts as not there.
    pub fn take(&mut self, key: &Key, object: Option<Value>) {
        self.put(key, typed(object));
    }
}

/// An object in its type, if it fits.
pub fn typed<T: DeserializeOwned>(object: Option<Value>) -> Option<T> {
    object.and_then(|object| serde_json::from_value(object).ok())
}

/// Makes an index of all that there is, puts it in force, and keeps it true from then on. When a watch
/// is cut, what was in force holds until all that there is has been read again.
pub async fn keep<I: Index>(api: &ApiServer) -> Result<(), Status> {
    let find = |(version, kind): &(&str, &str)| find_kind(version, kind);
    let kinds: Vec<&'static Resource> = I::KINDS.iter().filter_map(find).collect();
    let (mut index, mut watches) = begin::<I>(api, &kinds).await?;
    let api = api.clone();
    tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                () = api.stopping() => return,
                next = next(&mut watches, &kinds) => next,
            };
            match next {
                Ok((kind, item)) => {
                    feed(&mut index, &api, kind, item);
                    index.settle(&api).await;
                }
                Err(error) => {
                    tracing::warn!(%error, kind = kinds[0].kind, "a watch was cut");
                    (index, watches) = loop {
                        match begin::<I>(&api, &kinds).await {
                            Ok(again) => break again,
                            Err(_) => tokio::time::sleep(PAUSE).await,
                        }
                    };
                }
            }
        }
    });
    Ok(())
}

async fn begin<I: Index>(
    api: &ApiServer,
    kinds: &[&'static Resource],
) -> Result<(I, Vec<CacheWatch>), Status> {
    let mut index = I::default();
    let mut watches = watch(api, kinds, At::Latest).await?;
    for (watch, kind) in watches.iter_mut().zip(kinds) {
        loop {
            match watch.next().await.map_err(|error| status_of(error, kind))? {
                Item::InitialEnd(_) => break,
                item => feed(&mut index, api, kind, item),
            }
        }
    }
    index.settle(api).await;
    Ok((index, watches))
}

fn feed(index: &mut impl Index, api: &ApiServer, kind: &'static Resource, item: Item) {
    let read =
        |stored: &KeyValue| api.unreadable().skip(stored, kind, stored::decode(stored, kind));
    match item {
        Item::Initial(objects) => {
            objects.iter().for_each(|stored| index.take(kind, &stored.key, read(stored)));
        }
        Item::InitialEnd(_) => {}
        Item::Events(batch) => {
            for event in &batch.events {
                let object = if event.is_delete() { None } else { read(&event.kv) };
                index.take(kind, &event.kv.key, object);
            }
        }
    }
}

/// Tells `take` of every object first, then of every change, as long as the server runs.
pub async fn follow<F: Future<Output = ()> + Send>(
    api: &ApiServer,
    kinds: &[&'static Resource],
    mut take: impl FnMut(Change) -> F + Send + 'static,
) -> Result<(), Status> {
    let (api, kinds) = (api.clone(), kinds.to_vec());
    let mut watches = watch(&api, &kinds, At::Any).await?;
    tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                () = api.stopping() => return,
                next = next(&mut watches, &kinds) => next,
            };
            let change = match next {
                Ok((kind, item)) => Change::Item(kind, item),
                Err(error) => {
                    tracing::warn!(%error, kind = kinds[0].kind, "a watch was cut");
                    watches = loop {
                        match watch(&api, &kinds, At::Any).await {
                            Ok(again) => break again,
                            Err(_) => tokio::time::sleep(PAUSE).await,
                        }
                    };
                    Change::Anew
                }
            };
            take(change).await;
        }
    });
    Ok(())
}

async fn watch(
    api: &ApiServer,
    kinds: &[&'static Resource],
    at: At,
) -> Result<Vec<CacheWatch>, Status> {
    let mut watches = Vec::new();
    for kind in kinds {
        let wanted = Selection { range: range(kind, ""), term: None };
        let cache = api.cache(kind).await?;
        let watch = cache.watch_list(wanted, at).await;
        watches.push(watch.map_err(|error| status_of(error, kind))?);
    }
    Ok(watches)
}

/// What happens next to any of them.
async fn next(
    watches: &mut [CacheWatch],
    kinds: &[&'static Resource],
) -> Result<(&'static Resource, Item), store::Error> {
    let next = watches
        .iter_mut()
        .zip(kinds)
        .map(|(watch, kind)| Box::pin(async move { watch.next().await.map(|item| (*kind, item)) }));
    pin!(select_all(next)).await.0
}
