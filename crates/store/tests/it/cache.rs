//! The watch cache: against a plain model, then what the model cannot say.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use proptest::prelude::*;
use store::cache::{At, CacheOptions, CacheWatch, Item, Selection, Term, WatchCache, Windows};
use store::embedded::{Embedded, Options};
use store::*;

use crate::sim_disk::SimDisk;

const PREFIX: &str = "/registry/pods/";

fn engine() -> Embedded {
    Embedded::open_disk(Arc::new(SimDisk::default()), Options::default()).unwrap()
}

/// Values are `label:anything`; the namespace is in the key.
fn options() -> CacheOptions {
    CacheOptions {
        indexer: Arc::new(|kv| {
            let value = String::from_utf8_lossy(&kv.value).into_owned();
            let key = kv.key.to_string();
            let namespace = key[PREFIX.len()..].split('/').next().unwrap_or_default().to_owned();
            let label = value.split(':').next().unwrap_or_default().to_owned();
            vec![Term::new("namespace", namespace), Term::new("label", label)]
        }),
        ..CacheOptions::new(PREFIX)
    }
}

fn all(cache: &WatchCache) -> Selection {
    Selection { range: cache.range(), term: None }
}

fn of(cache: &WatchCache, index: &'static str, value: &str) -> Selection {
    Selection { range: cache.range(), term: Some(Term::new(index, value)) }
}

async fn put(engine: &Embedded, key: &str, value: &str) -> Revision {
    let txn = Txn { success: vec![Op::put(key, value.to_owned(), 0)], ..Txn::default() };
    engine.txn(txn).await.unwrap().revision
}

#[derive(Debug, Clone)]
enum Change {
    Put(u8, u8),
    Delete(u8),
    Both(u8, u8),
    Elsewhere,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        4 => (0..8u8, 0..3u8).prop_map(|(key, label)| Change::Put(key, label)),
        2 => (0..8u8).prop_map(Change::Delete),
        1 => (0..8u8, 0..3u8).prop_map(|(key, label)| Change::Both(key, label)),
        1 => Just(Change::Elsewhere),
    ];
    proptest::collection::vec(change, 1..40)
}

fn key(n: u8) -> String {
    format!("{PREFIX}ns{}/pod{n}", n % 2)
}

/// The plain model: every state there ever was, and every event.
#[derive(Default)]
struct Model {
    states: BTreeMap<Revision, BTreeMap<String, String>>,
    /// Revision, key, value before, value after.
    events: Vec<(Revision, String, Option<String>, Option<String>)>,
}

type Wanted = Box<dyn Fn(&str, &str) -> bool>;

impl Model {
    fn now(&self) -> BTreeMap<String, String> {
        self.states.last_key_value().map(|(_, state)| state.clone()).unwrap_or_default()
    }

    fn set(&mut self, revision: Revision, changes: Vec<(String, Option<String>)>) {
        let mut state = self.now();
        for (key, value) in changes {
            let before = state.get(&key).cloned();
            match &value {
                Some(value) => drop(state.insert(key.clone(), value.clone())),
                None => drop(state.remove(&key)),
            }
            if before.is_some() || value.is_some() {
                self.events.push((revision, key, before, value));
            }
        }
        self.states.insert(revision, state);
    }

    fn at(&self, revision: Revision, wanted: &Wanted) -> Vec<(String, String)> {
        let state = self.states.range(..=revision).next_back().map(|(_, state)| state.clone());
        state.unwrap_or_default().into_iter().filter(|(k, v)| wanted(k, v)).collect()
    }

    fn after(
        &self,
        revision: Revision,
        wanted: &Wanted,
    ) -> Vec<(Revision, String, Option<String>)> {
        let concerns = |key: &str, value: &Option<String>| {
            value.as_ref().is_some_and(|value| wanted(key, value))
        };
        self.events
            .iter()
            .filter(|(r, key, before, after)| {
                *r > revision && (concerns(key, before) || concerns(key, after))
            })
            .map(|(r, key, _, after)| (*r, key.clone(), after.clone()))
            .collect()
    }
}

