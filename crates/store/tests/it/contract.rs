//! What every engine must do, as a table of cases; each gets a store and a prefix of its own.
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use store::embedded::{Embedded, Options};
use store::*;

type Case = fn(Store, String) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        const CASES: &[(&str, Case)] =
            &[$((stringify!($name), |store, prefix| Box::pin($name(store, prefix)))),*];
    };
}

cases![
    create_if_absent,
    update_needs_the_current_revision,
    delete_needs_the_current_revision,
    a_key_created_again_starts_over,
    a_range_is_ordered_and_paged,
    pages_of_one_revision_ignore_later_writes,
    every_revision_is_readable_until_compacted,
    a_revision_still_to_come_is_an_error,
    a_transaction_is_one_change,
    a_failed_comparison_takes_the_other_branch,
    every_comparison_means_what_it_says,
    a_key_is_written_once_in_a_transaction,
    a_watch_begins_now_or_in_the_past,
    a_watch_sees_its_range_only,
    a_watch_never_splits_a_revision,
    a_watch_reports_progress,
    a_long_history_arrives_whole_and_in_order,
    keys_of_a_lease_go_with_it,
    an_expired_lease_takes_its_keys,
    a_renewed_lease_lives_on,
    a_lease_must_exist,
    the_size_of_a_request_is_limited,
    keys_and_values_are_any_bytes,
    concurrent_creators_have_one_winner,
];

/// Runs every case, all at once: they must not disturb each other.
pub async fn check_contract(store: &Store) {
    let mut running = Vec::new();
    for (name, case) in CASES {
        let case = case(store.clone(), format!("/contract/{name}/"));
        let limited = tokio::time::timeout(Duration::from_secs(60), case);
        running.push((name, tokio::spawn(limited)));
    }
    let mut failed = Vec::new();
    for (name, case) in running {
        match case.await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => failed.push(format!("{name}: did not finish")),
            Err(panic) => failed.push(format!("{name}: {panic}")),
        }
    }
    // Compaction is everybody's: last and alone.
    compaction(store.clone(), "/contract/compaction/".into()).await;
    assert!(failed.is_empty(), "{failed:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_engine_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let store: Store = Embedded::open(directory.path(), Options::default()).unwrap().into();
    check_contract(&store).await;
}

async fn put(store: &Store, key: &str, value: &str) -> Event {
    let now = store.get(key.as_bytes()).await.unwrap().map_or(0, |kv| kv.mod_revision);
    let outcome = store.update(key, value.to_owned(), now, WriteOptions::default()).await.unwrap();
    outcome.applied().unwrap()
}

async fn delete(store: &Store, key: &str) -> Event {
    let now = store.get(key.as_bytes()).await.unwrap().unwrap().mod_revision;
    store.delete(key, now).await.unwrap().applied().unwrap()
}

fn pairs(kvs: &[std::sync::Arc<KeyValue>], prefix: &str) -> String {
    let pair = |kv: &std::sync::Arc<KeyValue>| {
        let key = kv.key.to_string();
        format!("{}={}", key.strip_prefix(prefix).unwrap(), String::from_utf8_lossy(&kv.value))
    };
    kvs.iter().map(pair).collect::<Vec<_>>().join(" ")
}

fn changes(events: &[Event], prefix: &str) -> String {
    let change = |event: &Event| {
        let key = event.kv.key.to_string();
        let key = key.strip_prefix(prefix).unwrap();
        let value = |kv: &KeyValue| String::from_utf8_lossy(&kv.value).into_owned();
        let before = event.prev.as_ref().map_or(String::new(), |prev| value(prev));
        match event.is_delete() {
            true => format!("-{key}({before})"),
            false if event.is_create() => format!("+{key}={}", value(&event.kv)),
            false => format!("{key}={}({before})", value(&event.kv)),
        }
    };
    events.iter().map(change).collect::<Vec<_>>().join(" ")
}

async fn list(store: &Store, prefix: &str, at: Revision) -> Result<String> {
    let response = store.range(RangeRequest::new(KeyRange::prefix(prefix)).at(at)).await?;
    Ok(pairs(&response.kvs, prefix))
}

