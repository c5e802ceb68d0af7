//! Machines that die at any moment, on a simulated disk: thousands of rounds.
//!
//! Each round opens the store that the last one left behind, writes from several tasks while the
//! disk fails at random, stops at a random write or sync, and either kills the process or cuts the
//! power. Then: what was acknowledged is there, nothing is half there, no revision is given twice,
//! and the history tells the same story as the state.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use store::embedded::{Embedded, Options};
use store::*;

use crate::sim_disk::{Faults, SimDisk};

/// More with `STORE_CRASH_ROUNDS`.
const ROUNDS: u64 = 2000;

const TASKS: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Told {
    Durable,
    Coalesced,
    Nothing,
}

/// What a task wrote in order, beginning with what it found.
pub type Written = Vec<(Option<u64>, Told)>;

fn options(random: &mut fastrand::Rng) -> Options {
    Options {
        segment_size: 4 << 10,
        // So short that the janitor is always at work, or so long that it never is.
        history: Duration::from_millis(if random.bool() { 2 } else { 60_000 }),
        flush_interval: Duration::from_millis(5),
        ..Options::default()
    }
}

fn keys(task: u64) -> [String; 2] {
    [format!("/{task}/a"), format!("/{task}/b")]
}

/// Both keys of a task are written together; half a transaction would show.
fn pair(engine: &Embedded, task: u64) -> Option<u64> {
    let [a, b] = keys(task).map(|key| engine.get(key.as_bytes()));
    let number = |kv: &Option<Arc<KeyValue>>| {
        kv.as_ref().map(|kv| String::from_utf8_lossy(&kv.value).trim().parse::<u64>().unwrap())
    };
    assert_eq!(number(&a), number(&b), "half a transaction");
    let revision = |kv: &Option<Arc<KeyValue>>| kv.as_ref().map(|kv| kv.mod_revision);
    assert_eq!(revision(&a), revision(&b));
    number(&a)
}

async fn write(engine: Embedded, task: u64, mut random: fastrand::Rng) -> (Written, Revision) {
    let mut written = vec![(pair(&engine, task), Told::Durable)];
    let mut highest = 0;
    for _ in 0..random.u32(1..40) {
        let value = random.u64(..);
        let delete = random.u8(..) < 40;
        let durability = if random.bool() { Durability::Durable } else { Durability::Coalescible };
        let padding = " ".repeat(random.usize(0..300));
        let op = |key: String| match delete {
            true => Op::Delete(KeyRange::key(key)),
            false => Op::put(key, format!("{value}{padding}"), 0),
        };
        let txn = Txn { success: keys(task).map(op).into(), durability, ..Txn::default() };
        let told = match engine.txn(txn).await {
            // Nothing to delete, nothing written: no promise. (An earlier write that failed may
            // still turn up, until the next change; its outcome was left open.)
            Ok(response) if matches!(&response.responses[0], OpResponse::Delete(e) if e.is_empty()) =>
            {
                continue;
            }
            Ok(response) => {
                highest = highest.max(response.revision);
                if durability == Durability::Durable { Told::Durable } else { Told::Coalesced }
            }
            Err(_) => Told::Nothing,
        };
        written.push(((!delete).then_some(value), told));
    }
    (written, highest)
}

/// What may be found: the last write that had to survive, or any later one.
pub fn possible(written: &Written, power_cut: bool) -> Vec<Option<u64>> {
    let must = |told: Told| told == Told::Durable || told == Told::Coalesced && !power_cut;
    let last = written.iter().rposition(|(_, told)| must(*told)).unwrap();
    written[last..].iter().map(|(value, _)| *value).collect()
}

