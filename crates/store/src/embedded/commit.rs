//! The committer: the one thread that changes anything.
//!
//! It takes all requests that are waiting, evaluates them one after the other, appends what they
//! change as one frame, syncs once, publishes, and answers. While it syncs the next batch gathers:
//! that is the whole of group commit, and a lone writer waits for nobody. Between batches it does
//! what time asks for, in small steps: expiring leases, compaction, the flush of coalescible
//! writes.
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::Shared;
use super::log::{Claim, Facts, Log, is_disk_full};
use super::record::{self, Record};
use super::replay::MAX_UNSYNCED;
use super::state::State;
use crate::error::{Error, Result};
use crate::model::*;

/// A frame is cut after about this much, so that one batch cannot delay the next for long.
const BATCH_BYTES: usize = 2 << 20;

/// Events removed from history between two batches.
const SWEEP: usize = 256;

/// Unsynced records are synced beyond this, whatever they are.
const UNSYNCED_BYTES: usize = 1 << 20;

type Reply<T> = oneshot::Sender<Result<T>>;

pub enum Request {
    Txn {
        txn: Txn,
        reply: Reply<TxnResponse>,
    },
    Grant {
        lease: LeaseId,
        ttl: u64,
        reply: Reply<LeaseId>,
    },
    Revoke {
        lease: LeaseId,
        reply: Option<Reply<Revision>>,
    },
    Compact {
        revision: Revision,
        reply: Option<Reply<()>>,
    },
    /// The janitor's: write these versions again, if they are still needed.
    Relocate {
        versions: Vec<(Key, Revision)>,
        reply: Reply<()>,
    },
    /// The janitor's: nothing in this segment is needed.
    Drop {
        segment: u64,
        reply: Reply<()>,
    },
}

#[derive(Default)]
pub struct Queue {
    inner: Mutex<QueueInner>,
    arrived: Condvar,
}

#[derive(Default)]
struct QueueInner {
    requests: VecDeque<Request>,
    awake: bool,
    closing: bool,
}

impl Queue {
    pub fn send(&self, request: Request) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.closing {
            return Err(Error::closed());
        }
        inner.requests.push_back(request);
        self.arrived.notify_one();
        Ok(())
    }

    /// Lets the committer look at the clock.
    pub fn wake(&self) {
        self.inner.lock().awake = true;
        self.arrived.notify_one();
    }

    pub fn close(&self) {
        self.inner.lock().closing = true;
        self.arrived.notify_one();
    }

    /// What has arrived, after waiting for something to do; true with it if the queue was closed.
    fn take(&self, timeout: Option<Duration>) -> (VecDeque<Request>, bool) {
        let mut inner = self.inner.lock();
        let idle = |i: &QueueInner| i.requests.is_empty() && !i.closing && !i.awake;
        match timeout {
            Some(timeout) if idle(&inner) => {
                self.arrived.wait_while_for(&mut inner, |i| idle(i), timeout);
            }
            Some(_) => {}
            None => self.arrived.wait_while(&mut inner, |i| idle(i)),
        }
        inner.awake = false;
        (std::mem::take(&mut inner.requests), inner.closing)
    }
}

pub struct Committer {
    shared: Arc<Shared>,
    log: Log,
    payload: Vec<u8>,
    /// Acknowledged revisions not yet synced, and since when.
    unsynced_revisions: u64,
    unsynced_since: Option<Duration>,
    /// When the store was at which revision, for history kept by time.
    samples: VecDeque<(Duration, Revision)>,
    next_expiry: Option<Duration>,
    sweeping: bool,
    /// Requests without space, while the janitor is making some.
    parked: Vec<Request>,
    /// The janitor's round after which what frees space is refused too.
    appeal: Option<u64>,
    /// That round is over.
    heard: bool,
}

/// Nobody may wait for a committer that is gone, even if a panic took it.
struct CloseBehind(Arc<Shared>);

impl Drop for CloseBehind {
    fn drop(&mut self) {
        self.0.queue.close();
        self.0.queue.inner.lock().requests.clear();
        self.0.watchers.close();
        self.0.janitor.close();
    }
}

