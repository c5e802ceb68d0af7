//! Whether concurrent clients could have been served one after the other.
//!
//! Clients race on a few keys; what each asked, was told, and when, is recorded. The checker
//! (Wing and Gong's search, with Lowe's cache) then looks for an order of the operations that
//! respects time and explains every answer. Keys are independent, so each is checked alone.
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use store::embedded::{Embedded, Options};
use store::etcd::{Etcd, EtcdOptions};
use store::*;

use crate::etcd_server::Cluster;

type Value = Option<u64>;

#[derive(Debug, Clone, Copy)]
enum Action {
    Read(Value),
    /// A compare-and-swap that was applied.
    Swap {
        expected: Value,
        new: Value,
    },
    /// One whose outcome is not known.
    MaybeSwap {
        expected: Value,
        new: Value,
    },
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    called: u64,
    returned: u64,
    action: Action,
}

/// The state after an operation, if it could have happened in this state.
fn step(action: Action, state: Value) -> Option<Value> {
    match action {
        Action::Read(seen) => (seen == state).then_some(state),
        Action::Swap { expected, new } => (expected == state).then_some(new),
        Action::MaybeSwap { expected, new } => Some(if expected == state { new } else { state }),
    }
}

fn is_linearizable(operations: &[Operation]) -> bool {
    let mut operations = operations.to_vec();
    operations.sort_by_key(|operation| operation.called);
    let mut done = vec![0u64; operations.len().div_ceil(64)];
    let mut seen: HashSet<(Vec<u64>, Value)> = HashSet::new();
    search(&operations, &mut done, 0, None, &mut seen)
}

fn search(
    operations: &[Operation],
    done: &mut Vec<u64>,
    first: usize,
    state: Value,
    seen: &mut HashSet<(Vec<u64>, Value)>,
) -> bool {
    let is_done = |done: &[u64], i: usize| done[i / 64] >> (i % 64) & 1 == 1;
    let first = (first..operations.len()).find(|i| !is_done(done, *i)).unwrap_or(operations.len());
    let open = |i: &usize| !is_done(done, *i);
    // All that remain are operations that may never have happened.
    let must = |i: usize| !matches!(operations[i].action, Action::MaybeSwap { .. });
    if !(first..operations.len()).filter(open).any(must) {
        return true;
    }
    if !seen.insert((done.clone(), state)) {
        return false;
    }
    // Only what was called before everything else returned can come next.
    let horizon = (first..operations.len())
        .filter(open)
        .map(|i| operations[i].returned)
        .min()
        .unwrap_or(u64::MAX);
    let candidates: Vec<usize> = (first..operations.len())
        .take_while(|i| operations[*i].called <= horizon)
        .filter(open)
        .collect();
    for i in candidates {
        if let Some(next) = step(operations[i].action, state) {
            done[i / 64] |= 1 << (i % 64);
            if search(operations, done, first, next, seen) {
                return true;
            }
            done[i / 64] &= !(1 << (i % 64));
        }
    }
    false
}

fn number(kv: Option<&Arc<KeyValue>>) -> Value {
    kv.map(|kv| String::from_utf8_lossy(&kv.value).parse().unwrap())
}