fn plain(kvs: &[Arc<KeyValue>]) -> Vec<(String, String)> {
    let pair =
        |kv: &Arc<KeyValue>| (kv.key.to_string(), String::from_utf8_lossy(&kv.value).into_owned());
    kvs.iter().map(pair).collect()
}

/// Everything a watch has to say until the cache is at rest.
async fn drain(watch: &mut CacheWatch, until: usize) -> Vec<(Revision, String, Option<String>)> {
    let mut events = Vec::new();
    while events.len() < until {
        let Item::Events(batch) = watch.next().await.unwrap() else { panic!("no list was asked") };
        assert!(batch.events.iter().all(|event| event.revision() <= batch.revision));
        events.extend(batch.events.iter().map(|event| {
            let value = String::from_utf8_lossy(&event.kv.value).into_owned();
            (event.revision(), event.kv.key.to_string(), (!event.is_delete()).then_some(value))
        }));
    }
    events
}

async fn check(changes: Vec<Change>, started: usize, window: usize) {
    let engine = engine();
    let options = CacheOptions { window_events: window, ..options() };
    let mut cache = None;
    let mut model = Model::default();
    for (i, change) in changes.iter().enumerate() {
        if i == started {
            cache = Some(WatchCache::start(engine.clone().into(), options.clone()).await.unwrap());
        }
        let value = |label: u8| format!("label{label}:{i}");
        let (ops, sets) = match change {
            Change::Put(n, label) => {
                let value = value(*label);
                (vec![Op::put(key(*n), value.clone(), 0)], vec![(key(*n), Some(value))])
            }
            Change::Delete(n) => (vec![Op::Delete(KeyRange::key(key(*n)))], vec![(key(*n), None)]),
            Change::Both(n, label) => {
                let (one, two, value) = (key(*n), key((n + 1) % 8), value(*label));
                let ops = vec![Op::put(&*one, value.clone(), 0), Op::Delete(KeyRange::key(&*two))];
                (ops, vec![(one, Some(value)), (two, None)])
            }
            Change::Elsewhere => (vec![Op::put("/registry/podz", "x", 0)], Vec::new()),
        };
        let response = engine.txn(Txn { success: ops, ..Txn::default() }).await.unwrap();
        model.set(response.revision, sets);
    }
    let cache = match cache {
        Some(cache) => cache,
        None => WatchCache::start(engine.clone().into(), options).await.unwrap(),
    };
    let last = engine.revision();
    assert_eq!(cache.wait_for_latest().await.unwrap(), last);
    // The oldest revision the window must still have.
    let kept: Vec<_> = model.events.iter().rev().take(window).map(|event| event.0).collect();
    let whole = model.events.len() <= window;
    let oldest = if whole { 0 } else { *kept.last().unwrap() };

    let selections: Vec<(Selection, Wanted)> = vec![
        (all(&cache), Box::new(|_, _| true)),
        (of(&cache, "namespace", "ns1"), Box::new(|key, _| key.contains("/ns1/"))),
        (of(&cache, "label", "label2"), Box::new(|_, value| value.starts_with("label2:"))),
        (of(&cache, "label", "nobody"), Box::new(|_, _| false)),
        (
            Selection {
                range: KeyRange::prefix(format!("{PREFIX}ns0/")),
                ..of(&cache, "label", "label1")
            },
            Box::new(|key, value| key.contains("/ns0/") && value.starts_with("label1:")),
        ),
    ];
    for (selection, wanted) in &selections {
        let now = cache.list(selection, 0, At::Latest).await.unwrap();
        assert_eq!(plain(&now.kvs), model.at(last, wanted));
        assert_eq!((now.count, now.more, now.revision), (now.kvs.len(), false, last));
        let page = cache.list(selection, 2, At::Exactly(last)).await.unwrap();
        assert_eq!(
            plain(&page.kvs),
            model.at(last, wanted).into_iter().take(2).collect::<Vec<_>>()
        );
        assert_eq!((page.count, page.more), (now.count, now.count > 2));
        for revision in 1..=last {
            // Older than the window it is the engine that answers; the answer is the same.
            let then = cache.list(selection, 0, At::Exactly(revision)).await.unwrap();
            assert_eq!(plain(&then.kvs), model.at(revision, wanted), "{selection:?} at {revision}");
            assert_eq!(then.revision, revision);
        }
        for after in 0..=last {
            let expected = model.after(after, wanted);
            match cache.watch(selection.clone(), after) {
                Ok(mut watch) => {
                    assert_eq!(drain(&mut watch, expected.len()).await, expected, "after {after}");
                    // It has looked, and there is no more.
                    assert!(watch.next().now_or_never().is_none());
                    assert_eq!(watch.bookmark(), last);
                }
                Err(error) => {
                    assert!(matches!(error, Error::Compacted { .. }), "{error}");
                    assert!(after < oldest, "after {after} is in the window from {oldest}");
                }
            }
        }
        let mut streamed = Vec::new();
        let mut watch = cache.watch_list(selection.clone(), At::Any).await.unwrap();
        let end = loop {
            match watch.next().await.unwrap() {
                Item::Initial(kvs) => streamed.extend(plain(&kvs)),
                Item::InitialEnd(revision) => break revision,
                Item::Events(batch) => panic!("{batch:?} before the list's end"),
            }
        };
        assert_eq!((streamed, end), (model.at(last, wanted), last));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]
    #[test]
    fn the_cache_agrees_with_the_model(
        changes in changes(),
        started in 0..40usize,
        window in prop_oneof![Just(1000usize), 1..12usize],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(changes, started, window));
    }
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_disconnected() {
    let engine = engine();
    let options = CacheOptions { window_events: 100, ..options() };
    let cache = WatchCache::start(engine.clone().into(), options).await.unwrap();
    let mut slow = cache.watch(all(&cache), 0).unwrap();
    let mut elsewhere = cache.watch(of(&cache, "namespace", "quiet"), 0).unwrap();
    for i in 0..500 {
        put(&engine, &format!("{PREFIX}busy/{}", i % 7), "a:").await;
    }
    cache.wait_for_latest().await.unwrap();
    assert!(matches!(slow.next().await, Err(Error::Compacted { .. })));
    // Who has nothing to read is not slow.
    let quiet = put(&engine, &format!("{PREFIX}quiet/a"), "a:").await;
    let Item::Events(batch) = elsewhere.next().await.unwrap() else { panic!() };
    assert_eq!(batch.events.len(), 1);
    assert_eq!(batch.events[0].revision(), quiet);
}

