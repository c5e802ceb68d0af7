//! Pods that wait for a node: who is next, who tries again later, and who waits for what.
//!
//! Pure: it is told the time. A pod that fits nowhere waits until something happens that may help
//! it, and then some time more if it has tried often; while nobody else is there, that is skipped.
use crate::config::Configuration;
use crate::pod::PodInfo;
use jiff::{SignedDuration, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

type Uid = Box<str>;

pub struct Queue {
    /// How long a pod that failed waits, doubled each time, and at most.
    first_backoff: SignedDuration,
    longest_backoff: SignedDuration,
    /// Whatever is missed: after this time a pod is tried again.
    longest_wait: SignedDuration,
    entries: HashMap<Uid, Entry>,
    /// By priority, then by age.
    active: BTreeSet<(Reverse<i32>, Timestamp, u64, Uid)>,
    /// By when they are due.
    backoff: BTreeSet<(Timestamp, Uid)>,
    /// By since when they wait.
    waiting: BTreeSet<(Timestamp, Uid)>,
    /// What may help any of them, or more: most of what happens concerns nobody.
    listening: u32,
    count: u64,
    /// Pods that came to a part of the queue, by why and where, since somebody last took the counts.
    pub incoming: BTreeMap<(&'static str, &'static str), u64>,
}

struct Entry {
    pod: Arc<PodInfo>,
    attempts: u32,
    /// When it could first be tried.
    begun: Timestamp,
    /// When it came into the queue, or back.
    since: Timestamp,
    /// Its number, so that pods of one moment stay in order.
    number: u64,
    state: State,
    /// What may help it ([`crate::event`]).
    wakes: u32,
    /// Who refused it: rows of [`crate::filter::FILTERS`].
    filters: u32,
    /// Other pods are being deleted for it: it does not try meanwhile. True: something happened
    /// that would have woken it.
    preempting: Option<bool>,
}

/// Why a pod waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    pub wakes: u32,
    pub filters: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    /// Until then; what failed for want of the API server does not jump the queue.
    Backoff {
        due: Timestamp,
        is_error: bool,
    },
    Waiting,
    Gated,
    /// Somebody decides about it, or binds it.
    Taken,
}

/// Why a pod is in the queue again that was tried.
const FAILURE: &str = "ScheduleAttemptFailure";

impl State {
    /// Which part of the queue it is in, by upstream's name.
    fn name(self) -> Option<&'static str> {
        match self {
            State::Active => Some("active"),
            State::Backoff { .. } => Some("backoff"),
            State::Waiting => Some("unschedulable"),
            State::Gated => Some("gated"),
            State::Taken => None,
        }
    }
}

impl Queue {
    pub fn new(configuration: &Configuration) -> Queue {
        let Configuration { pod_initial_backoff, pod_max_backoff, longest_wait, .. } =
            configuration;
        let signed = |it: Duration| SignedDuration::try_from(it).unwrap_or(SignedDuration::MAX);
        Queue {
            first_backoff: signed(*pod_initial_backoff),
            longest_backoff: signed(*pod_max_backoff),
            longest_wait: signed(*longest_wait),
            entries: HashMap::new(),
            active: BTreeSet::new(),
            backoff: BTreeSet::new(),
            waiting: BTreeSet::new(),
            listening: 0,
            count: 0,
            incoming: BTreeMap::new(),
        }
    }

    /// A pod that waits for a node, new or changed.
    pub fn set(&mut self, pod: Arc<PodInfo>, gated: bool, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(&pod.uid) else {
            self.count += 1;
            let state = State::Gated;
            let entry = Entry {
                attempts: 0,
                begun: now,
                since: now,
                number: self.count,
                state,
                wakes: 0,
                filters: 0,
                preempting: None,
                pod: pod.clone(),
            };
            self.entries.insert(pod.uid.clone(), entry);
            if !gated {
                self.put(&pod.uid, State::Active);
            }
            self.came("PodAdd", if gated { State::Gated } else { State::Active });
            return;
        };
        let is_other = entry.pod.wishes != pod.wishes
            || entry.pod.labels != pod.labels
            || entry.pod.device_claims != pod.device_claims;
        let state = entry.state;
        entry.pod = pod.clone();
        match state {
            State::Gated if !gated => {
                (entry.since, entry.begun) = (now, now);
                self.put(&pod.uid, State::Active);
                self.came("PodUpdate", State::Active);
            }
            // What is changed may fit now.
            State::Waiting if is_other => self.retry(&pod.uid, "PodUpdate", now),
            State::Active if is_other => self.put(&pod.uid, State::Active),
            _ => {}
        }
    }

