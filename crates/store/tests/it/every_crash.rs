//! Every place where a machine can die in one short life of the store.
//!
//! The life is a script played one step at a time, with the engine's threads at rest in between,
//! so the operations on the disk come in the same order every time. Then it is played again and
//! again: with every operation failing, alone and together with one of the next, and with the
//! machine stopping after every operation, by a kill or by a power cut that loses all, nothing or
//! some of what was not synced. The next process must find what was promised; what it then serves
//! must survive a power cut of its own.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use store::embedded::{Embedded, OpenError, Options};
use store::*;

use crate::crash::{Told, Written, check_history, possible};
use crate::embedded::TestClock;
use crate::sim_disk::{Faults, SimDisk};

/// Long enough for renewals that wait for their sync across the end of a segment, for the flush,
/// and for a segment that is cleaned and given back.
const LIFE: &str = "renew a, write b, renew a, renew b, write a, delete b, renew c, renew a, flush, \
                    renew b, delete a, write b, renew b, compact, renew c, write a, renew a";

/// What the process after the crash does before it dies too.
const AFTERLIFE: &str = "renew a, write b";

/// An operation after a fault sees its consequences; so many later all is as ever.
const AFTERMATH: u32 = 7;

#[derive(Debug, Clone, Copy)]
enum End {
    /// The process is gone; what the kernel has, it keeps.
    Kill,
    /// Of what was not synced, each bit in turn says whether it survived.
    PowerCut(u32),
}

const HALF: u32 = 0x5555_5555;

struct World {
    disk: SimDisk,
    clock: TestClock,
    written: BTreeMap<String, Written>,
    highest: Revision,
    /// Distinguishes what is written.
    number: u64,
}

impl World {
    fn new() -> Self {
        let key = |key: &str| (format!("/{key}"), vec![(None, Told::Durable)]);
        World {
            disk: SimDisk::default(),
            clock: TestClock::default(),
            written: ["a", "b", "c"].map(key).into(),
            highest: 0,
            number: 0,
        }
    }

    fn try_open(&self) -> std::result::Result<Embedded, OpenError> {
        let options =
            Options { segment_size: 1 << 10, clock: self.clock.clock(), ..Options::default() };
        Embedded::open_disk(Arc::new(self.disk.clone()), options)
    }

    fn open(&self) -> Embedded {
        self.try_open().unwrap_or_else(|e| panic!("{e}"))
    }

    /// Plays a script to its end.
    async fn live(&mut self, engine: &Embedded, script: &str) {
        for step in script.split(", ") {
            if self.disk.is_dead() {
                break;
            }
            match step.split_once(' ') {
                Some((verb, key)) => self.change(engine, verb, &format!("/{key}")).await,
                None if step == "flush" => self.clock.advance(engine, Duration::from_secs(10)),
                // Where that fails nothing is promised.
                None => drop(engine.compact(engine.revision()).await),
            }
            engine.settle().await;
        }
        self.highest = self.highest.max(engine.revision());
    }

    async fn change(&mut self, engine: &Embedded, verb: &str, key: &str) {
        self.number += 1;
        let (op, value) = match verb {
            "delete" => (Op::Delete(KeyRange::key(key)), None),
            _ => (Op::put(key, format!("{:<300}", self.number), 0), Some(self.number)),
        };
        let durability =
            if verb == "renew" { Durability::Coalescible } else { Durability::Durable };
        let txn = Txn { success: vec![op], durability, ..Txn::default() };
        let told = match engine.txn(txn).await {
            // Nothing to delete: no promise, for an earlier write that failed may still turn up.
            Ok(response) if matches!(&response.responses[0], OpResponse::Delete(e) if e.is_empty()) =>
            {
                return;
            }
            Ok(_) if durability == Durability::Durable => Told::Durable,
            Ok(_) => Told::Coalesced,
            Err(_) => Told::Nothing,
        };
        self.written.get_mut(key).unwrap().push((value, told));
    }

    fn end(&self, engine: Option<Embedded>, end: End) {
        // Dead: closing it writes no more.
        self.die_after(0);
        drop(engine);
        if let End::PowerCut(mut survives) = end {
            self.disk.cut_power(|| {
                survives = survives.rotate_right(1);
                survives >> 31 == 1
            });
        }
        self.disk.set_faults(Faults::default());
    }

    fn die_after(&self, operations: u32) {
        self.disk.set_faults(Faults { dies_after: Some(operations), ..Faults::default() });
    }

    /// What was promised is there; and what is there is a promise from now on.
    async fn check(&mut self, engine: &Embedded, end: End) {
        let revision = engine.revision();
        assert!(revision >= self.highest, "the revision went back: {revision}");
        self.highest = revision;
        for (key, written) in &mut self.written {
            let found = engine.get(key.as_bytes());
            let found = found.map(|kv| String::from_utf8_lossy(&kv.value).trim().parse().unwrap());
            let possible = possible(written, matches!(end, End::PowerCut(_)));
            assert!(possible.contains(&found), "{key}: {found:?} of {possible:?}");
            *written = vec![(found, Told::Durable)];
        }
        check_history(engine).await;
    }
}

async fn crash(failing: &[u32], dies_after: u32, end: End) {
    let mut world = World::new();
    let engine = world.open();
    engine.settle().await;
    let faults =
        Faults { failing: failing.into(), dies_after: Some(dies_after), ..Faults::default() };
    world.disk.set_faults(faults);
    world.live(&engine, LIFE).await;
    world.end(Some(engine), end);
    // The machine may die again before the next process is ready.
    world.die_after(dies_after % 8);
    let early = world.try_open().ok();
    world.highest = world.highest.max(early.as_ref().map_or(0, Embedded::revision));
    world.end(early, if dies_after.is_multiple_of(2) { End::Kill } else { end });
    let engine = world.open();
    world.check(&engine, end).await;
    // What this process has served it owes, whether it did anything or not.
    if !dies_after.is_multiple_of(3) {
        world.live(&engine, AFTERLIFE).await;
    }
    world.end(Some(engine), End::PowerCut(0));
    world.check(&world.open(), End::PowerCut(0)).await;
}

#[test]
fn whenever_the_machine_dies_promises_are_kept() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let operations = runtime.block_on(async {
        let mut world = World::new();
        let engine = world.open();
        engine.settle().await;
        world.disk.set_faults(Faults::default());
        let before = world.disk.names();
        world.live(&engine, LIFE).await;
        assert!(!world.disk.names().contains(&before[0]), "a segment was cleaned");
        world.disk.operations()
    });
    let (mut lives, mut failed) = (0, 0);
    for first in 0..=operations {
        for second in first..first + 3 {
            let failing = [first, second];
            let last = if first == 0 { operations } else { second + AFTERMATH };
            for dies_after in second..=last {
                let half = if dies_after.is_multiple_of(2) { HALF } else { !HALF };
                for end in [End::Kill, End::PowerCut(0), End::PowerCut(half)] {
                    lives += 1;
                    let play = || runtime.block_on(crash(&failing, dies_after, end));
                    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(play)).is_err() {
                        eprintln!("failing {failing:?}, dies after {dies_after}, {end:?}");
                        failed += 1;
                    }
                }
            }
        }
    }
    assert_eq!(failed, 0, "of {lives} lives");
}