#[tokio::test]
async fn ten_thousand_watchers_share_the_bytes() {
    let engine = engine();
    let cache = WatchCache::start(engine.clone().into(), options()).await.unwrap();
    let mut watches: Vec<_> = (0..10_000).map(|_| cache.watch(all(&cache), 0).unwrap()).collect();
    let key = format!("{PREFIX}ns/a");
    put(&engine, &key, "a:1").await;
    let stored = engine.get(key.as_bytes()).unwrap();
    for watch in &mut watches {
        let Item::Events(batch) = watch.next().await.unwrap() else { panic!() };
        assert!(Arc::ptr_eq(&batch.events[0].kv, &stored), "the engine's own version, not a copy");
    }
    let listed = cache.list(&all(&cache), 0, At::Any).await.unwrap();
    assert!(Arc::ptr_eq(&listed.kvs[0], &stored));
}

#[tokio::test]
async fn reads_are_consistent_whatever_changed_elsewhere() {
    let engine = engine();
    let cache = WatchCache::start(engine.clone().into(), options()).await.unwrap();
    for i in 0..200 {
        put(&engine, &format!("{PREFIX}ns/a"), &format!("a:{i}")).await;
        if i % 2 == 0 {
            put(&engine, "/registry/elsewhere", "x").await;
        }
        let kv = cache.get(format!("{PREFIX}ns/a").as_bytes(), At::Latest).await.unwrap().unwrap();
        assert_eq!(kv.value, format!("a:{i}"));
        let revision = engine.revision();
        let list = cache.list(&all(&cache), 0, At::NotOlderThan(revision)).await.unwrap();
        assert!(list.revision >= revision);
    }
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_does_not_come_is_an_error() {
    let engine = engine();
    let options = CacheOptions { patience: Duration::from_secs(3), ..options() };
    let cache = WatchCache::start(engine.into(), options).await.unwrap();
    let waited = cache.wait_for(1_000_000).await;
    assert!(
        matches!(waited, Err(Error::FutureRevision { requested: 1_000_000, .. })),
        "{waited:?}"
    );
}

#[tokio::test]
async fn watches_resume_over_a_restart() {
    let disk = SimDisk::default();
    let first = Embedded::open_disk(Arc::new(disk.clone()), Options::default()).unwrap();
    let seen = put(&first, &format!("{PREFIX}ns/a"), "a:1").await;
    let missed = put(&first, &format!("{PREFIX}ns/a"), "a:2").await;
    first.close().await;
    drop(first);
    let second = Embedded::open_disk(Arc::new(disk), Options::default()).unwrap();
    let cache = WatchCache::start(second.into(), options()).await.unwrap();
    let mut watch = cache.watch(all(&cache), seen).unwrap();
    let Item::Events(batch) = watch.next().await.unwrap() else { panic!() };
    assert_eq!(batch.events[0].revision(), missed);
}

#[tokio::test]
async fn what_is_old_is_forgotten_even_if_nothing_follows() {
    let engine = engine();
    let options = CacheOptions { window_age: Duration::from_millis(20), ..options() };
    let cache = WatchCache::start(engine.clone().into(), options).await.unwrap();
    for i in 0..10 {
        put(&engine, &format!("{PREFIX}ns/a"), &format!("a:{i}")).await;
    }
    let revision = cache.wait_for_latest().await.unwrap();
    let forgotten = async {
        while cache.watch(all(&cache), revision - 1).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), forgotten).await.expect("it gets old");
    // Whoever has seen everything goes on.
    assert!(cache.watch(all(&cache), revision).is_ok());
    assert_eq!(cache.list(&all(&cache), 0, At::Any).await.unwrap().kvs.len(), 1);
}

