//! A future that is polled when it is its turn.
use super::{Lane, Shared};
use futures_util::future::BoxFuture;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// It waits for something else than its turn.
const IDLE: u8 = 0;
/// It waits for its turn.
const QUEUED: u8 = 1;
/// It is its turn.
const RUNNING: u8 = 2;
/// It is its turn, and it wants another.
const WOKEN: u8 = 3;

pub struct Task {
    state: AtomicU8,
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    /// Nothing once it is done.
    future: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl Task {
    /// To be pushed at once.
    pub fn new(shared: Arc<Shared>, lane: Arc<Lane>, future: BoxFuture<'static, ()>) -> Arc<Task> {
        Arc::new(Task {
            state: AtomicU8::new(QUEUED),
            shared,
            lane,
            future: Mutex::new(Some(future)),
        })
    }

    pub fn flow(&self) -> u64 {
        self.lane.flow()
    }

    pub fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    /// Polls it once. A panic ends this task alone.
    pub fn run(self: Arc<Self>) {
        self.state.store(RUNNING, Release);
        let waker = Waker::from(self.clone());
        let mut future = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = future.as_mut() else { return };
        let poll = || running.as_mut().poll(&mut Context::from_waker(&waker));
        match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(Poll::Pending) => {}
            // In no state to be woken, it is not pushed again.
            Ok(Poll::Ready(())) | Err(_) => return *future = None,
        }
        drop(future);
        if self.state.compare_exchange(RUNNING, IDLE, AcqRel, Acquire).is_err() {
            self.state.store(QUEUED, Release);
            self.shared.clone().push(self);
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let next = |state| match state {
            IDLE => Some(QUEUED),
            RUNNING => Some(WOKEN),
            _ => None,
        };
        if self.state.fetch_update(AcqRel, Acquire, next) == Ok(IDLE) {
            self.shared.push(self.clone());
        }
    }
}