/// Events until there are this many.
async fn read(watch: &mut Watch, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(watch.next().await.unwrap().events);
    }
    events
}

async fn create_if_absent(store: Store, prefix: String) {
    let key = format!("{prefix}a");
    let before = store.revision().await.unwrap();
    assert!(before > 0, "zero means \"now\", never a revision");
    let created = store.create(&*key, "1", WriteOptions::default()).await.unwrap();
    let Outcome::Applied(event) = created else { panic!("{created:?}") };
    assert!(event.kv.mod_revision > before);
    assert_eq!((event.kv.version, event.prev), (1, None));
    assert_eq!(event.kv.create_revision, event.kv.mod_revision);
    assert_eq!(store.get(key.as_bytes()).await.unwrap(), Some(event.kv.clone()));
    let again = store.create(&*key, "2", WriteOptions::default()).await.unwrap();
    assert_eq!(again, Outcome::Conflict(Some(event.kv)));
}

async fn update_needs_the_current_revision(store: Store, prefix: String) {
    let key = format!("{prefix}a");
    let first = put(&store, &key, "1").await.kv;
    let options = WriteOptions::default();
    let updated = store.update(&*key, "2", first.mod_revision, options).await.unwrap();
    let second = updated.applied().unwrap();
    assert_eq!((second.kv.version, second.kv.create_revision), (2, first.create_revision));
    assert_eq!(second.prev, Some(first.clone()));
    let stale = store.update(&*key, "3", first.mod_revision, options).await.unwrap();
    assert_eq!(stale, Outcome::Conflict(Some(second.kv)));
    let absent = store.update(format!("{prefix}b"), "1", 7, options).await.unwrap();
    assert_eq!(absent, Outcome::Conflict(None));
}

async fn delete_needs_the_current_revision(store: Store, prefix: String) {
    let key = format!("{prefix}a");
    let first = put(&store, &key, "1").await.kv;
    let second = put(&store, &key, "2").await.kv;
    let stale = store.delete(&*key, first.mod_revision).await.unwrap();
    assert_eq!(stale, Outcome::Conflict(Some(second.clone())));
    let deleted = store.delete(&*key, second.mod_revision).await.unwrap().applied().unwrap();
    assert!(deleted.is_delete() && deleted.revision() > second.mod_revision);
    assert_eq!(deleted.prev, Some(second.clone()));
    assert_eq!(store.get(key.as_bytes()).await.unwrap(), None);
    let gone = store.delete(&*key, second.mod_revision).await.unwrap();
    assert_eq!(gone, Outcome::Conflict(None));
    assert_eq!(store.delete(&*key, 0).await.unwrap(), Outcome::Conflict(None));
}

async fn a_key_created_again_starts_over(store: Store, prefix: String) {
    let key = format!("{prefix}a");
    let first = put(&store, &key, "1").await.kv;
    delete(&store, &key).await;
    let again = put(&store, &key, "2").await;
    assert_eq!((again.kv.version, again.prev), (1, None));
    assert!(again.kv.create_revision > first.mod_revision);
}

async fn a_range_is_ordered_and_paged(store: Store, prefix: String) {
    for name in ["c", "a", "e", "b", "d"] {
        put(&store, &format!("{prefix}{name}"), name).await;
    }
    let all = KeyRange::prefix(&*prefix);
    let page = store.range(RangeRequest::new(all.clone()).limit(2).counted()).await.unwrap();
    assert_eq!((pairs(&page.kvs, &prefix), page.more, page.count), ("a=a b=b".into(), true, 5));
    let next = all.starting_at(page.continue_key().unwrap());
    let page = store.range(RangeRequest::new(next).limit(3).at(page.revision)).await.unwrap();
    assert_eq!((pairs(&page.kvs, &prefix), page.more), ("c=c d=d e=e".into(), false));
    assert_eq!(page.continue_key(), None);
    let none = KeyRange { start: "/z".into(), end: RangeEnd::Before("/a".into()) };
    assert_eq!(store.range(RangeRequest::new(none)).await.unwrap().kvs, []);
}

