//! Keys to be worked on.
//!
//! A key that is added twice is worked on once; one that is added while it is being worked on
//! comes again afterwards, never beside itself. What failed comes back later and later. These are
//! the semantics of upstream's `util/workqueue`.
mod rate;
#[cfg(test)]
mod tests;

pub(crate) use rate::Bucket;
pub use rate::RateLimit;

use crate::context::Context;
use api::names::NamespacedName;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Cheap to clone; a clone is the same queue.
pub struct WorkQueue<T: Eq + Hash = NamespacedName> {
    shared: Arc<Shared<T>>,
}

struct Shared<T: Eq + Hash> {
    name: &'static str,
    context: Context,
    state: Mutex<State<T>>,
    /// Somebody may have something to do.
    wake: Notify,
    /// Everything has been worked on.
    idle: Notify,
}

struct State<T: Eq + Hash> {
    ready: VecDeque<T>,
    /// Added and not yet taken since, with the moment.
    dirty: HashMap<T, Instant>,
    taken: HashSet<T>,
    later: BinaryHeap<Reverse<Later<T>>>,
    /// The moment that counts for each key in `later`: the earliest asked for.
    due: HashMap<T, Instant>,
    rate: RateLimit<T>,
    sequence: u64,
    closed: bool,
}

struct Later<T> {
    at: Instant,
    /// Of two for the same moment, the first that was added.
    sequence: u64,
    key: T,
}

impl<T: Clone + Eq + Hash + Send + 'static> WorkQueue<T> {
    /// With upstream's rate limits for controllers.
    pub fn new(context: &Context, name: &'static str) -> WorkQueue<T> {
        WorkQueue::with_rate_limit(context, name, RateLimit::default())
    }

    pub fn with_rate_limit(context: &Context, name: &'static str, rate: RateLimit<T>) -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashMap::new(),
            taken: HashSet::new(),
            later: BinaryHeap::new(),
            due: HashMap::new(),
            rate,
            sequence: 0,
            closed: false,
        };
        let (context, state) = (context.clone(), Mutex::new(state));
        let (wake, idle) = (Notify::new(), Notify::new());
        WorkQueue { shared: Arc::new(Shared { name, context, state, wake, idle }) }
    }

    /// The key has to be looked at.
    pub fn add(&self, key: T) {
        let mut state = self.shared.state.lock();
        if state.closed || state.dirty.contains_key(&key) {
            return;
        }
        self.count("workqueue_adds_total");
        state.dirty.insert(key.clone(), Instant::now());
        if !state.taken.contains(&key) {
            state.ready.push_back(key);
            self.depth(&state);
            drop(state);
            self.shared.wake.notify_one();
        }
    }

    /// The key has to be looked at, but not before `delay` has passed.
    pub fn add_after(&self, key: T, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.shared.state.lock();
        let at = Instant::now() + delay;
        if state.closed || state.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        state.due.insert(key.clone(), at);
        state.sequence += 1;
        let sequence = state.sequence;
        state.later.push(Reverse(Later { at, sequence, key }));
        drop(state);
        // Whoever sleeps until a later moment sleeps too long.
        self.shared.wake.notify_one();
    }

    /// It failed: again, after a pause that doubles each time.
    pub fn add_rate_limited(&self, key: T) {
        let delay = self.shared.state.lock().rate.when(&key, Instant::now());
        self.count("workqueue_retries_total");
        self.add_after(key, delay);
    }

    /// It succeeded: its next failure is a first one.
    pub fn forget(&self, key: &T) {
        self.shared.state.lock().rate.forget(key);
    }

    /// How often it has failed.
    pub fn failures(&self, key: &T) -> u32 {
        self.shared.state.lock().rate.failures(key)
    }

    /// The next key, for this worker alone until it is dropped. `None` when the queue is shut
    /// down and empty, or its context stopped.
    pub async fn take(&self) -> Option<Taken<T>> {
        loop {
            // Made before the look into the queue, so that what is added after it is heard.
            let woken = self.shared.wake.notified();
            let next = {
                let mut state = self.shared.state.lock();
                state.promote(Instant::now());
                if let Some(key) = state.ready.pop_front() {
                    return Some(self.taken(key, &mut state));
                }
                if state.closed || self.shared.context.is_stopped() {
                    drop(state);
                    self.shared.wake.notify_waiters();
                    return None;
                }
                state.later.peek().map(|Reverse(later)| later.at)
            };
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = woken => {}
                () = due => {}
                () = self.shared.context.stopped() => {}
            }
        }
    }

    fn taken(&self, key: T, state: &mut State<T>) -> Taken<T> {
        state.taken.insert(key.clone());
        if let Some(added) = state.dirty.remove(&key) {
            let waited = added.elapsed().as_secs_f64();
            self.observe("workqueue_queue_duration_seconds", waited);
        }
        self.depth(state);
        if !state.ready.is_empty() {
            self.shared.wake.notify_one();
        }
        Taken { key, queue: self.clone(), since: Instant::now() }
    }

    fn done(&self, key: &T, since: Instant) {
        let mut state = self.shared.state.lock();
        state.taken.remove(key);
        if state.dirty.contains_key(key) {
            state.ready.push_back(key.clone());
        }
        self.depth(&state);
        if state.ready.is_empty() && state.taken.is_empty() {
            self.shared.idle.notify_waiters();
        }
        drop(state);
        self.observe("workqueue_work_duration_seconds", since.elapsed().as_secs_f64());
        self.shared.wake.notify_one();
    }

    /// Takes no more; what is in it is still to be worked on, but for what was to come later.
    pub fn shut_down(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.later.clear();
        state.due.clear();
        drop(state);
        self.shared.wake.notify_waiters();
        self.shared.wake.notify_one();
    }

    /// Shuts down and waits until everything has been worked on.
    pub async fn drain(&self) {
        self.shut_down();
        loop {
            // Made before the look, so that the last worker is heard.
            let idle = self.shared.idle.notified();
            {
                let state = self.shared.state.lock();
                if state.ready.is_empty() && state.taken.is_empty() {
                    return;
                }
            }
            idle.await;
        }
    }

    /// Keys that could be taken now.
    pub fn len(&self) -> usize {
        let mut state = self.shared.state.lock();
        state.promote(Instant::now());
        state.ready.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn count(&self, name: &'static str) {
        self.shared.context.metrics().count(name, &[("name", self.shared.name)]);
    }

    fn observe(&self, name: &'static str, value: f64) {
        self.shared.context.metrics().observe(name, &[("name", self.shared.name)], value);
    }

    fn depth(&self, state: &State<T>) {
        let (labels, depth) = ([("name", self.shared.name)], state.ready.len() as f64);
        self.shared.context.metrics().set("workqueue_depth", &labels, depth);
    }
}

