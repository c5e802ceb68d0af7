//! A priority level: seats, and who sits on them.
use super::deal;
use super::queues::{Place, Queues, Shape};
use super::retry::Retry;
use super::schema::Schema;
use http::HeaderValue;
use jiff::Timestamp;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What part of its seats one request may take.
const MAX_WIDTH: f64 = 0.15;
/// And where nobody queues.
const MAX_WIDTH_WITHOUT_QUEUES: u32 = 100;

pub struct Level {
    pub uid: HeaderValue,
    pub kind: Kind,
    pub bounds: Bounds,
    /// Outlives a change of the level.
    pub room: Arc<Room>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Exempt,
    /// Nothing: whoever finds no seat is refused.
    Limited(Option<Shape>),
}

/// How many seats it has by right, keeps for itself, and may have at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    pub nominal: u32,
    pub least: u32,
    pub most: u32,
}

/// Why a request is refused; the words are upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    ConcurrencyLimit,
    QueueFull,
    TimeOut,
}

impl Refusal {
    pub const WORDS: [&str; 3] = ["concurrency-limit", "queue-full", "time-out"];
}

pub struct Room {
    pub limit: AtomicU32,
    pub in_use: AtomicU32,
    pub executing: AtomicU32,
    /// Requests that wait, and the seats they wait for.
    pub waiting: AtomicU32,
    waiting_seats: AtomicU32,
    /// The most seats that were asked for at once since seats were last lent.
    pub peak: AtomicU32,
    /// What was asked for lately, with older demand fading: the bits of a float.
    pub smoothed: AtomicU64,
    pub queues: Mutex<Queues<Waiter>>,
    retry: Mutex<Retry>,
    begun: Instant,
}

/// One who waits.
pub struct Waiter {
    pub schema: Arc<Schema>,
    pub flow: String,
    pub arrived: Timestamp,
    wake: oneshot::Sender<()>,
}

/// A place on the seats; given back when it is dropped.
pub struct Seat {
    schema: Arc<Schema>,
    width: u32,
    /// The queue it came from, which is charged for it.
    queue: Option<usize>,
    since: Instant,
}

impl Default for Room {
    fn default() -> Room {
        Room {
            limit: AtomicU32::new(0),
            in_use: AtomicU32::new(0),
            executing: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            waiting_seats: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            smoothed: AtomicU64::new(0),
            queues: Mutex::new(Queues::default()),
            retry: Mutex::default(),
            begun: Instant::now(),
        }
    }
}

impl Level {
    /// How many seats one request may take.
    pub fn max_width(&self) -> u32 {
        match self.kind {
            Kind::Limited(Some(shape)) => {
                let part = (f64::from(self.bounds.nominal) * MAX_WIDTH).ceil() as u32;
                part.min(self.bounds.nominal / (shape.hand as u32).max(1)).max(1)
            }
            _ => MAX_WIDTH_WITHOUT_QUEUES,
        }
    }

    /// Seats that are free, if nobody waits for them already.
    pub fn try_take(&self, schema: &Arc<Schema>, width: u32) -> Option<Seat> {
        let free = self.room.waiting.load(SeqCst) == 0 && self.room.take(width);
        if !free {
            self.room.note_demand(width);
        }
        free.then(|| Seat::new(schema, width, None))
    }

    pub async fn wait(
        &self,
        schema: &Arc<Schema>,
        flow: String,
        width: u32,
        patience: Duration,
    ) -> Result<Seat, Refusal> {
        let Kind::Limited(Some(shape)) = self.kind else {
            return Err(Refusal::ConcurrencyLimit);
        };
        let begun = Instant::now();
        let (wake, woken) = oneshot::channel();
        let hash = deal::hash(&schema.name, &flow);
        let waiter = Waiter { schema: schema.clone(), flow, arrived: Timestamp::now(), wake };
        let place = {
            let mut queues = self.room.lock();
            let place = queues.enqueue(shape, hash, width, waiter, self.room.now());
            let place = place.ok_or(Refusal::QueueFull)?;
            schema.counters.waiting.fetch_add(1, Relaxed);
            schema.counters.waiting_seats.fetch_add(width.into(), Relaxed);
            self.room.waiting_seats.fetch_add(width, SeqCst);
            self.room.waiting.fetch_add(1, SeqCst);
            self.room.note_demand(0);
            // Seats may have become free since they were looked for.
            self.room.dispatch(&mut queues);
            place
        };
        let mut waiting = InQueue { schema: schema.clone(), place, width, seated: false };
        let turn = tokio::time::timeout(patience, woken).await;
        schema.counters.waited(begun.elapsed());
        match turn {
            Ok(Ok(())) => {
                waiting.seated = true;
                Ok(Seat::new(schema, width, Some(place.queue)))
            }
            _ => Err(Refusal::TimeOut),
        }
    }
}

