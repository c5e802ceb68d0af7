//! What the embedded engine owes beyond the contract: durability, space, quiet.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use store::embedded::backup::{self, BackupError};
use store::embedded::{Clock, Embedded, MAX_UNSYNCED, OpenError, Options};
use store::*;

use crate::sim_disk::{Faults, SimDisk};

/// Time that the test moves.
#[derive(Clone, Default)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub fn clock(&self) -> Clock {
        let millis = self.0.clone();
        Clock::new(move || Duration::from_millis(millis.load(Ordering::SeqCst)))
    }

    pub fn advance(&self, engine: &Embedded, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
        engine.tick();
    }
}

fn small(clock: &TestClock) -> Options {
    Options { segment_size: 64 << 10, clock: clock.clock(), ..Options::default() }
}

fn open(disk: &SimDisk, options: &Options) -> Embedded {
    Embedded::open_disk(Arc::new(disk.clone()), options.clone()).unwrap()
}

async fn write(engine: &Embedded, key: &str, value: impl Into<bytes::Bytes>) -> Result<Revision> {
    let txn = Txn { success: vec![Op::put(key, value, 0)], ..Txn::default() };
    engine.txn(txn).await.map(|response| response.revision)
}

async fn remove(engine: &Embedded, prefix: &str) -> Result<Revision> {
    let txn = Txn { success: vec![Op::Delete(KeyRange::prefix(prefix))], ..Txn::default() };
    engine.txn(txn).await.map(|response| response.revision)
}

async fn try_renew(engine: &Embedded, key: &str, value: &str) -> Result<Revision> {
    let put = Op::put(key, value.to_owned(), 0);
    let txn = Txn { success: vec![put], durability: Durability::Coalescible, ..Txn::default() };
    engine.txn(txn).await.map(|response| response.revision)
}

async fn renew(engine: &Embedded, key: &str, value: &str) -> Revision {
    try_renew(engine, key, value).await.unwrap()
}

fn value(engine: &Embedded, key: &str) -> Option<String> {
    engine.get(key.as_bytes()).map(|kv| String::from_utf8_lossy(&kv.value).into_owned())
}

/// Waits for what background work brings about; the test's own time limit bounds it.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let (disk, clock) = (SimDisk::default(), TestClock::default());
    let options = small(&clock);
    let engine = open(&disk, &options);
    let lease = engine.grant(0, 60).await.unwrap();
    let first = write(&engine, "/a", "1").await.unwrap();
    write(&engine, "/a", "2").await.unwrap();
    write(&engine, "/b", "1").await.unwrap();
    let leased = Txn { success: vec![Op::put("/c", "1", lease)], ..Txn::default() };
    engine.txn(leased).await.unwrap();
    let last = remove(&engine, "/b").await.unwrap();
    for _ in 0..3 {
        // Closed properly, then not at all: the state is the same.
        let all = engine.range(&RangeRequest::new(KeyRange::prefix(""))).unwrap();
        engine.close().await;
        let engine = open(&disk, &options);
        assert_eq!(engine.revision(), last);
        assert_eq!(engine.range(&RangeRequest::new(KeyRange::prefix(""))).unwrap(), all);
        // History too: a client resumes its watch over the restart.
        let mut watch = engine.watch(KeyRange::prefix(""), first + 1).unwrap();
        let events = watch.next().await.unwrap().events;
        let revisions: Vec<_> = events.iter().map(Event::revision).collect();
        assert_eq!(revisions, (first + 1..=last).collect::<Vec<_>>());
        assert_eq!(events[0].prev.as_ref().unwrap().value, "1");
        assert_eq!(engine.lease(lease).unwrap().keys, [Key::from("/c")]);
    }
    let engine = open(&disk, &options);
    clock.advance(&engine, Duration::from_secs(61));
    eventually("the lease expires", || engine.get(b"/c").is_none()).await;
}