async fn pages_of_one_revision_ignore_later_writes(store: Store, prefix: String) {
    for name in ["a", "b", "c", "d"] {
        put(&store, &format!("{prefix}{name}"), "old").await;
    }
    let all = KeyRange::prefix(&*prefix);
    let first = store.range(RangeRequest::new(all.clone()).limit(2)).await.unwrap();
    put(&store, &format!("{prefix}c"), "new").await;
    delete(&store, &format!("{prefix}d")).await;
    put(&store, &format!("{prefix}e"), "new").await;
    let rest = all.starting_at(first.continue_key().unwrap());
    let second = store.range(RangeRequest::new(rest).at(first.revision)).await.unwrap();
    assert_eq!(pairs(&second.kvs, &prefix), "c=old d=old");
}

async fn every_revision_is_readable_until_compacted(store: Store, prefix: String) {
    let key = format!("{prefix}a");
    let mut versions = Vec::new();
    for i in 0..10 {
        versions.push(put(&store, &key, &i.to_string()).await.kv);
    }
    let deleted = delete(&store, &key).await;
    for kv in &versions {
        let expected = format!("a={}", String::from_utf8_lossy(&kv.value));
        assert_eq!(list(&store, &prefix, kv.mod_revision).await.unwrap(), expected);
    }
    assert_eq!(list(&store, &prefix, deleted.revision()).await.unwrap(), "");
}

async fn a_revision_still_to_come_is_an_error(store: Store, prefix: String) {
    let future = store.revision().await.unwrap() + 1_000_000;
    let error = list(&store, &prefix, future).await.unwrap_err();
    assert!(matches!(error, Error::FutureRevision { .. }), "{error:?}");
    let error = store.compact(future).await.unwrap_err();
    assert!(matches!(error, Error::FutureRevision { .. }), "{error:?}");
}

async fn a_transaction_is_one_change(store: Store, prefix: String) {
    let (a, b, c) = (format!("{prefix}a"), format!("{prefix}b"), format!("{prefix}c"));
    put(&store, &b, "old").await;
    let txn = Txn {
        success: vec![
            Op::put(&*a, "1", 0),
            Op::Delete(KeyRange::key(&*b)),
            Op::put(&*c, "3", 0),
            Op::Range(RangeRequest::new(KeyRange::prefix(&*prefix))),
        ],
        ..Txn::default()
    };
    let response = store.txn(txn).await.unwrap();
    assert!(response.succeeded);
    let [
        OpResponse::Put(put_a),
        OpResponse::Delete(deleted),
        OpResponse::Put(_),
        OpResponse::Range(seen),
    ] = &response.responses[..]
    else {
        panic!("{response:?}")
    };
    assert_eq!(put_a.revision(), response.revision);
    assert_eq!(changes(deleted, &prefix), "-b(old)");
    assert_eq!(pairs(&seen.kvs, &prefix), "a=1 c=3", "a transaction reads its own writes");
    let kv = store.get(c.as_bytes()).await.unwrap().unwrap();
    assert_eq!(kv.mod_revision, response.revision);
}

async fn a_failed_comparison_takes_the_other_branch(store: Store, prefix: String) {
    let (a, b) = (format!("{prefix}a"), format!("{prefix}b"));
    let kv = put(&store, &a, "1").await.kv;
    let before = store.revision().await.unwrap();
    let txn = Txn {
        compare: vec![
            Compare::mod_revision(&*a, kv.mod_revision),
            Compare::mod_revision(&*b, kv.mod_revision),
        ],
        success: vec![Op::put(&*a, "2", 0)],
        failure: vec![Op::get(&*a)],
        ..Txn::default()
    };
    let response = store.txn(txn).await.unwrap();
    assert!(!response.succeeded && response.revision >= before);
    let OpResponse::Range(range) = &response.responses[0] else { panic!("{response:?}") };
    assert_eq!(range.kvs, [kv]);
}

