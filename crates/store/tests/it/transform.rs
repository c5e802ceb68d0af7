//! A transformation between values and the engine.
use std::sync::Arc;

use bytes::Bytes;
use store::cache::{At, CacheOptions, Selection, WatchCache};
use store::embedded::{Embedded, Options};
use store::*;

use crate::sim_disk::SimDisk;

/// Keeps what is under `/s/` backwards, behind a mark; a value that begins with `?` is beyond it.
struct Backwards;

fn backwards(value: &[u8]) -> Vec<u8> {
    value.iter().rev().copied().collect()
}

impl Transformer for Backwards {
    fn seal(&self, key: &[u8], value: &Bytes) -> std::result::Result<Option<Bytes>, String> {
        let kept = || [b"!".to_vec(), backwards(value)].concat().into();
        Ok(key.starts_with(b"/s/").then(kept))
    }

    fn is_plain(&self, _: &[u8], kept: &[u8]) -> bool {
        !kept.starts_with(b"!") && !kept.starts_with(b"?")
    }

    fn open<'a>(&'a self, key: &'a [u8], kept: &'a Bytes) -> Opening<'a> {
        Box::pin(async move {
            match kept.strip_prefix(b"!") {
                Some(kept) => Ok(Opened { value: backwards(kept).into(), stale: false }),
                None if kept.starts_with(b"?") => Err("nobody knows".into()),
                None => Ok(Opened { value: kept.clone(), stale: key.starts_with(b"/s/") }),
            }
        })
    }
}

fn open() -> (Embedded, Store) {
    let engine = Embedded::open_disk(Arc::new(SimDisk::default()), Options::default()).unwrap();
    (engine.clone(), Store::from(engine).with_transformer(Arc::new(Backwards)))
}

async fn put(engine: &Embedded, key: &str, value: &str) {
    let txn = Txn { success: vec![Op::put(key, value.to_owned(), 0)], ..Txn::default() };
    engine.txn(txn).await.unwrap();
}

#[tokio::test]
async fn everybody_above_sees_the_value_and_the_engine_does_not() {
    let (engine, store) = open();
    let mut watch = store.watch(KeyRange::prefix("/s/"), 0).await.unwrap();
    let options = WriteOptions::default();
    let event = store.create("/s/a", "abc", options).await.unwrap().applied().unwrap();
    assert_eq!(event.kv.value, "abc");
    assert_eq!(engine.get(b"/s/a").unwrap().value, "!cba");
    assert_eq!(store.get(b"/s/a").await.unwrap().unwrap().value, "abc");
    let listed = store.range(RangeRequest::new(KeyRange::prefix("/s/"))).await.unwrap();
    assert_eq!(listed.kvs[0].value, "abc");
    let conflict = store.create("/s/a", "x", options).await.unwrap();
    let Outcome::Conflict(Some(current)) = conflict else { panic!("it exists") };
    assert_eq!(current.value, "abc");
    let event = store.delete("/s/a", current.mod_revision).await.unwrap().applied().unwrap();
    assert_eq!(event.prev.unwrap().value, "abc");
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(watch.next().await.unwrap().events);
    }
    assert_eq!(seen[0].kv.value, "abc");
    assert_eq!(seen[1].prev.as_ref().unwrap().value, "abc");
}

#[tokio::test]
async fn what_is_kept_as_it_is_is_not_copied() {
    let (engine, store) = open();
    put(&engine, "/p/a", "abc").await;
    let found = store.get(b"/p/a").await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&found, &engine.get(b"/p/a").unwrap()));
    assert!(!store.is_stale(b"/p/a").await.unwrap());
    put(&engine, "/s/old", "abc").await;
    assert!(store.is_stale(b"/s/old").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_cache_says_what_it_cannot_read_and_goes_on_when_that_is_gone() {
    let (engine, store) = open();
    let _ = store.create("/s/a", "abc", WriteOptions::default()).await.unwrap();
    let cache = WatchCache::start(store.clone(), CacheOptions::new("/s/")).await.unwrap();
    let all = Selection { range: cache.range(), term: None };
    put(&engine, "/s/b", "?").await;
    let failure = loop {
        match cache.list(&all, 0, At::Latest).await {
            Err(Error::Untransformable(text)) => break text,
            // Until the cache has seen it.
            _ => tokio::task::yield_now().await,
        }
    };
    assert_eq!(failure, "unable to transform key \"/s/b\": nobody knows");
    assert!(cache.watch(all.clone(), 1).is_err());
    assert!(WatchCache::start(store.clone(), CacheOptions::new("/s/")).await.is_err());
    assert_eq!(store.get(b"/s/a").await.unwrap().unwrap().value, "abc");
    engine
        .txn(Txn { success: vec![Op::Delete(KeyRange::key("/s/b"))], ..Txn::default() })
        .await
        .unwrap();
    let healed = loop {
        match cache.list(&all, 0, At::Latest).await {
            Ok(listed) => break listed,
            Err(_) => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
        }
    };
    assert_eq!(healed.kvs.len(), 1);
}