#[tokio::test]
async fn a_coalescible_write_costs_no_sync_until_it_is_due() {
    let (disk, clock) = (SimDisk::default(), TestClock::default());
    let engine = open(&disk, &Options { segment_size: 1 << 20, ..small(&clock) });
    write(&engine, "/a", "1").await.unwrap();
    eventually("the spare segments are there", || disk.names().len() == 5).await;
    let before = disk.syncs();
    for i in 0..100 {
        renew(&engine, "/lease", &i.to_string()).await;
    }
    assert_eq!((disk.syncs() - before, value(&engine, "/lease")), (0, Some("99".into())));
    clock.advance(&engine, Duration::from_secs(11));
    eventually("the flush", || disk.syncs() == before + 1).await;
    // Unsynced revisions are bounded, or the revision could not be kept from going back.
    let before = disk.syncs();
    for i in 0..=MAX_UNSYNCED {
        renew(&engine, "/lease", &i.to_string()).await;
    }
    assert_eq!(disk.syncs() - before, 1);
}

#[tokio::test]
async fn a_power_cut_loses_coalescible_writes_and_nothing_else() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut lost = 0;
    for round in 0..200 {
        let (disk, clock) = (SimDisk::default(), TestClock::default());
        let options = small(&clock);
        let engine = open(&disk, &options);
        renew(&engine, "/lease", "safe").await;
        // A durable write takes the renewals before it along.
        write(&engine, "/pod", "1").await.unwrap();
        let mut seen = 0;
        for i in 0..random.u32(0..40) {
            seen = renew(&engine, "/lease", &i.to_string()).await;
        }
        disk.set_faults(Faults { dies_after: Some(0), ..Faults::default() });
        drop(engine);
        disk.cut_power(|| random.bool());
        let engine = open(&disk, &options);
        assert_eq!(value(&engine, "/pod").as_deref(), Some("1"), "round {round}");
        let lease = engine.get(b"/lease").unwrap();
        lost += u64::from(lease.mod_revision < seen);
        let next = write(&engine, "/pod", "2").await.unwrap();
        assert!(next > seen, "revision {seen} was given twice");
        // Who saw a lost renewal must not resume as if nothing had happened.
        let resumed = engine.watch(KeyRange::prefix(""), seen + 1);
        assert!(seen == 0 || matches!(resumed, Err(Error::Compacted { .. })));
    }
    assert!(lost > 50, "the disk of this test should lose unsynced writes, and lost {lost}");
}

#[tokio::test]
async fn killing_the_process_loses_no_coalescible_write() {
    let (disk, clock) = (SimDisk::default(), TestClock::default());
    let options = small(&clock);
    let engine = open(&disk, &options);
    write(&engine, "/pod", "1").await.unwrap();
    let seen = renew(&engine, "/lease", "1").await;
    // The process dies: nothing more is written, but what the kernel has, it keeps.
    disk.set_faults(Faults { dies_after: Some(0), ..Faults::default() });
    drop(engine);
    disk.set_faults(Faults::default());
    let engine = open(&disk, &options);
    assert_eq!((value(&engine, "/lease").as_deref(), engine.revision()), (Some("1"), seen));
    assert!(engine.watch(KeyRange::prefix(""), seen).is_ok(), "history is still there");
}

#[tokio::test]
async fn a_failed_sync_or_write_is_survived() {
    for faults in [
        Faults { failed_sync: 200, ..Faults::default() },
        Faults { failed_write: 200, ..Faults::default() },
        Faults { short_write: 500, ..Faults::default() },
    ] {
        let (disk, clock) = (SimDisk::default(), TestClock::default());
        let options = small(&clock);
        let engine = open(&disk, &options);
        disk.set_faults(Faults { random: Some(fastrand::Rng::with_seed(2)), ..faults });
        let mut acknowledged = Vec::new();
        for i in 0..200 {
            let key = format!("/{i}");
            match write(&engine, &key, "1").await {
                Ok(revision) => acknowledged.push((key, revision)),
                Err(error) => assert!(matches!(error, Error::Unavailable(_)), "{error}"),
            }
            if let Err(error) = try_renew(&engine, "/lease", &i.to_string()).await {
                assert!(matches!(error, Error::Unavailable(_)), "{error}");
            }
        }
        assert!(acknowledged.len() > 100);
        let renewed = engine.get(b"/lease").unwrap();
        drop(engine);
        // The close may have failed to sync what was renewed last.
        let mut random = fastrand::Rng::with_seed(3);
        disk.cut_power(|| random.bool());
        let engine = open(&disk, &options);
        for (key, revision) in acknowledged {
            assert_eq!(
                engine.get(key.as_bytes()).map(|kv| kv.mod_revision),
                Some(revision),
                "{key}"
            );
        }
        assert!(engine.revision() >= renewed.mod_revision);
    }
}

