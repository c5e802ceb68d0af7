//! The etcd engine against real etcd: the contract, TLS, a prefix, and members that die.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use store::cache::{At, CacheOptions, Item, Selection, WatchCache};
use store::etcd::{Etcd, EtcdOptions, EtcdTls};
use store::*;

use crate::contract::check_contract;
use crate::etcd_server::{Cluster, Pki};

async fn connect(cluster: &Cluster) -> Store {
    Etcd::connect(EtcdOptions::new(cluster.endpoints())).await.unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_etcd_engine_keeps_the_contract() {
    let cluster = Cluster::start(1, None).await;
    check_contract(&connect(&cluster).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_client_certificates_and_a_prefix_too() {
    let pki = Pki::new();
    let cluster = Cluster::start(1, Some(pki.clone())).await;
    let (certificate, key) = pki.client.clone();
    let tls = EtcdTls { ca: pki.ca, certificate: Some(certificate), key: Some(key) };
    let options = EtcdOptions {
        prefix: "/cluster-a".into(),
        tls: Some(tls.clone()),
        ..EtcdOptions::new(cluster.endpoints())
    };
    let store: Store = Etcd::connect(options.clone()).await.unwrap().into();
    check_contract(&store).await;
    assert!(store.create("/x", "1", WriteOptions::default()).await.unwrap().applied().is_some());
    let seen = cluster.etcdctl(0, &["get", "/cluster-a/x", "--print-value-only"]);
    assert_eq!(String::from_utf8_lossy(&seen.stdout).trim(), "1");
    // Without its certificate a client is turned away.
    let anonymous = EtcdTls { certificate: None, key: None, ..tls };
    let timeout = Duration::from_secs(1);
    let refused = Etcd::connect(EtcdOptions { tls: Some(anonymous), timeout, ..options }).await;
    assert!(matches!(refused.err(), Some(Error::Unavailable(_))));
}

/// Counts every event of a watch until told to stop at a revision.
async fn record(mut watch: Watch, mut until: tokio::sync::watch::Receiver<Revision>) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let goal = *until.borrow_and_update();
        if goal > 0 && events.last().is_some_and(|event| event.revision() >= goal) {
            return events;
        }
        tokio::select! {
            batch = watch.next() => events.extend(batch.unwrap().events),
            _ = until.changed() => {}
        }
    }
}

/// How many writes were acknowledged so far.
#[derive(Clone, Default)]
struct Load(Arc<AtomicU64>);

impl Load {
    /// Waits until so many more have been.
    async fn goes_on(&self, writes: u64) {
        let goal = self.0.load(Ordering::Relaxed) + writes;
        let waiting = async {
            while self.0.load(Ordering::Relaxed) < goal {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let limit = Duration::from_secs(30);
        tokio::time::timeout(limit, waiting).await.expect("the cluster recovers");
    }
}

/// Writers at work on keys of their own while `disturb` kills members; then: everything
/// acknowledged is there, the watch saw every change exactly once, and so did a cache that was
/// asked all the while to be newer than it can be. (An etcd believed too much when it says how
/// far it is loses the cache what was written while its watch was away.)
async fn check_under_load(cluster: &mut Cluster, disturb: impl AsyncFnOnce(&mut Cluster, &Load)) {
    let store = connect(cluster).await;
    let from = store.revision().await.unwrap() + 1;
    let watch = store.watch(KeyRange::prefix("/load/"), from).await.unwrap();
    let (stop_watching, until) = tokio::sync::watch::channel(0);
    let recorder = tokio::spawn(record(watch, until));
    let cache = WatchCache::start(store.clone(), CacheOptions::new("/load/")).await.unwrap();
    let eager = cache.clone();
    let asking = tokio::spawn(async move { while eager.wait_for(Revision::MAX).await.is_err() {} });
    let stop = Arc::new(AtomicBool::new(false));
    let load = Load::default();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (store, stop, load) = (store.clone(), stop.clone(), load.clone());
            tokio::spawn(async move {
                let mut acknowledged = BTreeMap::new();
                let mut i = 0;
                while !stop.load(Ordering::Relaxed) {
                    let key = format!("/load/{writer}/{i:05}");
                    match store.create(&*key, "x", WriteOptions::default()).await {
                        Ok(Outcome::Applied(event)) => {
                            acknowledged.insert(key, event.revision());
                            load.0.fetch_add(1, Ordering::Relaxed);
                        }
                        // Only our own first attempt could have made it.
                        Ok(Outcome::Conflict(kv)) => panic!("{key} was created twice: {kv:?}"),
                        Err(Error::Unavailable(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                    i += 1;
                }
                acknowledged
            })
        })
        .collect();
    disturb(cluster, &load).await;
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = BTreeMap::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    let end =
        store.create("/load/end", "x", WriteOptions::default()).await.unwrap().applied().unwrap();
    stop_watching.send_replace(end.revision());
    let limit = Duration::from_secs(30);
    let seen = tokio::time::timeout(limit, recorder).await.expect("the watch caught up").unwrap();

    let all = store.range(RangeRequest::new(KeyRange::prefix("/load/"))).await.unwrap();
    cache.wait_for(end.revision()).await.unwrap();
    asking.abort();
    let selection = Selection { range: cache.range(), term: None };
    for at in [At::Any, At::NotOlderThan(all.revision), At::Exactly(all.revision), At::Latest] {
        let cached = cache.list(&selection, 0, at).await.unwrap();
        assert_eq!(cached.kvs.len(), all.kvs.len(), "{at:?}");
        assert!(cached.kvs == all.kvs, "{at:?}: the same objects");
    }
    let there: BTreeMap<String, Revision> =
        all.kvs.iter().map(|kv| (kv.key.to_string(), kv.mod_revision)).collect();
    for (key, revision) in &acknowledged {
        assert_eq!(there.get(key), Some(revision), "{key} was acknowledged");
    }
    let mut watched: Vec<(String, Revision)> =
        seen.iter().map(|event| (event.kv.key.to_string(), event.revision())).collect();
    assert!(watched.is_sorted_by_key(|(_, revision)| *revision), "in order");
    watched.sort();
    assert_eq!(watched, there.into_iter().collect::<Vec<_>>(), "each once, none missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_leader_loses_nothing_and_repeats_nothing() {
    let mut cluster = Cluster::start(3, None).await;
    check_under_load(&mut cluster, async |cluster: &mut Cluster, load: &Load| {
        for _ in 0..2 {
            load.goes_on(500).await;
            let leader = loop {
                if let Some(leader) = cluster.leader() {
                    break leader;
                }
            };
            cluster.kill(leader);
            load.goes_on(500).await;
            cluster.spawn(leader);
            cluster.wait_healthy().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarting_the_only_member_loses_nothing_and_repeats_nothing() {
    let mut cluster = Cluster::start(1, None).await;
    check_under_load(&mut cluster, async |cluster: &mut Cluster, load: &Load| {
        for _ in 0..4 {
            load.goes_on(200).await;
            cluster.kill(0);
            cluster.spawn(0);
        }
        load.goes_on(200).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_begins_anew_when_etcd_has_compacted() {
    let mut cluster = Cluster::start(1, None).await;
    let store = connect(&cluster).await;
    let create = async |key: &str| {
        loop {
            match store.create(key, "1", WriteOptions::default()).await {
                Ok(Outcome::Applied(event)) => return event.kv,
                // An attempt of which the connection broke has made it after all.
                Ok(Outcome::Conflict(kv)) => return kv.unwrap(),
                Err(Error::Unavailable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    create("/pods/a").await;
    let cache = WatchCache::start(store.clone(), CacheOptions::new("/pods/")).await.unwrap();
    let all = Selection { range: cache.range(), term: None };
    let mut watch = cache.watch(all.clone(), cache.revision()).unwrap();
    create("/pods/b").await;
    let listed = cache.list(&all, 0, At::Latest).await.unwrap();
    assert_eq!(listed.kvs.len(), 2);
    cache.wait_for(listed.kvs[1].mod_revision).await.unwrap();
    assert!(matches!(watch.next().await, Ok(Item::Events(_))));

    // The engine's watch is cut off while keys change and history goes.
    cluster.kill(0);
    cluster.spawn(0);
    let c = create("/pods/c").await;
    let compacted = create("/pods/d").await.mod_revision;
    store.compact(compacted).await.unwrap();
    cache.wait_for(compacted).await.unwrap();
    let listed = cache.list(&all, 0, At::NotOlderThan(c.mod_revision)).await.unwrap();
    assert_eq!(listed.kvs.len(), 4);
    let latest = cache.list(&all, 0, At::Latest).await.unwrap();
    assert_eq!(latest.kvs, listed.kvs);
}