/// What one request came to.
enum Answer {
    Txn(TxnResponse),
    Revision(Revision),
    Done,
}

impl Committer {
    pub fn new(shared: Arc<Shared>, log: Log) -> Self {
        let now = shared.now();
        let published = shared.state.read().published();
        Committer {
            shared,
            log,
            payload: Vec::new(),
            unsynced_revisions: 0,
            unsynced_since: None,
            samples: VecDeque::from([(now, published)]),
            next_expiry: Some(now),
            sweeping: true,
            parked: Vec::new(),
            appeal: None,
            heard: false,
        }
    }

    /// Makes the log's new beginning durable: until then nothing may be accepted.
    pub fn begin(&mut self) -> io::Result<()> {
        let facts = || facts(&self.shared.state.read());
        // A full disk must not keep the store closed: nobody could delete anything.
        self.log.append(&[], true, Claim::Cleaning, facts)?;
        self.shared.janitor.report(self.log.closed());
        self.shared.janitor.call();
        Ok(())
    }

    pub fn run(mut self) {
        let _guard = CloseBehind(self.shared.clone());
        loop {
            let (mut requests, closing) = self.shared.queue.take(self.time_to_wait());
            while !requests.is_empty() {
                let batch = next_batch(&mut requests);
                self.commit(batch);
            }
            if closing {
                return self.close();
            }
            self.keep_house();
        }
    }

    fn close(mut self) {
        // Who is still waiting for space hears that the store is gone.
        self.parked.clear();
        let mut payload = Vec::new();
        record::encode(&Record::Closed, &mut payload);
        let facts = || facts(&self.shared.state.read());
        if let Err(error) = self.log.append(&payload, true, Claim::Freeing, facts) {
            tracing::warn!(%error, "the store could not note that it was closed properly");
        }
    }

    fn commit(&mut self, batch: Vec<Request>) {
        let mut events = Vec::new();
        let answers = self.evaluate(&batch, &mut events);
        let sync = self.must_sync(&batch, &answers, events.len());
        let claim = batch.iter().map(claim).min().unwrap_or(Claim::Freeing);
        let facts = || facts(&self.shared.state.read());
        let appended = if self.payload.is_empty() {
            Ok(())
        } else {
            self.log.append(&self.payload, sync, claim, facts)
        };
        let made_space = batch.iter().any(|request| matches!(request, Request::Drop { .. }));
        match appended {
            Ok(()) => {
                self.publish(&batch, &answers, &events);
                self.note_unsynced(&events);
                for (request, answer) in batch.into_iter().zip(answers) {
                    answer_to(request, answer);
                }
            }
            Err(error) => {
                self.shared.state.write().take_back(&events);
                self.refuse(batch, claim, &error);
            }
        }
        self.shared.janitor.report(self.log.closed());
        if made_space {
            self.retry_parked();
        }
    }

    fn retry_parked(&mut self) {
        if !self.parked.is_empty() {
            let parked = std::mem::take(&mut self.parked);
            self.commit(parked);
        }
    }

