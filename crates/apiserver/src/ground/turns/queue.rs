//! Who is next: the flow that has had the least.
//!
//! Each flow has the processor time it was given, and the one with the least goes first. Who was away
//! begins where the others are, or a little before: what little he wants is done at once, and idling
//! saves no more than that up.
//!
//! Nothing here knows the clock: what a turn took is an argument.
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

/// How far ahead of a busy flow one comes in that was away: a few small requests.
const AHEAD: u64 = 300_000;
/// So many flows are remembered before those are forgotten that nothing need be known of.
const FLOWS: usize = 256;

/// One of so many that came last may be preferred to who came first.
const LATELY: usize = 8;

pub struct Queue<T> {
    flows: HashMap<u64, Flow<T>>,
    /// Flows that wait, by the nanoseconds they had when they were put here, or later.
    order: BinaryHeap<Reverse<(u64, u64)>>,
    /// What one has had who always waited and got his share: where who was away comes in.
    level: u64,
    waiting: usize,
    sweep_at: usize,
}

struct Flow<T> {
    /// Nanoseconds it was given.
    had: u64,
    waiting: VecDeque<T>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue {
            flows: HashMap::new(),
            order: BinaryHeap::new(),
            level: 0,
            waiting: 0,
            sweep_at: FLOWS,
        }
    }
}

impl<T> Queue<T> {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    pub fn push(&mut self, flow: u64, what: T) {
        if self.flows.len() >= self.sweep_at {
            self.sweep();
        }
        let start = self.level.saturating_sub(AHEAD);
        let entry = self.flows.entry(flow).or_insert(Flow { had: 0, waiting: VecDeque::new() });
        if entry.waiting.is_empty() {
            entry.had = entry.had.max(start);
            self.order.push(Reverse((entry.had, flow)));
        }
        entry.waiting.push_back(what);
        self.waiting += 1;
    }

    /// The next one; of his, who is next, one that is preferred if it came lately.
    pub fn pop(&mut self, preferred: impl Fn(&T) -> bool) -> Option<(u64, T)> {
        loop {
            let Reverse((had, flow)) = self.order.pop()?;
            let Some(entry) = self.flows.get_mut(&flow) else { continue };
            // It was given more since it was put here.
            if had < entry.had {
                self.order.push(Reverse((entry.had, flow)));
                continue;
            }
            let lately = entry.waiting.len().saturating_sub(LATELY);
            let mut late = entry.waiting.range(lately..);
            let at = late.position(&preferred).map_or(0, |at| lately + at);
            let Some(what) = entry.waiting.remove(at) else { continue };
            self.level = self.level.max(had);
            if !entry.waiting.is_empty() {
                self.order.push(Reverse((had, flow)));
            }
            self.waiting -= 1;
            return Some((flow, what));
        }
    }

    /// A flow's turn took so long.
    pub fn charge(&mut self, flow: u64, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX / 2);
        self.level += took / (self.order.len() as u64 + 1);
        if let Some(flow) = self.flows.get_mut(&flow) {
            flow.had += took;
        }
    }

    /// Forgets those who would begin anew all the same.
    fn sweep(&mut self) {
        let start = self.level.saturating_sub(AHEAD);
        self.flows.retain(|_, flow| !flow.waiting.is_empty() || flow.had > start);
        self.sweep_at = (2 * self.flows.len()).max(FLOWS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Serves so many turns, each so long; whose they were.
    fn serve(queue: &mut Queue<char>, turns: usize, took: impl Fn(char) -> Duration) -> String {
        let mut order = String::new();
        for _ in 0..turns {
            let Some((flow, who)) = queue.pop(|_| false) else { break };
            queue.charge(flow, took(who));
            order.push(who);
        }
        order
    }

    fn crowd(queue: &mut Queue<char>, who: char, count: usize) {
        for _ in 0..count {
            queue.push(who as u64, who);
        }
    }

    #[test]
    fn one_who_was_away_goes_before_a_crowd() {
        let mut queue = Queue::default();
        crowd(&mut queue, 'f', 100);
        assert_eq!(serve(&mut queue, 50, |_| 20 * US), "f".repeat(50));
        crowd(&mut queue, 'v', 3);
        assert_eq!(serve(&mut queue, 5, |_| 20 * US), "vvvff");
    }

    #[test]
    fn two_crowds_share_by_time_not_by_turns() {
        let mut queue = Queue::default();
        crowd(&mut queue, 'l', 200);
        crowd(&mut queue, 's', 200);
        let order = serve(&mut queue, 110, |who| if who == 'l' { 100 * US } else { 10 * US });
        let long = order.matches('l').count();
        assert!((9..=11).contains(&long), "{order}");
    }

    #[test]
    fn being_away_saves_little_up() {
        let mut queue = Queue::default();
        crowd(&mut queue, 'a', 1000);
        crowd(&mut queue, 'b', 1);
        serve(&mut queue, 500, |_| 100 * US);
        crowd(&mut queue, 'b', 100);
        let order = serve(&mut queue, 20, |_| 100 * US);
        // Three turns ahead, then one each.
        assert!((9..=13).contains(&order.matches('b').count()), "{order}");
    }

    #[test]
    fn one_of_his_is_preferred_but_nobody_to_another() {
        let mut queue = Queue::default();
        "abcdefghijkl".chars().for_each(|what| queue.push(1, what));
        queue.push(2, 'x');
        queue.charge(1, 100 * US);
        let mut next = |preferred: char| queue.pop(|what| *what == preferred).map(|(_, what)| what);
        assert_eq!(next('k'), Some('x'), "it is another's turn");
        assert_eq!(next('k'), Some('k'));
        assert_eq!(next('k'), Some('a'), "it is not there any more");
        assert_eq!(next('c'), Some('b'), "it came too long ago");
        assert_eq!(next('l'), Some('l'));
    }

    #[test]
    fn flows_that_come_once_are_forgotten() {
        let mut queue = Queue::default();
        for flow in 0..10_000 {
            queue.push(flow, 'x');
            assert_eq!(serve(&mut queue, 1, |_| 100 * US), "x");
        }
        assert!(queue.flows.len() <= FLOWS, "{}", queue.flows.len());
        assert_eq!((queue.len(), queue.order.len()), (0, 0));
    }
}
