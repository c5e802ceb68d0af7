//! The decision: thresholds, what is seen of the signals, and the time → under what pressure the
//! node is, and which threshold something has to be done about. What is remembered between two
//! looks is in [`Course`].
use super::thresholds::{Signal, Threshold};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// What there is of something, and how much of it is left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    pub available: i64,
    pub capacity: i64,
}

pub type Observations = BTreeMap<Signal, Seen>;

#[derive(Debug, Default)]
pub struct Course {
    /// Since when thresholds have been met, by their places in the list.
    since: BTreeMap<usize, Timestamp>,
    /// Those that something was done about: they are over when enough was won back.
    pending: Vec<usize>,
    /// When the node was last seen under a pressure.
    pressed: BTreeMap<&'static str, Timestamp>,
}

#[derive(Debug, PartialEq)]
pub struct Decision {
    /// The conditions of the node that are true.
    pub pressures: Vec<&'static str>,
    /// What is to be reclaimed, the most urgent first: places in the list of thresholds.
    pub reclaim: Vec<usize>,
}

impl Course {
    pub fn decide(
        &mut self,
        thresholds: &[Threshold],
        seen: &Observations,
        transition: Duration,
        now: Timestamp,
    ) -> Decision {
        let is_met = |at: &usize| {
            let with_reclaim = self.pending.contains(at);
            met(&thresholds[*at], seen, with_reclaim)
        };
        let met: Vec<usize> = (0..thresholds.len()).filter(is_met).collect();
        self.since.retain(|at, _| met.contains(at));
        for at in &met {
            self.since.entry(*at).or_insert(now);
            self.pressed.insert(thresholds[*at].signal.condition(), now);
        }
        // A node that was under pressure stays so for a while, lest it swings.
        let age = |at: &Timestamp| now.duration_since(*at).unsigned_abs();
        self.pressed.retain(|_, at| *at == now || age(at) < transition);
        let due = |at: &usize| age(&self.since[at]) >= thresholds[*at].grace;
        let mut reclaim: Vec<usize> = met.into_iter().filter(due).collect();
        self.pending.clone_from(&reclaim);
        reclaim.sort_by_key(|at| !thresholds[*at].signal.is_memory());
        Decision { pressures: self.pressed.keys().copied().collect(), reclaim }
    }
}

/// Whether too little is left; `with_reclaim`: or not yet enough more than that.
pub fn met(threshold: &Threshold, seen: &Observations, with_reclaim: bool) -> bool {
    let Some(seen) = seen.get(&threshold.signal) else { return false };
    let more = threshold.reclaim.as_ref().filter(|_| with_reclaim);
    let wanted = threshold.level.of(seen.capacity) + more.map_or(0, |more| more.of(seen.capacity));
    wanted > seen.available
}

#[cfg(test)]
mod tests {
    use super::super::thresholds::{Wishes, parse};
    use super::*;

    /// Lines of `SECOND memory [nodefs]` → what is decided at each.
    fn check(wishes: &Wishes, lines: &[(i64, i64, i64)], expected: &[&str]) {
        let thresholds = parse(wishes).unwrap();
        let mut course = Course::default();
        let said: Vec<String> = lines
            .iter()
            .map(|(second, memory, disk)| {
                let one = |available| Seen { available, capacity: 1000 };
                let seen = Observations::from([
                    (Signal::Memory, one(*memory)),
                    (Signal::NodeFs, one(*disk)),
                ]);
                let now = Timestamp::from_second(*second).unwrap();
                let decision = course.decide(&thresholds, &seen, Duration::from_secs(300), now);
                let reclaim = decision.reclaim.iter().map(|at| thresholds[*at].signal.name());
                format!(
                    "{} reclaim [{}]",
                    decision.pressures.join(" "),
                    reclaim.collect::<Vec<_>>().join(" ")
                )
            })
            .collect();
        assert_eq!(said, expected);
    }

    fn said(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
        rows.iter().map(|(name, text)| (String::from(*name), String::from(*text))).collect()
    }

    #[test]
    fn pressure_outlives_its_cause_by_the_transition_period() {
        let wishes = Wishes { hard: said(&[("memory.available", "100")]), ..Wishes::default() };
        check(
            &wishes,
            &[(0, 500, 500), (10, 99, 500), (20, 100, 500), (309, 500, 500), (310, 500, 500)],
            &[
                " reclaim []",
                "MemoryPressure reclaim [memory.available]",
                "MemoryPressure reclaim []",
                "MemoryPressure reclaim []",
                " reclaim []",
            ],
        );
    }

    #[test]
    fn a_soft_threshold_waits_for_its_grace_period() {
        let wishes = Wishes {
            soft: said(&[("nodefs.available", "10%")]),
            soft_grace: said(&[("nodefs.available", "60s")]),
            ..Wishes::default()
        };
        check(
            &wishes,
            &[(0, 500, 99), (59, 500, 99), (60, 500, 99), (61, 500, 101), (62, 500, 99)],
            &[
                "DiskPressure reclaim []",
                "DiskPressure reclaim []",
                "DiskPressure reclaim [nodefs.available]",
                "DiskPressure reclaim []",
                "DiskPressure reclaim []",
            ],
        );
    }

    #[test]
    fn enough_has_to_be_won_back_and_memory_comes_first() {
        let wishes = Wishes {
            hard: said(&[("memory.available", "100"), ("nodefs.available", "100")]),
            reclaim: said(&[("nodefs.available", "5%")]),
            ..Wishes::default()
        };
        check(
            &wishes,
            &[(0, 500, 120), (10, 99, 99), (20, 500, 149), (30, 500, 150), (40, 500, 149)],
            &[
                " reclaim []",
                "DiskPressure MemoryPressure reclaim [memory.available nodefs.available]",
                "DiskPressure MemoryPressure reclaim [nodefs.available]",
                "DiskPressure MemoryPressure reclaim []",
                "DiskPressure MemoryPressure reclaim []",
            ],
        );
    }
}