    /// Runs the requests on the state, unpublished, and writes down what the log must say.
    fn evaluate(&mut self, batch: &[Request], events: &mut Vec<Event>) -> Vec<Result<Answer>> {
        let mut state = self.shared.state.write();
        let mut revision = state.published();
        self.payload.clear();
        let mut answers = Vec::with_capacity(batch.len());
        for request in batch {
            let first = events.len();
            let answer = match request {
                Request::Txn { txn, .. } => state.apply(txn, revision, events).map(Answer::Txn),
                Request::Grant { lease, .. } if state.leases().contains_key(lease) => {
                    Err(Error::LeaseExists(*lease))
                }
                Request::Grant { lease, ttl, .. } => {
                    record::encode(&Record::Grant { lease: *lease, ttl: *ttl }, &mut self.payload);
                    Ok(Answer::Done)
                }
                Request::Revoke { lease, .. } => match revoke(&state, *lease) {
                    Some(txns) => {
                        record::encode(&Record::Revoke { lease: *lease }, &mut self.payload);
                        for txn in &txns {
                            // Deletions of keys that exist cannot fail.
                            let _ = state.apply(txn, revision, events);
                        }
                        Ok(Answer::Revision(revision))
                    }
                    None => Err(Error::LeaseNotFound(*lease)),
                },
                Request::Compact { revision: wanted, .. } => {
                    compactable(&state, *wanted).map(|()| {
                        record::encode(&Record::Compact { revision: *wanted }, &mut self.payload);
                        Answer::Done
                    })
                }
                Request::Relocate { versions, .. } => {
                    for (key, moved) in versions {
                        let kept = state.versions(key);
                        // With all that follow it, or a later one that is dropped from the log
                        // before it would bring it back.
                        if kept.iter().any(|kv| kv.mod_revision == *moved) {
                            kept.iter()
                                .for_each(|kv| record::encode_version(kv, &mut self.payload));
                        }
                    }
                    Ok(Answer::Done)
                }
                Request::Drop { segment, .. } => {
                    self.payload.extend(self.log.forget(*segment));
                    Ok(Answer::Done)
                }
            };
            if events.len() > first {
                revision += 1;
            }
            answers.push(answer.map(|answer| stamped(answer, revision)));
        }
        drop(state);
        record::encode_events(events, &mut self.payload);
        answers
    }

    /// Whether the batch may be answered only when it is durable.
    fn must_sync(&self, batch: &[Request], answers: &[Result<Answer>], events: usize) -> bool {
        let patient = batch.iter().zip(answers).all(|(request, answer)| match request {
            Request::Txn { txn, .. } => txn.durability == Durability::Coalescible,
            Request::Compact { .. } | Request::Relocate { .. } => true,
            Request::Grant { .. } | Request::Revoke { .. } => answer.is_err(),
            Request::Drop { .. } => false,
        });
        let unsynced = self.unsynced_revisions + events as u64;
        !patient
            || unsynced >= MAX_UNSYNCED
            || self.log.unsynced_bytes() + self.payload.len() > UNSYNCED_BYTES
    }