/// A renewal, then a write that fails in its segment and in the next one, too.
async fn renewed_and_failed(disk: &SimDisk, options: &Options, failing: [u32; 2]) -> Revision {
    let engine = open(disk, options);
    write(&engine, "/pod", "1").await.unwrap();
    let seen = renew(&engine, "/lease", "1").await;
    engine.settle().await;
    disk.set_faults(Faults { failing: failing.into(), ..Faults::default() });
    assert!(write(&engine, "/pod", "2").await.is_err());
    engine.settle().await;
    disk.set_faults(Faults { dies_after: Some(0), ..Faults::default() });
    drop(engine);
    disk.set_faults(Faults::default());
    seen
}

#[tokio::test]
async fn a_segment_given_up_keeps_its_tail_until_the_next_one_is_durable() {
    // The janitor cut it at once, and with it the only copy of what was renewed: the revision
    // went back.
    let (disk, clock) = (SimDisk::default(), TestClock::default());
    let options = small(&clock);
    let (write_frame, begin_segment) = (1, 2);
    let seen = renewed_and_failed(&disk, &options, [write_frame, begin_segment]).await;
    let engine = open(&disk, &options);
    assert_eq!((value(&engine, "/lease").as_deref(), engine.revision()), (Some("1"), seen));
}

#[tokio::test]
async fn what_a_failed_sync_left_in_memory_is_written_again() {
    // The kernel keeps the pages but never writes them; the next process reads them all the same,
    // and a later power cut made it refuse to start.
    let (disk, clock) = (SimDisk::default(), TestClock::default());
    let options = small(&clock);
    let (sync_frame, sync_segment) = (2, 4);
    let seen = renewed_and_failed(&disk, &options, [sync_frame, sync_segment]).await;
    let engine = open(&disk, &options);
    let served = value(&engine, "/pod");
    assert_eq!(value(&engine, "/lease").as_deref(), Some("1"));
    assert!(engine.revision() >= seen);
    write(&engine, "/more", "1").await.unwrap();
    disk.set_faults(Faults { dies_after: Some(0), ..Faults::default() });
    drop(engine);
    disk.cut_power(|| false);
    let engine = open(&disk, &options);
    assert_eq!(value(&engine, "/lease").as_deref(), Some("1"));
    assert_eq!((value(&engine, "/pod"), value(&engine, "/more")), (served, Some("1".into())));
}

#[tokio::test]
async fn history_is_compacted_and_its_space_given_back() {
    let (disk, clock) = (SimDisk::default(), TestClock::default());
    let options = small(&clock);
    let engine = open(&disk, &options);
    for round in 0..40 {
        for key in 0..10 {
            write(&engine, &format!("/{key}"), vec![round; 4000]).await.unwrap();
        }
        clock.advance(&engine, Duration::from_secs(30));
    }
    assert!(disk.written() > 40 * 10 * 4000);
    eventually("history is gone", || {
        clock.advance(&engine, Duration::from_secs(301));
        engine.stats().history_events == 0
    })
    .await;
    let bound = 10 * 4100 * 2 + (2 + 1 + 3 + 1) * (64 << 10);
    eventually("space is given back", || disk.used() <= bound).await;
    // What remains is all there, also for a new process.
    drop(engine);
    let engine = open(&disk, &options);
    for key in 0..10 {
        assert_eq!(engine.get(format!("/{key}").as_bytes()).unwrap().value, vec![39; 4000]);
    }
}