async fn every_comparison_means_what_it_says(store: Store, prefix: String) {
    use Relation::*;
    let key = format!("{prefix}a");
    let created = put(&store, &key, "m").await.kv;
    let now = put(&store, &key, "n").await.kv;
    let (a, none) = (KeyRange::key(&*key), KeyRange::key(format!("{prefix}none")));
    for (range, relation, target, holds) in [
        (&a, Equal, Target::Version(2), true),
        (&a, NotEqual, Target::Version(2), false),
        (&a, Equal, Target::CreateRevision(created.mod_revision), true),
        (&a, Less, Target::ModRevision(now.mod_revision), false),
        (&a, Greater, Target::ModRevision(created.mod_revision), true),
        (&a, Equal, Target::Value("n".into()), true),
        (&a, Less, Target::Value("o".into()), true),
        (&a, Equal, Target::Lease(0), true),
        (&none, Equal, Target::Version(0), true),
        (&none, Equal, Target::CreateRevision(0), true),
        (&none, Equal, Target::Value("".into()), false),
        (&KeyRange::prefix(&*prefix), Equal, Target::Version(2), true),
    ] {
        let compare = Compare { range: range.clone(), relation, target };
        let txn = Txn { compare: vec![compare.clone()], ..Txn::default() };
        assert_eq!(store.txn(txn).await.unwrap().succeeded, holds, "{compare:?}");
    }
}

async fn a_key_is_written_once_in_a_transaction(store: Store, prefix: String) {
    let key = format!("{prefix}a");
    for second in [Op::put(&*key, "2", 0), Op::Delete(KeyRange::prefix(&*prefix))] {
        let txn = Txn { success: vec![Op::put(&*key, "1", 0), second], ..Txn::default() };
        let error = store.txn(txn).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    }
    let many = (0..=MAX_TXN_OPS).map(|i| Op::get(format!("{prefix}{i}"))).collect();
    let error = store.txn(Txn { success: many, ..Txn::default() }).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    assert_eq!(list(&store, &prefix, 0).await.unwrap(), "");
}

async fn a_watch_begins_now_or_in_the_past(store: Store, prefix: String) {
    let key = format!("{prefix}a");
    let first = put(&store, &key, "1").await;
    put(&store, &key, "2").await;
    delete(&store, &key).await;
    let range = KeyRange::prefix(&*prefix);
    let mut now = store.watch(range.clone(), 0).await.unwrap();
    let mut past = store.watch(range.clone(), first.revision() + 1).await.unwrap();
    let third = put(&store, &key, "3").await;
    assert_eq!(changes(&read(&mut now, 1).await, &prefix), "+a=3");
    assert_eq!(changes(&read(&mut past, 3).await, &prefix), "a=2(1) -a(2) +a=3");
    // One that begins in the future waits for it.
    let mut future = store.watch(range, third.revision() + 1).await.unwrap();
    put(&store, &key, "4").await;
    assert_eq!(changes(&read(&mut future, 1).await, &prefix), "a=4(3)");
}

async fn a_watch_sees_its_range_only(store: Store, prefix: String) {
    let from = store.revision().await.unwrap() + 1;
    let one = KeyRange::key(format!("{prefix}pods/b"));
    let mut one = store.watch(one, from).await.unwrap();
    let mut pods = store.watch(KeyRange::prefix(format!("{prefix}pods/")), from).await.unwrap();
    for key in ["pods/a", "pod", "podt", "pods/b", "pods0", "services/a"] {
        put(&store, &format!("{prefix}{key}"), "").await;
    }
    put(&store, &format!("{prefix}pods/b"), "end").await;
    assert_eq!(changes(&read(&mut one, 2).await, &prefix), "+pods/b= pods/b=end()");
    let pods = read(&mut pods, 3).await;
    assert_eq!(changes(&pods, &prefix), "+pods/a= +pods/b= pods/b=end()");
}

async fn a_watch_never_splits_a_revision(store: Store, prefix: String) {
    let from = store.revision().await.unwrap() + 1;
    let mut watch = store.watch(KeyRange::prefix(&*prefix), from).await.unwrap();
    for round in 0..30 {
        let puts = (0..50).map(|i| Op::put(format!("{prefix}{i}"), round.to_string(), 0));
        store.txn(Txn { success: puts.collect(), ..Txn::default() }).await.unwrap();
    }
    let (mut seen, mut last) = (0, 0);
    while seen < 30 * 50 {
        let batch = watch.next().await.unwrap();
        for events in batch.events.chunk_by(|a, b| a.revision() == b.revision()) {
            assert_eq!(events.len(), 50);
            assert!(events[0].revision() > last, "revisions rise");
            last = events[0].revision();
        }
        assert!(batch.revision >= last);
        seen += batch.events.len();
    }
}