impl<T: Clone + Eq + Hash> State<T> {
    /// What was to come later and is due now.
    fn promote(&mut self, now: Instant) {
        while let Some(Reverse(later)) = self.later.peek()
            && later.at <= now
        {
            let Some(Reverse(Later { at, key, .. })) = self.later.pop() else { return };
            // An earlier moment was asked for in the meantime, and has passed.
            if self.due.get(&key) != Some(&at) {
                continue;
            }
            self.due.remove(&key);
            if !self.dirty.contains_key(&key) {
                self.dirty.insert(key.clone(), at);
                if !self.taken.contains(&key) {
                    self.ready.push_back(key);
                }
            }
        }
    }
}

impl<T: Eq + Hash> Clone for WorkQueue<T> {
    fn clone(&self) -> WorkQueue<T> {
        WorkQueue { shared: self.shared.clone() }
    }
}

/// A key that one worker has; nobody else gets it until this is dropped.
pub struct Taken<T: Clone + Eq + Hash + Send + 'static> {
    key: T,
    queue: WorkQueue<T>,
    since: Instant,
}

impl<T: Clone + Eq + Hash + Send + 'static> Taken<T> {
    pub fn key(&self) -> &T {
        &self.key
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> Deref for Taken<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.key
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> Drop for Taken<T> {
    fn drop(&mut self) {
        self.queue.done(&self.key, self.since);
    }
}

impl<T> PartialEq for Later<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Later<T> {}

impl<T> PartialOrd for Later<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Later<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}