#[tokio::test]
async fn history_is_bounded_in_bytes_too() {
    let (disk, clock) = (SimDisk::default(), TestClock::default());
    let engine = open(&disk, &Options { history_bytes: 100_000, ..small(&clock) });
    for i in 0..1000 {
        write(&engine, "/a", i.to_string().repeat(500)).await.unwrap();
    }
    eventually("history shrinks", || engine.stats().history_events < 100).await;
}

#[tokio::test]
async fn a_deleted_key_never_comes_back() {
    // Versions and tombstones are moved about by the janitor while keys come and go; every
    // restart must find exactly what was there.
    let mut random = fastrand::Rng::with_seed(4);
    let (disk, clock) = (SimDisk::default(), TestClock::default());
    let options =
        Options { segment_size: 8 << 10, history: Duration::from_secs(10), ..small(&clock) };
    let mut model = std::collections::BTreeMap::new();
    for _ in 0..30 {
        let engine = open(&disk, &options);
        for _ in 0..100 {
            let key = format!("/{}", random.u32(0..40));
            if random.bool() {
                let value = random.u64(..).to_string().repeat(20);
                write(&engine, &key, value.clone()).await.unwrap();
                model.insert(key, value);
            } else {
                let one = Txn { success: vec![Op::Delete(KeyRange::key(&*key))], ..Txn::default() };
                engine.txn(one).await.unwrap();
                model.remove(&key);
            }
            clock.advance(&engine, Duration::from_millis(random.u64(0..1000)));
        }
        let all = engine.range(&RangeRequest::new(KeyRange::prefix(""))).unwrap();
        let found = all
            .kvs
            .iter()
            .map(|kv| (kv.key.to_string(), String::from_utf8_lossy(&kv.value).into_owned()));
        assert!(found.eq(model.clone()));
    }
    assert!(disk.used() < 40 * 500 * 3 + 40 * (8 << 10), "the log was cleaned: {}", disk.used());
}

/// On disks of several sizes: a segment that is given back is seldom as long as the next one, and
/// how much is left between them makes the difference.
#[tokio::test]
async fn a_full_disk_takes_deletions_and_recovers() {
    for more in 0..16 {
        check_full_disk((2 << 20) + more * 4099).await;
    }
}