async fn compaction(store: Store, prefix: String) {
    let key = format!("{prefix}a");
    let mut revisions = Vec::new();
    for i in 0..5 {
        revisions.push(put(&store, &key, &i.to_string()).await.revision());
    }
    store.compact(revisions[2]).await.unwrap();
    let error = list(&store, &prefix, revisions[1]).await.unwrap_err();
    assert!(matches!(error, Error::Compacted { .. }), "{error:?}");
    for (i, revision) in revisions.iter().enumerate().skip(2) {
        assert_eq!(list(&store, &prefix, *revision).await.unwrap(), format!("a={i}"));
    }
    let error = store.compact(revisions[2]).await.unwrap_err();
    assert!(matches!(error, Error::Compacted { .. }), "{error:?}");
    let range = KeyRange::prefix(&*prefix);
    let refused = match store.watch(range.clone(), revisions[1]).await {
        Ok(mut watch) => watch.next().await.unwrap_err(),
        Err(error) => error,
    };
    let Error::Compacted { compacted, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(compacted, revisions[2]);
    let mut watch = store.watch(range, revisions[2] + 1).await.unwrap();
    let events = read(&mut watch, 2).await;
    assert_eq!(events.iter().map(Event::revision).collect::<Vec<_>>(), revisions[3..]);
}

async fn a_watch_reports_progress(store: Store, prefix: String) {
    if !store.answers_progress() {
        return;
    }
    let mut watch = store.watch(KeyRange::prefix(format!("{prefix}a")), 0).await.unwrap();
    let elsewhere = put(&store, &format!("{prefix}b"), "1").await.revision();
    loop {
        watch.progress().request();
        let batch = watch.next().await.unwrap();
        assert_eq!(batch.events, []);
        if batch.revision >= elsewhere {
            break;
        }
    }
}

async fn a_long_history_arrives_whole_and_in_order(store: Store, prefix: String) {
    let from = store.revision().await.unwrap() + 1;
    for round in 0..40 {
        let puts = (0..100).map(|i| Op::put(format!("{prefix}{i}"), round.to_string(), 0));
        store.txn(Txn { success: puts.collect(), ..Txn::default() }).await.unwrap();
    }
    let mut watch = store.watch(KeyRange::prefix(&*prefix), from).await.unwrap();
    let events = read(&mut watch, 4000).await;
    assert_eq!(events.len(), 4000);
    for (i, event) in events.iter().enumerate() {
        assert_eq!(event.kv.value, (i / 100).to_string());
        assert_eq!(event.prev.is_none(), i < 100);
    }
}

async fn keys_of_a_lease_go_with_it(store: Store, prefix: String) {
    let lease = store.grant(600).await.unwrap();
    let (a, b) = (format!("{prefix}a"), format!("{prefix}b"));
    let options = WriteOptions::lease(lease);
    let kv = store.create(&*a, "1", options).await.unwrap().applied().unwrap().kv;
    assert_eq!(kv.lease, lease);
    let taken = store.create(&*b, "1", options).await.unwrap().applied().unwrap().kv;
    // Written again without the lease, a key stays.
    let kept = store.update(&*b, "2", taken.mod_revision, WriteOptions::default()).await.unwrap();
    assert!(kept.applied().is_some());
    let mut watch = store.watch(KeyRange::prefix(&*prefix), 0).await.unwrap();
    store.revoke(lease).await.unwrap();
    assert_eq!(changes(&read(&mut watch, 1).await, &prefix), "-a(1)");
    assert_eq!(list(&store, &prefix, 0).await.unwrap(), "b=2");
}

async fn an_expired_lease_takes_its_keys(store: Store, prefix: String) {
    let lease = store.grant(1).await.unwrap();
    let mut watch = store.watch(KeyRange::prefix(&*prefix), 0).await.unwrap();
    for name in ["a", "b"] {
        let created =
            store.create(format!("{prefix}{name}"), "1", WriteOptions::lease(lease)).await.unwrap();
        assert!(created.applied().is_some());
    }
    let events = read(&mut watch, 4).await;
    assert_eq!(changes(&events, &prefix), "+a=1 +b=1 -a(1) -b(1)");
    assert!(matches!(store.keep_alive(lease).await, Err(Error::LeaseNotFound(_))));
}

async fn a_renewed_lease_lives_on(store: Store, prefix: String) {
    let lease = store.grant(3).await.unwrap();
    let twin = store.grant(3).await.unwrap();
    for (name, lease) in [("renewed", lease), ("left", twin)] {
        let created =
            store.create(format!("{prefix}{name}"), "1", WriteOptions::lease(lease)).await.unwrap();
        assert!(created.applied().is_some());
    }
    let mut watch = store.watch(KeyRange::prefix(&*prefix), 0).await.unwrap();
    let renewals = async {
        let mut often = tokio::time::interval(Duration::from_millis(500));
        loop {
            often.tick().await;
            assert_eq!(store.keep_alive(lease).await.unwrap(), 3);
        }
    };
    tokio::select! {
        events = read(&mut watch, 1) => assert_eq!(changes(&events, &prefix), "-left(1)"),
        () = renewals => unreachable!(),
    }
    assert_eq!(list(&store, &prefix, 0).await.unwrap(), "renewed=1");
}

async fn a_lease_must_exist(store: Store, prefix: String) {
    const NONE: LeaseId = 0x7777;
    let created = store.create(format!("{prefix}a"), "1", WriteOptions::lease(NONE)).await;
    assert!(matches!(created, Err(Error::LeaseNotFound(_))), "{created:?}");
    assert!(matches!(store.revoke(NONE).await, Err(Error::LeaseNotFound(_))));
    assert!(matches!(store.keep_alive(NONE).await, Err(Error::LeaseNotFound(_))));
    assert_eq!(list(&store, &prefix, 0).await.unwrap(), "");
}

async fn the_size_of_a_request_is_limited(store: Store, prefix: String) {
    let large = vec![b'x'; MAX_REQUEST_BYTES - 1024];
    let created = store.create(format!("{prefix}a"), large.clone(), WriteOptions::default()).await;
    assert!(created.unwrap().applied().is_some());
    assert_eq!(store.get(format!("{prefix}a").as_bytes()).await.unwrap().unwrap().value, large);
    let too_large = vec![b'x'; MAX_REQUEST_BYTES + 1];
    let refused = store.create(format!("{prefix}b"), too_large, WriteOptions::default()).await;
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    let half = vec![b'x'; MAX_REQUEST_BYTES / 2 + 1];
    let puts = ["c", "d"].map(|name| Op::put(format!("{prefix}{name}"), half.clone(), 0));
    let refused = store.txn(Txn { success: puts.into(), ..Txn::default() }).await;
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
}

async fn keys_and_values_are_any_bytes(store: Store, prefix: String) {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for tail in [&[0u8][..], &[0, 0], &[1], &[0x7f], &[0x80], &[0xff], &[0xff, 0xff]] {
        let key = [prefix.as_bytes(), tail].concat();
        let value = tail.to_vec();
        let created = store.create(key.clone(), value, WriteOptions::default()).await.unwrap();
        assert!(created.applied().is_some());
        keys.push(key);
    }
    let all = store.range(RangeRequest::new(KeyRange::prefix(&*prefix))).await.unwrap();
    assert_eq!(all.kvs.iter().map(|kv| kv.key.to_vec()).collect::<Vec<_>>(), keys);
    for kv in all.kvs {
        assert_eq!(kv.value, kv.key[prefix.len()..]);
    }
}

async fn concurrent_creators_have_one_winner(store: Store, prefix: String) {
    let racers: Vec<_> = (0..32)
        .map(|i| {
            let (store, key) = (store.clone(), format!("{prefix}a"));
            tokio::spawn(async move {
                store.create(key, i.to_string(), WriteOptions::default()).await.unwrap()
            })
        })
        .collect();
    let mut winners = Vec::new();
    let mut losers = Vec::new();
    for racer in racers {
        match racer.await.unwrap() {
            Outcome::Applied(event) => winners.push(event.kv),
            Outcome::Conflict(current) => losers.push(current),
        }
    }
    assert_eq!(winners.len(), 1);
    assert!(losers.iter().all(|current| current.as_ref() == Some(&winners[0])));
}