impl Room {
    /// Somebody is refused; after how many seconds he may come back.
    pub fn retry_after(&self, now: i64) -> i32 {
        self.retry.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).refused(now)
    }

    fn lock(&self) -> MutexGuard<'_, Queues<Waiter>> {
        self.queues.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn now(&self) -> (f64, u32) {
        (self.begun.elapsed().as_secs_f64(), self.limit.load(Relaxed))
    }

    /// The seats that are asked for, with so many more.
    fn note_demand(&self, more: u32) {
        let demand = self.in_use.load(Relaxed) + self.waiting_seats.load(Relaxed) + more;
        self.peak.fetch_max(demand, Relaxed);
    }

    /// The peak, which begins anew.
    pub fn take_peak(&self) -> u32 {
        let now = self.in_use.load(Relaxed) + self.waiting_seats.load(Relaxed);
        self.peak.swap(now, Relaxed).max(now)
    }

    /// One that is wider than the room gets all of it.
    fn take(&self, width: u32) -> bool {
        let limit = self.limit.load(Relaxed);
        let fits = |used: u32| used + width <= limit || width > limit && used == 0;
        let next = |used: u32| fits(used).then_some(used + width);
        match self.in_use.fetch_update(SeqCst, SeqCst, next) {
            Ok(before) => {
                // Most of the time somebody was there before: a load is cheaper than a store.
                if self.peak.load(Relaxed) < before + width {
                    self.peak.fetch_max(before + width, Relaxed);
                }
                true
            }
            Err(_) => false,
        }
    }

    /// Sets the number of seats; who waited for them may go.
    pub fn resize(&self, limit: u32) {
        self.limit.store(limit, SeqCst);
        if self.waiting.load(SeqCst) > 0 {
            self.dispatch(&mut self.lock());
        }
    }

    fn dispatch(&self, queues: &mut Queues<Waiter>) {
        while let Some((_, next)) = queues.dequeue(self.now(), |width| self.take(width)) {
            self.left(&next.what.schema, next.width);
            // Whoever is gone gives his seats back: he finds that he is not in the queue.
            let _ = next.what.wake.send(());
        }
    }

    /// Somebody waits no longer.
    fn left(&self, schema: &Schema, width: u32) {
        self.waiting.fetch_sub(1, SeqCst);
        self.waiting_seats.fetch_sub(width, SeqCst);
        schema.counters.waiting.fetch_sub(1, Relaxed);
        schema.counters.waiting_seats.fetch_sub(width.into(), Relaxed);
    }

    /// Gives seats back. Whoever enqueues afterwards sees them free; whoever did before is seen here.
    fn release(&self, width: u32, queue: Option<usize>, took: f64) {
        self.in_use.fetch_sub(width, SeqCst);
        if queue.is_none() && self.waiting.load(SeqCst) == 0 {
            return;
        }
        let mut queues = self.lock();
        if let Some(queue) = queue {
            queues.finish(queue, width, took, self.now());
        }
        self.dispatch(&mut queues);
    }
}

impl Seat {
    fn new(schema: &Arc<Schema>, width: u32, queue: Option<usize>) -> Seat {
        let (room, counters) = (&schema.level.room, &schema.counters);
        room.executing.fetch_add(1, Relaxed);
        counters.dispatched.fetch_add(1, Relaxed);
        counters.executing.fetch_add(1, Relaxed);
        counters.executing_seats.fetch_add(width.into(), Relaxed);
        Seat { schema: schema.clone(), width, queue, since: Instant::now() }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let (room, counters) = (&self.schema.level.room, &self.schema.counters);
        room.executing.fetch_sub(1, Relaxed);
        counters.executing.fetch_sub(1, Relaxed);
        counters.executing_seats.fetch_sub(self.width.into(), Relaxed);
        room.release(self.width, self.queue, self.since.elapsed().as_secs_f64());
    }
}

/// Takes a request out of its queue when its client goes, or its patience is over.
struct InQueue {
    schema: Arc<Schema>,
    place: Place,
    width: u32,
    seated: bool,
}

impl Drop for InQueue {
    fn drop(&mut self) {
        if self.seated {
            return;
        }
        let room = &self.schema.level.room;
        let was_waiting = room.lock().remove(self.place);
        if was_waiting {
            room.left(&self.schema, self.width);
        } else {
            room.release(self.width, Some(self.place.queue), 0.0);
        }
    }
}