async fn check_full_disk(capacity: usize) {
    let (disk, clock) = (SimDisk::default(), TestClock::default());
    let options = small(&clock);
    let engine = open(&disk, &options);
    disk.set_faults(Faults { capacity: Some(capacity), ..Faults::default() });
    let mut written = 0;
    let error = loop {
        match write(&engine, &format!("/fill/{written:04}"), vec![7; 4000]).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace(_)), "{error:?}");
    assert!(written > 300, "most of the disk was used: {written}");
    // Still full, still whole, and still deleting.
    assert!(matches!(write(&engine, "/more", vec![7; 4000]).await, Err(Error::NoSpace(_))));
    assert!(engine.stats().disk_full);
    assert_eq!(engine.stats().keys, written);
    for i in 0..written / 2 {
        remove(&engine, &format!("/fill/{i:04}")).await.unwrap();
    }
    engine.compact(engine.revision()).await.or_else(already_compacted).unwrap();
    eventually("there is space again", || !engine.stats().disk_full).await;
    for i in 0..written / 4 {
        // The janitor may need a moment for each segment; it must never need for ever.
        let limit = tokio::time::Instant::now() + Duration::from_secs(20);
        while let Err(error) = write(&engine, &format!("/again/{i:04}"), vec![8; 4000]).await {
            assert!(matches!(error, Error::NoSpace(_)), "{error:?}");
            assert!(tokio::time::Instant::now() < limit, "no space for key {i}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    assert!(disk.used() <= capacity);
    let keys = engine.stats().keys;
    drop(engine);
    assert_eq!(open(&disk, &options).stats().keys, keys);
}

/// A full disk compacts by itself, and may have been faster.
fn already_compacted(error: Error) -> Result<()> {
    if matches!(error, Error::Compacted { .. }) { Ok(()) } else { Err(error) }
}

#[tokio::test]
async fn a_torn_tail_is_dropped_and_damage_is_reported() {
    let (disk, clock) = (SimDisk::default(), TestClock::default());
    let options = small(&clock);
    let engine = open(&disk, &options);
    for i in 0..20 {
        write(&engine, &format!("/{i:02}"), vec![b'x'; 1000]).await.unwrap();
    }
    let segment = disk.names()[0].clone();
    disk.set_faults(Faults { dies_after: Some(0), ..Faults::default() });
    drop(engine);
    disk.set_faults(Faults::default());
    let whole = {
        let mut bytes = Vec::new();
        disk.tamper(&segment, |b| bytes = b.clone());
        bytes
    };
    let end = whole.iter().rposition(|b| *b != 0).unwrap();
    for at in (0..end).step_by(37) {
        for tear in [true, false] {
            let copy = SimDisk::default();
            store::embedded::disk::Disk::create(&copy, &segment, 0).unwrap();
            copy.tamper(&segment, |bytes| {
                *bytes = whole.clone();
                if tear { bytes[at..].fill(0) } else { bytes[at] ^= 0x55 }
            });
            let opened = Embedded::open_disk(Arc::new(copy), options.clone());
            match opened {
                // Torn: the writes before the tear, all of them, and nothing half.
                Ok(engine) => {
                    let all = engine.range(&RangeRequest::new(KeyRange::prefix(""))).unwrap().kvs;
                    let last_frame = end - 1100;
                    assert!(tear || at > last_frame, "damage at {at} went unnoticed");
                    for (i, kv) in all.iter().enumerate() {
                        assert_eq!(*kv.key, *format!("/{i:02}").as_bytes());
                        assert_eq!(kv.value.len(), 1000);
                    }
                }
                Err(error) => {
                    assert!(!tear, "{error}");
                    assert!(matches!(&error, OpenError::Damaged { .. }), "{error}");
                    assert!(error.to_string().contains("skiff restore"), "{error}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_missing_segment_is_reported() {
    let (disk, clock) = (SimDisk::default(), TestClock::default());
    let options = small(&clock);
    for i in 0..3 {
        let engine = open(&disk, &options);
        write(&engine, &format!("/{i}"), "1").await.unwrap();
        engine.close().await;
    }
    let second = disk.names()[1].clone();
    disk.remove_file(&second);
    let opened = Embedded::open_disk(Arc::new(disk), options);
    assert!(matches!(opened, Err(OpenError::Missing { segment }) if segment == second));
}

#[tokio::test]
async fn only_their_owner_reads_what_is_on_disk() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (store, backup) = (folder.path().join("store"), folder.path().join("backup"));
    let engine = Embedded::open(&store, Options::default()).unwrap();
    engine.backup(&backup).unwrap();
    let others =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o077;
    assert_eq!((others(&store), others(&backup)), (0, 0));
    let files: Vec<_> = std::fs::read_dir(&store).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(files.len() > 1, "{files:?}");
    assert!(files.iter().all(|file| others(file) == 0), "{files:?}");
}

#[tokio::test]
async fn a_backup_restores_what_was_there() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let engine = Embedded::open(&path("data"), Options::default()).unwrap();
    let lease = engine.grant(0, 600).await.unwrap();
    for i in 0..5000 {
        let put = Op::put(format!("/{i:04}"), vec![1; i % 700], if i == 0 { lease } else { 0 });
        engine
            .txn(Txn { success: vec![put], durability: Durability::Coalescible, ..Txn::default() })
            .await
            .unwrap();
    }
    // Taken while writers write: as of one revision.
    let writer = tokio::spawn({
        let engine = engine.clone();
        async move {
            for i in 0..300 {
                write(&engine, &format!("/new/{i}"), "1").await.unwrap();
            }
        }
    });
    let (taking, file) = (engine.clone(), path("backup"));
    let info = tokio::task::spawn_blocking(move || taking.backup(&file).unwrap()).await.unwrap();
    writer.await.unwrap();
    let then = engine.range(&RangeRequest::new(KeyRange::prefix("")).at(info.revision)).unwrap();
    let restored = backup::restore(&path("backup"), &path("restored"), 0).unwrap();
    assert_eq!(restored, info);
    let copy = Embedded::open(&path("restored"), Options::default()).unwrap();
    assert_eq!(copy.range(&RangeRequest::new(KeyRange::prefix(""))).unwrap().kvs, then.kvs);
    assert_eq!((copy.revision(), copy.leases()), (info.revision, vec![lease]));
    assert!(write(&copy, "/more", "1").await.unwrap() > info.revision);
    assert!(matches!(copy.watch(KeyRange::prefix(""), 1), Err(Error::Compacted { .. })));
    // A raised revision, for a cluster whose clients have seen more than the backup has.
    backup::restore(&path("backup"), &path("raised"), 1_000_000).unwrap();
    let raised = Embedded::open(&path("raised"), Options::default()).unwrap();
    assert_eq!(raised.revision(), info.revision + 1_000_000);
    assert!(matches!(
        backup::restore(&path("backup"), &path("raised"), 0),
        Err(BackupError::NotEmpty { .. })
    ));
}

#[tokio::test]
async fn a_damaged_backup_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let engine = Embedded::open(&path("data"), Options::default()).unwrap();
    for i in 0..20 {
        write(&engine, &format!("/{i}"), "value").await.unwrap();
    }
    engine.backup(&path("backup")).unwrap();
    let whole = std::fs::read(path("backup")).unwrap();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        for bytes in [&flipped[..], &whole[..at]] {
            std::fs::write(path("bad"), bytes).unwrap();
            assert!(backup::restore(&path("bad"), &path("restored"), 0).is_err(), "at {at}");
        }
    }
    assert!(!path("restored").exists());
}

#[tokio::test]
async fn what_can_be_read_of_a_damaged_store_is_salvaged() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let engine = Embedded::open(&path("data"), Options::default()).unwrap();
    for i in 0..50 {
        write(&engine, &format!("/{i:02}"), "value").await.unwrap();
    }
    remove(&engine, "/00").await.unwrap();
    let revision = engine.revision();
    engine.close().await;
    drop(engine);
    let segment = path("data").join("0000000000000001.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    let hit = bytes.windows(3).position(|w| w == b"/25").unwrap();
    bytes[hit] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let opened = Embedded::open(&path("data"), Options::default());
    assert!(matches!(opened, Err(OpenError::Damaged { .. })));
    let info = backup::salvage(&path("data"), &path("backup")).unwrap();
    assert_eq!(info, backup::BackupInfo { revision, keys: 48 });
    backup::restore(&path("backup"), &path("restored"), 0).unwrap();
    let restored = Embedded::open(&path("restored"), Options::default()).unwrap();
    for i in 0..50 {
        let expected = (i != 0 && i != 25).then(|| "value".to_owned());
        assert_eq!(value(&restored, &format!("/{i:02}")), expected, "{i}");
    }
}

#[tokio::test]
async fn a_directory_has_one_owner() {
    let place = tempfile::tempdir().unwrap();
    let engine = Embedded::open(place.path(), Options::default()).unwrap();
    let second = Embedded::open(place.path(), Options::default()).err().unwrap();
    assert!(matches!(second, OpenError::Io { .. }));
    drop(engine);
    assert!(Embedded::open(place.path(), Options::default()).is_ok());
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let (disk, clock) = (SimDisk::default(), TestClock::default());
    let engine = open(&disk, &small(&clock));
    let mut watch = engine.watch(KeyRange::prefix(""), 0).unwrap();
    engine.close().await;
    assert!(matches!(write(&engine, "/a", "1").await, Err(Error::Unavailable(_))));
    assert!(matches!(watch.next().await, Err(Error::Unavailable(_))));
}