/// The history since the compaction, applied to the state then, is the state now.
pub async fn check_history(engine: &Embedded) {
    let stats = engine.stats();
    let all = RangeRequest::new(KeyRange::prefix(""));
    let now = engine.range(&all).unwrap();
    let then = match stats.compacted {
        // Before the first revision there was nothing.
        0 => Ok(RangeResponse::default()),
        compacted => engine.range(&all.clone().at(compacted)),
    };
    let Ok(then) = then else { return };
    let Ok(mut watch) = engine.watch(KeyRange::prefix(""), stats.compacted + 1) else { return };
    let mut state: BTreeMap<Key, Arc<KeyValue>> = BTreeMap::new();
    state.extend(then.kvs.into_iter().map(|kv| (kv.key.clone(), kv)));
    // A long history comes in several batches.
    let mut delivered = stats.compacted;
    while delivered < now.revision {
        watch.progress().request();
        // Compacted meanwhile: then there is no history to check.
        let Ok(batch) = watch.next().await else { return };
        delivered = batch.revision;
        for event in batch.events {
            assert_eq!(event.prev.as_ref(), state.get(&event.kv.key), "what an event replaced");
            match event.is_delete() {
                true => drop(state.remove(&event.kv.key)),
                false => drop(state.insert(event.kv.key.clone(), event.kv)),
            }
        }
    }
    assert_eq!(state.into_values().collect::<Vec<_>>(), now.kvs);
}

async fn round(disk: &SimDisk, seed: u64, highest: &mut Revision) {
    let mut random = fastrand::Rng::with_seed(seed);
    let options = options(&mut random);
    let open = || Embedded::open_disk(Arc::new(disk.clone()), options.clone());
    let engine = open().unwrap();
    assert!(engine.revision() >= *highest, "the revision went back");
    let sometimes = |random: &mut fastrand::Rng, rate| if random.bool() { rate } else { 0 };
    disk.set_faults(Faults {
        short_write: sometimes(&mut random, 200),
        failed_write: sometimes(&mut random, 30),
        failed_sync: sometimes(&mut random, 30),
        dies_after: Some(random.u32(0..150)),
        random: Some(random.fork()),
        ..Faults::default()
    });
    let tasks: Vec<_> =
        (0..TASKS).map(|task| tokio::spawn(write(engine.clone(), task, random.fork()))).collect();
    let mut written = Vec::new();
    for task in tasks {
        let (writes, revision) = task.await.unwrap();
        *highest = (*highest).max(revision);
        written.push(writes);
    }
    // Dead: closing it writes no more.
    disk.set_faults(Faults { dies_after: Some(0), ..Faults::default() });
    drop(engine);
    let power_cut = random.bool();
    if power_cut {
        disk.cut_power(|| random.bool());
    }
    disk.set_faults(Faults::default());
    let engine = open().unwrap_or_else(|error| panic!("{error}"));
    assert!(engine.revision() >= *highest, "the revision went back");
    for (task, writes) in written.iter().enumerate() {
        let found = pair(&engine, task as u64);
        let possible = possible(writes, power_cut);
        assert!(possible.contains(&found), "task {task}: {found:?} of {possible:?}");
    }
    check_history(&engine).await;
    // Sometimes it ends well, and the next round finds a closed log.
    if random.bool() {
        return engine.close().await;
    }
    disk.set_faults(Faults { dies_after: Some(0), ..Faults::default() });
    drop(engine);
    disk.set_faults(Faults::default());
}

#[test]
fn no_crash_loses_what_was_acknowledged() {
    let rounds = std::env::var("STORE_CRASH_ROUNDS").ok().and_then(|n| n.parse().ok());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut disk, mut highest) = (SimDisk::default(), 0);
    for seed in 0..rounds.unwrap_or(ROUNDS) {
        if seed % 50 == 0 {
            (disk, highest) = (SimDisk::default(), 0);
        }
        let played = std::panic::AssertUnwindSafe(|| {
            runtime.block_on(round(&disk, seed, &mut highest));
        });
        if let Err(panic) = std::panic::catch_unwind(played) {
            eprintln!("round with seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