/// Clients race; returns the history of each key.
async fn race(
    store: &Store,
    prefix: &str,
    keys: usize,
    clients: usize,
    each: usize,
) -> Vec<Vec<Operation>> {
    let clock = Arc::new(AtomicU64::new(0));
    let racers: Vec<_> = (0..clients)
        .map(|client| {
            let (store, clock, prefix) = (store.clone(), clock.clone(), prefix.to_owned());
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(client as u64);
                let mut history = Vec::new();
                let mut known: Vec<Option<Arc<KeyValue>>> = vec![None; keys];
                for i in 0..each {
                    let which = random.usize(0..keys);
                    let key = format!("{prefix}{which}");
                    let new = (client * each + i) as u64;
                    let tick = || clock.fetch_add(1, Ordering::SeqCst);
                    let called = tick();
                    let expected = known[which].clone();
                    let at = expected.as_ref().map_or(0, |kv| kv.mod_revision);
                    let expected = number(expected.as_ref());
                    let (action, returned) = match random.u8(0..4) {
                        0 | 1 => {
                            let read = store.get(key.as_bytes()).await;
                            let Ok(kv) = read else { continue };
                            known[which] = kv.clone();
                            (Action::Read(number(kv.as_ref())), tick())
                        }
                        kind => {
                            let (written, new) = if kind == 2 {
                                let options = WriteOptions::default();
                                (store.update(&*key, new.to_string(), at, options).await, Some(new))
                            } else {
                                (store.delete(&*key, at).await, None)
                            };
                            match written {
                                Ok(Outcome::Applied(event)) => {
                                    known[which] = (!event.is_delete()).then(|| event.kv.clone());
                                    (Action::Swap { expected, new }, tick())
                                }
                                Ok(Outcome::Conflict(current)) => {
                                    known[which] = current.clone();
                                    (Action::Read(number(current.as_ref())), tick())
                                }
                                Err(_) => (Action::MaybeSwap { expected, new }, u64::MAX),
                            }
                        }
                    };
                    history.push((which, Operation { called, returned, action }));
                }
                history
            })
        })
        .collect();
    let mut histories = vec![Vec::new(); keys];
    for racer in racers {
        for (key, operation) in racer.await.unwrap() {
            histories[key].push(operation);
        }
    }
    histories
}

fn check(histories: &[Vec<Operation>]) {
    for history in histories {
        assert!(history.len() > 20);
        assert!(is_linearizable(history), "{history:#?}");
    }
}

#[test]
fn the_checker_knows_a_lie() {
    let at = |called, returned, action| Operation { called, returned, action };
    let write = |expected, new| Action::Swap { expected, new: Some(new) };
    for (truth, history) in [
        (true, vec![at(0, 1, write(None, 1)), at(2, 3, Action::Read(Some(1)))]),
        // A stale read after the write returned.
        (false, vec![at(0, 1, write(None, 1)), at(2, 3, Action::Read(None))]),
        // The same while the write was under way.
        (true, vec![at(0, 9, write(None, 1)), at(2, 3, Action::Read(None))]),
        // Two reads that see the writes in the wrong order.
        (
            false,
            vec![
                at(0, 9, write(None, 1)),
                at(1, 2, Action::Read(Some(1))),
                at(3, 4, Action::Read(None)),
            ],
        ),
        // Two winners of one guard.
        (false, vec![at(0, 9, write(None, 1)), at(0, 9, write(None, 2))]),
        // An unknown outcome may be either, but not both.
        (
            true,
            vec![
                at(0, u64::MAX, Action::MaybeSwap { expected: None, new: Some(1) }),
                at(2, 3, Action::Read(None)),
                at(4, 5, Action::Read(Some(1))),
            ],
        ),
        (
            false,
            vec![
                at(0, u64::MAX, Action::MaybeSwap { expected: None, new: Some(1) }),
                at(2, 3, Action::Read(Some(1))),
                at(4, 5, Action::Read(None)),
            ],
        ),
    ] {
        assert_eq!(is_linearizable(&history), truth, "{history:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_engine_is_linearizable() {
    let directory = tempfile::tempdir().unwrap();
    let store: Store = Embedded::open(directory.path(), Options::default()).unwrap().into();
    for round in 0..10 {
        check(&race(&store, &format!("/{round}/"), 4, 8, 100).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_etcd_engine_is_linearizable_while_its_leader_dies() {
    let mut cluster = Cluster::start(3, None).await;
    let store: Store = Etcd::connect(EtcdOptions::new(cluster.endpoints())).await.unwrap().into();
    check(&race(&store, "/calm/", 4, 6, 60).await);
    let racing = tokio::spawn({
        let store = store.clone();
        async move { race(&store, "/storm/", 4, 6, 120).await }
    });
    let leader = loop {
        if let Some(leader) = cluster.leader() {
            break leader;
        }
    };
    cluster.kill(leader);
    check(&racing.await.unwrap());
}
