//! Turns: whose connection goes on next.
//!
//! Most requests are answered without waiting for anything: they hold no seat that others would have
//! to queue for, and what a flood of them uses up is the processor itself. The runtime's own order is
//! first come, first served, so whoever has the most connections has the most of it. Here the order
//! is fair among users: everything that is done for a connection is done in turns, and the next turn
//! is that of the user who has had the least.
//!
//! ```text
//!  woken task ─► queue: a line for each user, by processor time used ─► runner (one a processor)
//!                                                                        polls it once
//! ```
//! - [`queue`] decides who is next; [`task`] is a future that is polled when it is its turn;
//!   [`Paced`](paced::Paced) and [`share`](share::share) end the turn of a long answer while it is sent
//!   and while it is made, so that turns are short.
//! - A connection's [`Lane`] says whose it is: nobody's until its first request is known to be from
//!   somebody, then that user's. Its requests run in the same lane.
//! - Among one user's, a runner prefers the lane it had last: a piece of a list is then encrypted and
//!   sent by the processor that has just made it.
//!
//! **What it costs.** A runner takes the place of the runtime's queue, not one more place in it: a
//! wake is a push onto one queue instead of another.
//!
//! **It may not know** what is done in a turn, nor what seats are.
mod paced;
mod queue;
mod share;
mod task;

pub use paced::Paced;
pub use share::share;

use queue::Queue;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use task::Task;
use tokio::sync::{Semaphore, oneshot};

/// After so long a runner looks for what came from outside, and lets other tasks run.
const SLICE: Duration = Duration::from_micros(30);

/// A runner goes on with a connection for so many turns if others of the same user wait: what one turn
/// made is then at hand for the next, and not with another processor.
const IN_A_ROW: usize = 8;

thread_local! {
    /// When the turn began that this thread is in, if it is a runner's just now.
    static TURN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Whose turns a connection takes.
#[derive(Debug, Default)]
pub struct Lane(AtomicU64);

impl Lane {
    /// From now on it is this user's.
    pub fn belongs_to(&self, user: &str) {
        static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        self.0.store(HASH.hash_one(user), Relaxed);
    }

    fn flow(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[derive(Clone)]
pub struct Turns(Arc<Shared>);

struct Shared {
    waiting: Mutex<Waiting>,
    /// How many heavy tasks may run at once: each has a thread.
    heavy: Arc<Semaphore>,
}

#[derive(Default)]
struct Waiting {
    queue: Queue<Arc<Task>>,
    /// Runners that found nothing to do.
    idle: Vec<Waker>,
}

impl Turns {
    /// Starts as many runners as the runtime has threads.
    pub fn start() -> Turns {
        let threads = tokio::runtime::Handle::current().metrics().num_workers();
        let heavy = Arc::new(Semaphore::new(threads));
        let turns = Turns(Arc::new(Shared { waiting: Mutex::default(), heavy }));
        for _ in 0..threads {
            tokio::spawn(run(turns.0.clone()));
        }
        turns
    }

    /// Has a future take its turns in a lane until it is done.
    pub fn spawn(&self, lane: Arc<Lane>, future: impl Future<Output = ()> + Send + 'static) {
        self.0.push(Task::new(self.0.clone(), lane, Box::pin(future)));
    }

    /// What a connection starts runs in its lane.
    pub fn in_lane(&self, lane: Arc<Lane>) -> InLane {
        InLane { turns: self.clone(), lane }
    }
}

#[derive(Clone)]
pub struct InLane {
    turns: Turns,
    lane: Arc<Lane>,
}

impl InLane {
    pub fn belongs_to(&self, user: &str) {
        self.lane.belongs_to(user);
    }

    /// Sees a future through, even if nobody waits for it any more. What is heavy runs on a thread of
    /// its own, where the kernel lets others go on beside it. Nothing comes of what panics.
    pub async fn finish<T: Send + 'static>(
        &self,
        heavy: bool,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, outcome) = oneshot::channel();
        // If nobody listens any more, that is that.
        let task = async move { _ = done.send(future.await) };
        if heavy {
            let heavy = self.turns.0.heavy.clone();
            tokio::spawn(async move {
                let Ok(permit) = heavy.acquire_owned().await else { return };
                let runtime = tokio::runtime::Handle::current();
                let thread = tokio::task::spawn_blocking(move || runtime.block_on(task));
                let _ = thread.await;
                drop(permit);
            });
        } else {
            self.turns.spawn(self.lane.clone(), task);
        }
        outcome.await.ok()
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for InLane {
    fn execute(&self, future: F) {
        self.turns.spawn(self.lane.clone(), future);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn push(&self, task: Arc<Task>) {
        let mut waiting = self.lock();
        waiting.queue.push(task.flow(), task);
        // One task more is what the runner on this thread will take next.
        let is_taken = TURN.get().is_some() && waiting.queue.len() == 1;
        let runner = if is_taken { None } else { waiting.idle.pop() };
        drop(waiting);
        if let Some(runner) = runner {
            runner.wake();
        }
    }

    async fn next(&self, preferred: Option<&Arc<Lane>>) -> (u64, Arc<Task>) {
        let preferred =
            |task: &Arc<Task>| preferred.is_some_and(|lane| Arc::ptr_eq(lane, task.lane()));
        poll_fn(|context| {
            let mut waiting = self.lock();
            match waiting.queue.pop(preferred) {
                Some(next) => Poll::Ready(next),
                None => {
                    waiting.idle.push(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

async fn run(shared: Arc<Shared>) {
    let mut since = Instant::now();
    let (mut last, mut row): (Option<Arc<Lane>>, usize) = (None, 0);
    loop {
        let (flow, task) = shared.next(last.as_ref().filter(|_| row < IN_A_ROW)).await;
        if last.as_ref().is_some_and(|lane| Arc::ptr_eq(lane, task.lane())) {
            row += 1;
        } else {
            (last, row) = (Some(task.lane().clone()), 1);
        }
        let begun = Instant::now();
        TURN.set(Some(begun));
        task.run();
        TURN.set(None);
        let ended = Instant::now();
        shared.lock().queue.charge(flow, ended - begun);
        if ended - since > SLICE {
            tokio::task::yield_now().await;
            since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests;