    /// Pods that are not to be tried.
    pub fn held(&self) -> Vec<Arc<PodInfo>> {
        let held = self.entries.values().filter(|entry| entry.state == State::Gated);
        held.map(|entry| entry.pod.clone()).collect()
    }

    /// It is gone, or has a node.
    pub fn remove(&mut self, uid: &str) {
        self.unlink(uid);
        self.entries.remove(uid);
    }

    /// The next pod to decide about; it is taken until the outcome is told.
    pub fn take(&mut self, now: Timestamp) -> Option<Arc<PodInfo>> {
        self.advance(now);
        let next = self.active.first().map(|(.., uid)| uid.clone());
        let uid = next.or_else(|| self.first_in_backoff())?;
        self.put(&uid, State::Taken);
        let entry = self.entries.get_mut(&uid)?;
        entry.attempts += 1;
        Some(entry.pod.clone())
    }

    /// Others that belong to one that was taken: they are decided about with it, whatever they wait for but
    /// for what holds them. The most important first.
    pub fn take_with(&mut self, belongs: impl Fn(&PodInfo) -> bool) -> Vec<Arc<PodInfo>> {
        let is_free = |state| !matches!(state, State::Gated | State::Taken);
        let found = self.entries.values().filter(|it| is_free(it.state) && belongs(&it.pod));
        let mut found: Vec<_> =
            found.map(|it| (-it.pod.wishes.priority, it.number, it.pod.clone())).collect();
        found.sort_by_key(|(priority, number, _)| (*priority, *number));
        for (.., pod) in &found {
            self.put(&pod.uid, State::Taken);
            if let Some(entry) = self.entries.get_mut(&pod.uid) {
                entry.attempts += 1;
            }
        }
        found.into_iter().map(|(.., pod)| pod).collect()
    }

    /// With nobody else to decide about, there is no reason to let a pod wait.
    fn first_in_backoff(&self) -> Option<Uid> {
        let mut may_jump = self.backoff.iter().filter(|(_, uid)| {
            let state = self.entries.get(uid).map(|entry| entry.state);
            !matches!(state, Some(State::Backoff { is_error: true, .. }))
        });
        may_jump.next().map(|(_, uid)| uid.clone())
    }

    /// It fits nowhere, until one of these happens.
    pub fn refused(&mut self, uid: &str, by: Refused, is_preempting: bool, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let Refused { wakes, filters } = by;
        (entry.wakes, entry.filters) = (wakes, filters);
        entry.since = now;
        entry.preempting = is_preempting.then_some(false);
        self.listening |= wakes;
        self.put(uid, State::Waiting);
        self.came(FAILURE, State::Waiting);
    }

    /// Its binding failed: it is tried again.
    pub fn failed(&mut self, uid: &str, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.since = now;
        let due = now + after(entry.attempts, self.first_backoff, self.longest_backoff);
        let state = State::Backoff { due, is_error: true };
        self.put(uid, state);
        self.came(FAILURE, state);
    }

    /// The deletions for its sake are through.
    pub fn preempted(&mut self, uid: &str, succeeded: bool, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let woken = entry.preempting.take();
        if entry.state == State::Waiting && (woken == Some(true) || !succeeded) {
            self.retry(uid, "PreemptionDone", now);
        }
    }

    /// Something happened in the cluster.
    pub fn wake(&mut self, events: u32, now: Timestamp) {
        self.wake_if(events, now, |_, _| true);
    }

    /// The same, for those whom it may help: a pod, and who refused it.
    pub fn wake_if(
        &mut self,
        events: u32,
        now: Timestamp,
        may_help: impl Fn(&Arc<PodInfo>, u32) -> bool,
    ) {
        if self.waiting.is_empty() {
            self.listening = 0;
        }
        if events & self.listening == 0 {
            return;
        }
        let waiting: Vec<Uid> = self.waiting.iter().map(|(_, uid)| uid.clone()).collect();
        for uid in waiting {
            let Some(entry) = self.entries.get_mut(&uid) else { continue };
            let why = crate::event::name(entry.wakes & events);
            match &mut entry.preempting {
                _ if entry.wakes & events == 0 || !may_help(&entry.pod, entry.filters) => {}
                Some(missed) => *missed = true,
                None => self.retry(&uid, why, now),
            }
        }
    }

    /// When somebody should look again, if nothing happens.
    pub fn due(&self) -> Option<Timestamp> {
        let backoff = self.backoff.first().map(|(due, _)| *due);
        let waiting = self.waiting.first().map(|(since, _)| *since + self.longest_wait);
        backoff.into_iter().chain(waiting).min()
    }