    fn publish(&mut self, batch: &[Request], answers: &[Result<Answer>], events: &[Event]) {
        let now = self.shared.now();
        let mut state = self.shared.state.write();
        state.publish(events);
        for (request, answer) in batch.iter().zip(answers) {
            match request {
                _ if answer.is_err() => {}
                Request::Grant { lease, ttl, .. } => {
                    let deadline = now + Duration::from_secs(*ttl);
                    state.add_lease(*lease, *ttl, deadline);
                    self.next_expiry = Some(self.next_expiry.map_or(deadline, |e| e.min(deadline)));
                }
                Request::Revoke { lease, .. } => state.remove_lease(*lease),
                Request::Compact { revision, .. } => {
                    state.compact(*revision);
                    self.sweeping = true;
                }
                _ => {}
            }
        }
        self.shared.watchers.publish(events);
        let published = state.published();
        drop(state);
        let spacing = self.shared.options.history / 16;
        if self.samples.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= spacing) {
            self.samples.push_back((now, published));
        }
    }

    fn note_unsynced(&mut self, events: &[Event]) {
        if self.log.has_unsynced() {
            self.unsynced_revisions += events.len() as u64;
            self.unsynced_since.get_or_insert_with(|| self.shared.now());
        } else {
            self.unsynced_revisions = 0;
            self.unsynced_since = None;
        }
    }

    /// A full disk refuses only what needs space: the others get another try. While the janitor
    /// is making space, all but itself wait for what it finds; and what frees space waits until
    /// the janitor has done all it can.
    fn refuse(&mut self, batch: Vec<Request>, tried: Claim, error: &io::Error) {
        let full = is_disk_full(error);
        let mut again = Vec::new();
        for request in batch {
            let hopes = match claim(&request) {
                // It will be wanted again.
                _ if matches!(request, Request::Compact { reply: None, .. }) => false,
                Claim::Ordinary => self.shared.janitor.is_cleaning(),
                Claim::Freeing => !self.heard || self.shared.janitor.is_cleaning(),
                Claim::Cleaning => false,
            };
            if full && claim(&request) > tried {
                again.push(request);
            } else if full && hopes {
                self.parked.push(request);
            } else if full {
                answer_to(request, Err(Error::NoSpace(error.to_string())));
            } else {
                answer_to(request, Err(Error::Unavailable(format!("writing the log: {error}"))));
            }
        }
        if !again.is_empty() {
            self.commit(again);
        }
    }

    fn keep_house(&mut self) {
        let now = self.shared.now();
        if self
            .unsynced_since
            .is_some_and(|since| now >= since + self.shared.options.flush_interval)
        {
            let facts = || facts(&self.shared.state.read());
            match self.log.sync(facts) {
                Ok(()) => (self.unsynced_revisions, self.unsynced_since) = (0, None),
                Err(error) => {
                    tracing::error!(%error, "coalescible writes cannot be synced");
                    self.unsynced_since = Some(now);
                }
            }
        }
        if !self.shared.janitor.is_cleaning() {
            self.retry_parked();
        }
        self.expire_leases(now);
        self.forget_history(now);
        if self.sweeping {
            self.sweeping = self.shared.state.write().sweep(SWEEP);
            if !self.sweeping {
                self.shared.janitor.call();
            }
        }
        self.hear_parked();
    }

    /// Those who still wait for space have the janitor look once more when all history is gone
    /// that can go, and are told when it has.
    fn hear_parked(&mut self) {
        if self.parked.is_empty() {
            self.appeal = None;
        } else if !self.sweeping && !self.shared.janitor.is_cleaning() {
            match self.appeal {
                None => self.appeal = Some(self.shared.janitor.appeal()),
                Some(round) if self.shared.janitor.rounds() < round => {}
                Some(_) => {
                    self.appeal = None;
                    self.heard = true;
                    self.retry_parked();
                    self.heard = false;
                }
            }
        }
    }

    fn expire_leases(&mut self, now: Duration) {
        if self.next_expiry.is_none_or(|at| at > now) {
            return;
        }
        let state = self.shared.state.read();
        let expired: Vec<LeaseId> =
            state.leases().iter().filter(|(_, l)| l.deadline <= now).map(|(id, _)| *id).collect();
        self.next_expiry =
            state.leases().values().map(|l| l.deadline).filter(|deadline| *deadline > now).min();
        drop(state);
        for lease in expired {
            self.commit(vec![Request::Revoke { lease, reply: None }]);
        }
    }

    fn forget_history(&mut self, now: Duration) {
        let (history, bytes) = (self.shared.options.history, self.shared.options.history_bytes);
        let mut target = 0;
        while let Some((_, revision)) = self.samples.pop_front_if(|(at, _)| *at + history <= now) {
            target = revision;
        }
        {
            let state = self.shared.state.read();
            if state.history_bytes() > bytes && state.history().len() > 1 && !self.sweeping {
                // Half of it, so that the next time is far.
                let middle = &state.history()[state.history().len() / 2];
                target = target.max(middle.revision());
            }
            if self.shared.spares.is_full() {
                target = state.published();
            }
            if self.samples.is_empty() && state.published() > state.compacted() {
                // What came after the last sample and was followed by silence.
                self.samples.push_back((now, state.published()));
            }
            if target <= state.compacted() {
                return;
            }
        }
        self.commit(vec![Request::Compact { revision: target, reply: None }]);
    }

    /// Until the clock asks for something; nothing is "until a request comes".
    fn time_to_wait(&self) -> Option<Duration> {
        if self.sweeping {
            return Some(Duration::ZERO);
        }
        let options = &self.shared.options;
        let flush = self.unsynced_since.map(|since| since + options.flush_interval);
        let forget = self.samples.front().map(|(at, _)| *at + options.history);
        let due = [flush, forget, self.next_expiry].into_iter().flatten().min()?;
        Some(due.saturating_sub(self.shared.now()))
    }
}

