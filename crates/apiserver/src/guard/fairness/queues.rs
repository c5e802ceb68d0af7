//! Who is next: fair queuing by virtual time.
//!
//! Each queue is thought of as if it alone were served at its fair share of the seats, and has the
//! virtual time at which its next request would begin. The one that would end first goes first; a
//! request is charged an estimate when it begins, and the difference to what it took when it ends. So
//! a queue that asks for much waits for one that asks for little, and idling saves nothing up.
//!
//! Nothing here knows the clock: time is an argument, in seconds.
use super::deal;
use std::collections::VecDeque;

/// What a request is taken to last before anybody knows.
const ESTIMATE: f64 = 0.003;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub queues: usize,
    pub hand: usize,
    pub length: usize,
}

#[derive(Debug)]
pub struct Queues<T> {
    queues: Vec<Queue<T>>,
    /// Where the search for the next one begins.
    robin: usize,
    enqueued: usize,
    /// Virtual time, in seat seconds, and when that was.
    virtual_now: f64,
    at: f64,
    last: u64,
}

#[derive(Debug)]
pub struct Queue<T> {
    pub waiting: VecDeque<Waiting<T>>,
    pub seats: u32,
    pub executing: u32,
    /// The virtual time at which its next request begins.
    pub next: f64,
}

#[derive(Debug)]
pub struct Waiting<T> {
    id: u64,
    pub width: u32,
    arrived: f64,
    pub what: T,
}

/// Where a request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub queue: usize,
    id: u64,
}

impl<T> Default for Queues<T> {
    fn default() -> Self {
        Queues { queues: Vec::new(), robin: 0, enqueued: 0, virtual_now: 0.0, at: 0.0, last: 0 }
    }
}

impl<T> Queues<T> {
    pub fn all(&self) -> &[Queue<T>] {
        &self.queues
    }

    /// What all who wait would take.
    fn seats_asked_for(&self) -> u32 {
        self.queues.iter().map(|q| q.seats + q.waiting.iter().map(|w| w.width).sum::<u32>()).sum()
    }

    /// Virtual time goes as fast as an active queue is served.
    fn advance(&mut self, now: f64, limit: u32) {
        let active = self.queues.iter().filter(|queue| queue.is_active()).count();
        if active > 0 {
            let served = self.seats_asked_for().min(limit);
            self.virtual_now += (now - self.at).max(0.0) * f64::from(served) / active as f64;
        }
        self.at = now;
    }

    /// Puts a request into the shortest queue of its hand; nothing if that is full.
    pub fn enqueue(
        &mut self,
        shape: Shape,
        flow: u64,
        width: u32,
        what: T,
        (now, limit): (f64, u32),
    ) -> Option<Place> {
        self.advance(now, limit);
        while self.queues.len() < shape.queues {
            let waiting = VecDeque::new();
            self.queues.push(Queue { waiting, seats: 0, executing: 0, next: 0.0 });
        }
        let hand = deal::hand(flow, shape.queues.max(1), shape.hand.max(1));
        let first = self.enqueued % hand.len();
        self.enqueued += 1;
        let (before, after) = hand.split_at(first);
        let work = |index: &&usize| {
            self.queues[**index].waiting.iter().map(|waiting| u64::from(waiting.width)).sum::<u64>()
        };
        let index = *after.iter().chain(before).min_by_key(work)?;
        let virtual_now = self.virtual_now;
        let queue = &mut self.queues[index];
        if queue.waiting.len() >= shape.length {
            return None;
        }
        if !queue.is_active() {
            queue.next = virtual_now;
        }
        self.last += 1;
        let id = self.last;
        queue.waiting.push_back(Waiting { id, width, arrived: virtual_now, what });
        queue.bound();
        Some(Place { queue: index, id })
    }

    /// Takes the next one out, if `fits` says that there are seats for it: a wide one is waited for,
    /// or narrow ones would pass it by for ever.
    pub fn dequeue(
        &mut self,
        (now, limit): (f64, u32),
        fits: impl FnOnce(u32) -> bool,
    ) -> Option<(usize, Waiting<T>)> {
        self.advance(now, limit);
        let count = self.queues.len();
        let mut best: Option<(f64, usize)> = None;
        for step in 1..=count {
            let index = (self.robin + step) % count;
            let queue = &self.queues[index];
            if let Some(first) = queue.waiting.front() {
                let end = queue.next + f64::from(first.width) * ESTIMATE;
                if best.is_none_or(|(earliest, _)| end < earliest) {
                    best = Some((end, index));
                }
            }
        }
        let (_, index) = best?;
        let queue = &mut self.queues[index];
        if !fits(queue.waiting.front()?.width) {
            return None;
        }
        let waiting = queue.waiting.pop_front()?;
        queue.seats += waiting.width;
        queue.executing += 1;
        queue.next += f64::from(waiting.width) * ESTIMATE;
        queue.bound();
        self.robin = index;
        Some((index, waiting))
    }

