//! API Priority and Fairness: who has to wait when there is more to do than can be done at once.
//!
//! ```text
//!  request ─► schema: the first FlowSchema that matches ─► its PriorityLevel
//!                                                            ├ exempt: goes on
//!                                                            ├ seats are free: takes them, goes on
//!                                                            └ else: waits in a queue of its flow,
//!                                                              or is refused (429)
//! ```
//! - [`schema`] matches requests, [`level`] holds a level's seats, [`queues`] decides who is next:
//!   fairly among flows, by virtual time. A flow is dealt a hand of queues ([`deal`]), so that a
//!   flood meets few others.
//! - [`retry`] says when one who is refused should come back.
//! - [`width`] says how many seats a request takes, [`borrow`] how levels lend each other seats.
//! - [`follow`] keeps all that in step with the objects in the store ([`configure`]); [`dump`] and [`metrics`] show it.
//!
//! **What it costs.** A request that does not have to wait takes its seats with one atomic operation
//! and no lock; what it used is not charged to its flow, which is only compared with others once
//! there is something to wait for.
//!
//! **It may not know** what a request does, nor where objects are kept (but for [`follow`]).
mod borrow;
mod configure;
mod deal;
mod dump;
pub mod flow;
mod follow;
mod level;
mod metrics;
mod queues;
mod retry;
mod schema;
mod width;

pub use dump::{priority_levels, queues as dump_queues, requests as dump_requests};
pub use follow::start;
pub use level::Seat;
pub use width::{List, of_list};

use crate::answer::Answer;
use crate::answer::holding;
use crate::guard::authn::User;
use crate::guard::authz::Attributes;
use api::status::Status;
use http::{HeaderMap, HeaderValue};
use hyper::body::Body as _;
use jiff::Timestamp;
use level::{Kind, Level, Refusal};
use metrics::Counters;
use schema::Schema;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// An answer that is sent as soon as it is made.
const SHORT: u64 = 64 << 10;

pub struct Fairness {
    /// Seats of all levels together.
    total: u32,
    /// How long a request may wait.
    patience: Duration,
    current: RwLock<Arc<Configuration>>,
    /// By schema and level: what is counted outlives a configuration.
    counters: Mutex<HashMap<(String, String), Arc<Counters>>>,
    /// Somebody had to wait since seats were last lent.
    pressed: AtomicBool,
    press: Notify,
    reading: AtomicI64,
    writing: AtomicI64,
}

/// What the objects in the store come to.
#[derive(Default)]
struct Configuration {
    /// In the order in which they are tried.
    schemas: Vec<Arc<Schema>>,
    levels: BTreeMap<String, Arc<Level>>,
}

/// Where a request belongs, for its answer to say.
#[derive(Debug, Clone)]
pub struct Class {
    pub schema_uid: HeaderValue,
    pub level_uid: HeaderValue,
}

impl Class {
    pub fn write_into(self, headers: &mut HeaderMap) {
        headers.insert("x-kubernetes-pf-flowschema-uid", self.schema_uid);
        headers.insert("x-kubernetes-pf-prioritylevel-uid", self.level_uid);
    }
}

/// A request's place; given back when it is dropped.
pub struct Admitted {
    _seat: Option<Seat>,
    _counted: Counted,
}

impl Admitted {
    /// Holds on until a long answer is sent, but not for ever: a client that reads nothing would keep
    /// others out.
    pub fn until_sent(self, answer: Answer, at_most: Duration) -> Answer {
        if answer.body().size_hint().upper().is_some_and(|size| size < SHORT) {
            return answer;
        }
        let (sending, sent) = oneshot::channel::<()>();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(at_most, sent).await;
            drop(self);
        });
        holding::until_sent(answer, sending)
    }
}

/// One of those who read or write now.
struct Counted {
    fairness: Arc<Fairness>,
    mutating: bool,
}

impl Fairness {
    /// Levels share `total` seats; nobody waits longer than `patience`.
    pub fn new(total: u32, patience: Duration) -> Arc<Fairness> {
        let fairness = Arc::new(Fairness {
            total,
            patience,
            current: RwLock::default(),
            counters: Mutex::default(),
            pressed: AtomicBool::new(false),
            press: Notify::new(),
            reading: AtomicI64::new(0),
            writing: AtomicI64::new(0),
        });
        // Until the store is read, what is always in force.
        fairness.configure(&[], &[]);
        fairness
    }

    fn current(&self) -> Arc<Configuration> {
        self.current.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// How many read and how many write now.
    pub fn now(&self) -> (i64, i64) {
        (self.reading.load(Relaxed), self.writing.load(Relaxed))
    }

    /// Waits for a request's turn. `width` is asked for how many seats it takes, at most so many.
    pub async fn admit(
        self: &Arc<Self>,
        user: &User,
        wanted: &Attributes,
        mutating: bool,
        width: impl FnOnce(u32) -> u32,
    ) -> (Class, Result<Admitted, Status>) {
        let configuration = self.current();
        let schema = configuration.schema(user, wanted);
        let class = Class { schema_uid: schema.uid.clone(), level_uid: schema.level.uid.clone() };
        let level = &schema.level;
        let seat = match &level.kind {
            Kind::Exempt => {
                schema.counters.dispatched.fetch_add(1, Relaxed);
                None
            }
            Kind::Limited(_) => {
                let width = width(level.max_width()).max(1);
                match self.seat(schema, user, wanted, width).await {
                    Ok(seat) => Some(seat),
                    Err(refusal) => {
                        schema.counters.rejected[refusal as usize].fetch_add(1, Relaxed);
                        let text = "Too many requests, please try again later.";
                        let after = level.room.retry_after(Timestamp::now().as_second());
                        return (class, Err(Status::too_many_requests(text, after)));
                    }
                }
            }
        };
        (class, Ok(Admitted { _seat: seat, _counted: Counted::new(self, mutating) }))
    }

    async fn seat(
        &self,
        schema: &Arc<Schema>,
        user: &User,
        wanted: &Attributes,
        width: u32,
    ) -> Result<Seat, Refusal> {
        if let Some(seat) = schema.level.try_take(schema, width) {
            schema.counters.waited(Duration::ZERO);
            return Ok(seat);
        }
        if !self.pressed.swap(true, Relaxed) {
            self.press.notify_one();
        }
        let flow = schema.flow(user, wanted);
        schema.level.wait(schema, flow, width, self.patience).await
    }
}

impl Configuration {
    fn schema(&self, user: &User, wanted: &Attributes) -> &Arc<Schema> {
        let found = self.schemas.iter().find(|schema| schema.matches(user, wanted));
        // The last one is for everybody else, whatever it says.
        found.or(self.schemas.last()).expect("there is always a catch-all")
    }
}

impl Counted {
    fn new(fairness: &Arc<Fairness>, mutating: bool) -> Counted {
        let counted = Counted { fairness: fairness.clone(), mutating };
        counted.counter().fetch_add(1, Relaxed);
        counted
    }

    fn counter(&self) -> &AtomicI64 {
        if self.mutating { &self.fairness.writing } else { &self.fairness.reading }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counter().fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests;