fn facts(state: &State) -> Facts {
    Facts {
        revision: state.published(),
        compacted: state.compacted(),
        leases: state.leases().iter().map(|(id, lease)| (*id, lease.ttl)).collect(),
    }
}

/// The next requests to commit together. A revocation stands alone: it must see every key that
/// was given its lease, and none may be given it afterwards.
fn next_batch(requests: &mut VecDeque<Request>) -> Vec<Request> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while let Some(request) = requests.front() {
        let alone = matches!(request, Request::Revoke { .. });
        if !batch.is_empty() && (alone || bytes > BATCH_BYTES) {
            break;
        }
        if let Request::Txn { txn, .. } = request {
            bytes += txn.payload_bytes();
        }
        batch.extend(requests.pop_front());
        if alone {
            break;
        }
    }
    batch
}

/// How deep a request may reach into the reserve of space.
fn claim(request: &Request) -> Claim {
    match request {
        Request::Txn { txn, .. } if frees(txn) => Claim::Freeing,
        Request::Txn { .. } | Request::Grant { .. } => Claim::Ordinary,
        Request::Revoke { .. } | Request::Compact { .. } => Claim::Freeing,
        Request::Relocate { .. } | Request::Drop { .. } => Claim::Cleaning,
    }
}

fn frees(txn: &Txn) -> bool {
    txn.success.iter().chain(&txn.failure).all(|op| match op {
        Op::Put(_) => false,
        Op::Delete(_) | Op::Range(_) => true,
        Op::Txn(txn) => frees(txn),
    })
}

/// Deletions of a lease's keys, in transactions of allowed size.
fn revoke(state: &State, lease: LeaseId) -> Option<Vec<Txn>> {
    let keys: Vec<&Key> = state.leases().get(&lease)?.keys.iter().collect();
    let txn = |keys: &[&Key]| Txn {
        success: keys.iter().map(|key| Op::Delete(KeyRange::key(*key))).collect(),
        ..Txn::default()
    };
    Some(keys.chunks(MAX_TXN_OPS).map(txn).collect())
}

fn compactable(state: &State, revision: Revision) -> Result<()> {
    if revision > state.published() {
        let current = state.published();
        return Err(Error::FutureRevision { requested: revision, current });
    }
    if revision <= state.compacted() {
        let compacted = state.compacted();
        return Err(Error::Compacted { requested: revision, compacted });
    }
    Ok(())
}

/// Gives an answer the revision it was made at, which only a change moves.
fn stamped(answer: Answer, revision: Revision) -> Answer {
    fn stamp(response: &mut TxnResponse, revision: Revision) {
        response.revision = revision;
        for response in &mut response.responses {
            match response {
                OpResponse::Range(range) => range.revision = revision,
                OpResponse::Txn(txn) => stamp(txn, revision),
                OpResponse::Put(_) | OpResponse::Delete(_) => {}
            }
        }
    }
    match answer {
        Answer::Txn(mut response) => {
            stamp(&mut response, revision);
            Answer::Txn(response)
        }
        Answer::Revision(_) => Answer::Revision(revision),
        Answer::Done => Answer::Done,
    }
}

fn answer_to(request: Request, answer: Result<Answer>) {
    // Who asked may have gone; the change stands all the same.
    match request {
        Request::Txn { reply, .. } => drop(reply.send(answer.map(|answer| match answer {
            Answer::Txn(response) => response,
            Answer::Revision(_) | Answer::Done => TxnResponse::default(),
        }))),
        Request::Grant { reply, lease, .. } => drop(reply.send(answer.map(|_| lease))),
        Request::Revoke { reply: Some(reply), .. } => drop(reply.send(answer.map(|a| match a {
            Answer::Revision(revision) => revision,
            Answer::Txn(_) | Answer::Done => 0,
        }))),
        Request::Compact { reply: Some(reply), .. }
        | Request::Relocate { reply, .. }
        | Request::Drop { reply, .. } => drop(reply.send(answer.map(|_| ()))),
        Request::Revoke { reply: None, .. } | Request::Compact { reply: None, .. } => {}
    }
}