#[tokio::test]
async fn windows_share_their_room() {
    let engine = engine();
    let windows = Arc::new(Windows::new(16_000));
    let with =
        |prefix: &str| CacheOptions { windows: windows.clone(), ..CacheOptions::new(prefix) };
    let quiet = WatchCache::start(engine.clone().into(), with("/quiet/")).await.unwrap();
    let noisy = WatchCache::start(engine.clone().into(), with("/noisy/")).await.unwrap();
    let first = put(&engine, "/quiet/a", &"x".repeat(500)).await;
    for _ in 0..200 {
        put(&engine, "/noisy/a", &"x".repeat(500)).await;
    }
    noisy.wait_for_latest().await.unwrap();
    quiet.wait_for_latest().await.unwrap();
    let resumes = |cache: &WatchCache| cache.watch(all(cache), first - 1).is_ok();
    assert!(resumes(&quiet), "its share is its own");
    assert!(!resumes(&noisy), "it has had more than its share");
    assert!(windows.used() <= 16_000, "{}", windows.used());
    drop((quiet, noisy));
}

#[tokio::test]
async fn a_revision_that_is_gone_is_gone_for_quiet_resources_too() {
    let engine = engine();
    let cache = WatchCache::start(engine.clone().into(), options()).await.unwrap();
    let then = put(&engine, &format!("{PREFIX}ns/a"), "a:").await;
    let at = |revision| cache.list(&all(&cache), 0, At::Exactly(revision)).now_or_never();
    cache.wait_for_latest().await.unwrap();
    assert_eq!(at(then).unwrap().unwrap().kvs.len(), 1);
    let later = put(&engine, "/registry/other", "x").await;
    engine.compact(later).await.unwrap();
    assert!(matches!(at(then).unwrap(), Err(Error::Compacted { .. })));
}