    /// Takes a request out that waits no longer; says whether it was still there.
    pub fn remove(&mut self, place: Place) -> bool {
        let Some(queue) = self.queues.get_mut(place.queue) else { return false };
        let found = queue.waiting.iter().position(|waiting| waiting.id == place.id);
        let removed = found.and_then(|index| queue.waiting.remove(index)).is_some();
        queue.bound();
        removed
    }

    /// A request that began from this queue has ended after so long.
    pub fn finish(&mut self, index: usize, width: u32, took: f64, (now, limit): (f64, u32)) {
        self.advance(now, limit);
        let Some(queue) = self.queues.get_mut(index) else { return };
        queue.seats = queue.seats.saturating_sub(width);
        queue.executing = queue.executing.saturating_sub(1);
        queue.next -= f64::from(width) * (ESTIMATE - took);
        queue.bound();
    }
}

impl<T> Queue<T> {
    fn is_active(&self) -> bool {
        !self.waiting.is_empty() || self.executing > 0
    }

    /// Nobody begins before he came: a queue saves nothing up.
    fn bound(&mut self) {
        if let Some(first) = self.waiting.front() {
            self.next = self.next.max(first.arrived);
        }
    }

    pub fn work_waiting(&self) -> f64 {
        self.waiting.iter().map(|waiting| f64::from(waiting.width) * ESTIMATE).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { queues: 64, hand: 6, length: 50 };

    /// Two flows that share none of their queues. The hashes of a server are of its process' own, and
    /// deal such hands in one process and others in the next.
    const FLOWS: [u64; 2] = [0, 987_654_321_098];

    /// One seat, flows with so many requests waiting each; the order in which they are served.
    fn served(flows: &[(&'static str, usize, f64); 2]) -> String {
        let mut queues = Queues::default();
        for ((name, count, _), flow) in flows.iter().zip(FLOWS) {
            for _ in 0..*count {
                let placed = queues.enqueue(SHAPE, flow, 1, *name, (0.0, 1));
                assert!(placed.is_some(), "{name} fits");
            }
        }
        let (mut now, mut out) = (0.0, String::new());
        while let Some((index, waiting)) = queues.dequeue((now, 1), |_| true) {
            let took = flows.iter().find(|(name, ..)| *name == waiting.what).expect("a flow").2;
            now += took;
            queues.finish(index, waiting.width, took, (now, 1));
            out.push_str(waiting.what);
        }
        out
    }

    #[test]
    fn the_flows_of_these_tests_share_no_queue() {
        let [one, other] = FLOWS.map(|flow| deal::hand(flow, SHAPE.queues, SHAPE.hand));
        assert!(one.iter().all(|queue| !other.contains(queue)), "{one:?} {other:?}");
    }

    #[test]
    fn a_flood_does_not_hold_up_a_trickle() {
        let order = served(&[("f", 200, 0.003), ("t", 2, 0.003)]);
        assert_eq!(order.len(), 202);
        // A flow has six queues at most: the trickle waits for one round of them each time.
        let last = order.rfind('t').expect("it was served");
        assert!(last <= 16, "{order}");
    }

    #[test]
    fn who_takes_longer_is_served_less_often() {
        let order = served(&[("s", 40, 0.030), ("q", 40, 0.003)]);
        let half = &order[..40];
        assert!(half.matches('q').count() > 3 * half.matches('s').count(), "{order}");
    }

    #[test]
    fn a_queue_that_is_full_takes_no_more() {
        let mut queues = Queues::default();
        let shape = Shape { queues: 1, hand: 1, length: 2 };
        let placed: Vec<bool> =
            (0..3).map(|_| queues.enqueue(shape, 7, 1, (), (0.0, 1)).is_some()).collect();
        assert_eq!(placed, [true, true, false]);
        let place = queues.enqueue(Shape { length: 3, ..shape }, 7, 1, (), (0.0, 1)).expect("room");
        assert!(queues.remove(place));
        assert!(!queues.remove(place), "it was there once");
    }

    #[test]
    fn a_wide_request_is_waited_for() {
        let mut queues = Queues::default();
        let shape = Shape { queues: 1, hand: 1, length: 5 };
        queues.enqueue(shape, 1, 8, "wide", (0.0, 10)).expect("room");
        queues.enqueue(shape, 1, 1, "narrow", (0.0, 10)).expect("room");
        assert!(queues.dequeue((0.0, 10), |width| width <= 3).is_none());
        let (_, first) = queues.dequeue((0.0, 10), |width| width <= 10).expect("it fits");
        assert_eq!(first.what, "wide");
    }
}
