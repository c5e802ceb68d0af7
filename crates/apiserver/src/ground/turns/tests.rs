use super::*;
use std::sync::Mutex;
use tokio::sync::{mpsc, oneshot};

fn lane(user: &str) -> Arc<Lane> {
    let lane = Arc::new(Lane::default());
    lane.belongs_to(user);
    lane
}

#[tokio::test]
async fn tasks_run_to_their_end_whoever_wakes_them() {
    let turns = Turns::start();
    let (done, mut all) = mpsc::unbounded_channel();
    for number in 0..100 {
        let (wake, woken) = oneshot::channel();
        let (done, inner) = (done.clone(), turns.clone());
        let lane = lane(&(number % 7).to_string());
        turns.spawn(lane.clone(), async move {
            // One that is woken by another, which it starts itself.
            inner.spawn(lane, async move {
                tokio::task::yield_now().await;
                let _ = wake.send(number);
            });
            let number = woken.await.expect("the other one sends");
            let _ = done.send(number);
        });
    }
    drop(done);
    let mut numbers = Vec::new();
    while let Some(number) = all.recv().await {
        numbers.push(number);
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_panic_ends_one_task_alone() {
    let turns = Turns::start();
    turns.spawn(lane("a"), async { panic!("as the test wants") });
    let (done, told) = oneshot::channel();
    turns.spawn(lane("a"), async move {
        let _ = done.send(());
    });
    told.await.expect("the runner lives");
}

/// One runner; a crowd that never ends, and one who comes late.
#[tokio::test]
async fn who_comes_late_does_not_wait_for_a_crowd() {
    let turns = Turns::start();
    let order = Arc::new(Mutex::new(Vec::new()));
    let busy = |who: &'static str, times: usize, order: Arc<Mutex<Vec<&'static str>>>| async move {
        for _ in 0..times {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(50) {
                std::hint::spin_loop();
            }
            order.lock().expect("no one panicked").push(who);
            tokio::task::yield_now().await;
        }
    };
    for _ in 0..20 {
        turns.spawn(lane("crowd"), busy("crowd", 10, order.clone()));
    }
    let (done, told) = oneshot::channel();
    let (late, seen) = (busy("late", 1, order.clone()), order.clone());
    let inner = turns.clone();
    turns.spawn(lane("other"), async move {
        while seen.lock().expect("no one panicked").len() < 40 {
            tokio::task::yield_now().await;
        }
        inner.spawn(lane("late"), async move {
            late.await;
            let _ = done.send(());
        });
    });
    told.await.expect("it is served");
    let order = order.lock().expect("no one panicked");
    let at = order.iter().position(|who| *who == "late").expect("it was served");
    assert!(at < 60, "served as number {at} of {}", order.len());
}