    /// Pods that wait for a node.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    fn advance(&mut self, now: Timestamp) {
        while let Some((due, uid)) = self.backoff.first()
            && *due <= now
        {
            let uid = uid.clone();
            self.put(&uid, State::Active);
            self.came("BackoffComplete", State::Active);
        }
        while let Some((since, uid)) = self.waiting.first()
            && *since + self.longest_wait <= now
        {
            let uid = uid.clone();
            self.retry(&uid, "UnschedulableTimeout", now);
        }
    }

    /// At once if it has waited long enough.
    fn retry(&mut self, uid: &str, why: &'static str, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let due = entry.since + after(entry.attempts, self.first_backoff, self.longest_backoff);
        let state = match due > now {
            true => State::Backoff { due, is_error: false },
            false => State::Active,
        };
        self.put(uid, state);
        self.came(why, state);
    }

    fn came(&mut self, why: &'static str, state: State) {
        if let Some(queue) = state.name() {
            *self.incoming.entry((why, queue)).or_default() += 1;
        }
    }

    /// How often a pod was tried, and since when it could be.
    pub fn history(&self, uid: &str) -> Option<(u32, Timestamp)> {
        self.entries.get(uid).map(|entry| (entry.attempts, entry.begun))
    }

    /// How many pods wait in each part.
    pub fn counts(&self) -> [(&'static str, usize); 4] {
        let gated = self.entries.values().filter(|entry| entry.state == State::Gated).count();
        let [active, backoff] = [self.active.len(), self.backoff.len()];
        [
            ("active", active),
            ("backoff", backoff),
            ("unschedulable", self.waiting.len()),
            ("gated", gated),
        ]
    }

    /// How many pods wait because of a plugin, by profile and plugin.
    pub fn refusing(&self) -> BTreeMap<(Arc<str>, &'static str), usize> {
        let mut all = BTreeMap::new();
        for entry in self.entries.values().filter(|entry| entry.state == State::Waiting) {
            let profile: Arc<str> = (&*entry.pod.wishes.scheduler).into();
            for plugin in crate::filter::names(entry.filters) {
                *all.entry((profile.clone(), plugin)).or_default() += 1;
            }
        }
        all
    }

    fn put(&mut self, uid: &str, state: State) {
        self.unlink(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.state = state;
        match state {
            State::Active => drop(self.active.insert(active_key(entry))),
            State::Backoff { due, .. } => drop(self.backoff.insert((due, uid.into()))),
            State::Waiting => drop(self.waiting.insert((entry.since, uid.into()))),
            State::Gated | State::Taken => {}
        }
    }

    fn unlink(&mut self, uid: &str) {
        let Some(entry) = self.entries.get(uid) else { return };
        match entry.state {
            // A changed priority makes the key another one: priorities do not change, yet a
            // queue that keeps what is gone would never end.
            State::Active => {
                if !self.active.remove(&active_key(entry)) {
                    self.active.retain(|(.., other)| **other != *uid);
                }
            }
            State::Backoff { due, .. } => drop(self.backoff.remove(&(due, uid.into()))),
            State::Waiting => drop(self.waiting.remove(&(entry.since, uid.into()))),
            State::Gated | State::Taken => {}
        }
    }
}

fn active_key(entry: &Entry) -> (Reverse<i32>, Timestamp, u64, Uid) {
    (Reverse(entry.pod.wishes.priority), entry.since, entry.number, entry.pod.uid.clone())
}

fn after(attempts: u32, first: SignedDuration, longest: SignedDuration) -> SignedDuration {
    match attempts {
        0 => SignedDuration::ZERO,
        n => first.saturating_mul(1 << (n - 1).min(20)).min(longest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event;
    use crate::testing::pod;

    struct Test {
        queue: Queue,
        start: Timestamp,
        now: Timestamp,
    }

    impl Test {
        fn new() -> Test {
            let now = Timestamp::UNIX_EPOCH;
            let queue = Queue::new(&Configuration::default());
            Test { queue, start: now, now }
        }

        fn at(&mut self, milliseconds: i64) -> &mut Test {
            self.now = self.start + SignedDuration::from_millis(milliseconds);
            self
        }

        fn set(&mut self, text: &str) {
            let pod = pod(text);
            let gated = pod.wishes.gated;
            self.queue.set(pod, gated, self.now);
        }

        fn take(&mut self) -> Option<String> {
            Some(self.queue.take(self.now)?.key.name.to_string())
        }

        fn refuse(&mut self, name: &str, wakes: u32) {
            let by = Refused { wakes, filters: 0 };
            self.queue.refused(&format!("{name}-uid"), by, false, self.now);
        }

        fn wake(&mut self, events: u32) {
            self.queue.wake(events, self.now);
        }

        fn due(&self) -> Option<i64> {
            Some(self.queue.due()?.duration_since(self.start).as_millis() as i64)
        }
    }

    #[test]
    fn priority_comes_before_age() {
        let mut test = Test::new();
        test.set("old");
        test.at(1).set("new");
        test.at(2).set("important priority=10");
        let order: Vec<_> = std::iter::from_fn(|| test.take()).collect();
        assert_eq!(order, ["important", "old", "new"]);
    }

    #[test]
    fn a_pod_waits_for_what_may_help_it() {
        let mut test = Test::new();
        test.set("a");
        assert_eq!(test.take().as_deref(), Some("a"));
        test.refuse("a", event::NODE_ADD);
        test.at(2000).wake(event::POD_GONE);
        assert_eq!(test.take(), None);
        test.wake(event::NODE_ADD);
        assert_eq!(test.take().as_deref(), Some("a"));
    }

    #[test]
    fn it_backs_off_longer_and_longer_behind_others() {
        let mut test = Test::new();
        let mut moment = 0;
        for expected in [1, 2, 4, 8, 10, 10] {
            test.at(moment).set("a");
            assert_eq!(test.take().as_deref(), Some("a"), "{expected}");
            test.refuse("a", event::NODE_ADD);
            test.wake(event::NODE_ADD);
            assert_eq!(test.due(), Some(moment + 1000 * expected));
            moment += 1000 * expected;
        }
        // It comes after whoever has not failed, and before nobody at all.
        test.at(moment);
        assert_eq!(test.take().as_deref(), Some("a"));
        test.refuse("a", event::NODE_ADD);
        test.wake(event::NODE_ADD);
        test.set("b");
        assert_eq!(test.take().as_deref(), Some("b"));
        assert_eq!(test.take().as_deref(), Some("a"));
    }

    #[test]
    fn what_failed_for_want_of_the_server_waits() {
        let mut test = Test::new();
        test.set("a");
        test.take();
        test.queue.failed("a-uid", test.now);
        assert_eq!(test.at(999).take(), None);
        assert_eq!(test.at(1000).take().as_deref(), Some("a"));
    }

    #[test]
    fn no_pod_is_forgotten() {
        let mut test = Test::new();
        test.set("a");
        test.take();
        test.refuse("a", 0);
        test.at(299_999).wake(event::ANYTHING);
        assert_eq!(test.take(), None);
        assert_eq!(test.due(), Some(300_000));
        assert_eq!(test.at(300_000).take().as_deref(), Some("a"));
    }

    #[test]
    fn a_gated_pod_is_not_tried() {
        let mut test = Test::new();
        test.set("a gated");
        assert_eq!((test.take(), test.queue.len()), (None, 1));
        test.set("a");
        assert_eq!(test.take().as_deref(), Some("a"));
    }

    #[test]
    fn a_changed_pod_is_tried_again_and_a_told_one_is_not() {
        let mut test = Test::new();
        test.set("a");
        test.take();
        test.refuse("a", event::NODE_ADD);
        test.at(5000).set("a told=Unschedulable");
        assert_eq!(test.take(), None);
        test.set("a labels.x=y");
        assert_eq!(test.take().as_deref(), Some("a"));
    }

    #[test]
    fn while_others_are_deleted_for_it_a_pod_does_not_try() {
        let mut test = Test::new();
        test.set("a");
        test.take();
        let by = Refused { wakes: event::POD_GONE, filters: 0 };
        test.queue.refused("a-uid", by, true, test.now);
        test.at(3000).wake(event::POD_GONE);
        assert_eq!(test.take(), None);
        test.queue.preempted("a-uid", true, test.now);
        assert_eq!(test.take().as_deref(), Some("a"));
    }

    #[test]
    fn what_is_removed_is_gone_from_everywhere() {
        let mut test = Test::new();
        for name in ["a", "b", "c"] {
            test.set(name);
        }
        test.take();
        test.refuse("a", event::NODE_ADD);
        test.take();
        test.queue.failed("b-uid", test.now);
        for name in ["a", "b", "c"] {
            test.queue.remove(&format!("{name}-uid"));
        }
        assert_eq!((test.take(), test.due(), test.queue.len()), (None, None, 0));
    }
}
