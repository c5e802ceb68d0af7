//! When one who is refused should come back: later, the more are refused.
//!
//! Upstream's figures: the wait doubles while more than three a second are refused, and falls by a
//! second at a time when hardly any are.
//!
//! Nothing here knows the clock: the second is an argument.

const LONGEST: i64 = 8;
/// The seconds that a wait can look back on, and the one that it is.
const SECONDS: usize = LONGEST as usize + 1;

#[derive(Debug)]
pub struct Retry {
    /// Which second, and how many were refused in it.
    lately: [(i64, i64); SECONDS],
    after: i64,
    raised: i64,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { lately: [(0, 0); SECONDS], after: 1, raised: 0 }
    }
}

impl Retry {
    /// Somebody is refused in this second; after how many he may come back.
    pub fn refused(&mut self, now: i64) -> i32 {
        let place = &mut self.lately[now.rem_euclid(SECONDS as i64) as usize];
        if place.0 == now {
            place.1 += 1;
        } else {
            *place = (now, 1);
            self.adjust(now);
        }
        // Eight at most.
        self.after as i32
    }

    /// A new second: what the last ones say.
    fn adjust(&mut self, now: i64) {
        let counts =
            self.lately.iter().filter(|(second, _)| (1..=self.after).contains(&(now - second)));
        let refused: i64 = counts.map(|(_, count)| count).sum();
        if refused >= 3 * self.after && now - self.raised >= self.after {
            self.after = (2 * self.after).min(LONGEST);
            self.raised = now;
        } else if refused < self.after && self.after > 1 {
            self.after -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_with_a_flood_and_falls_after_it() {
        let mut retry = Retry::default();
        let mut second = |now: i64, refused: usize| {
            (0..refused).map(|_| retry.refused(now)).last().expect("somebody was refused")
        };
        let flood: Vec<i32> = (100..120).map(|now| second(now, 50)).collect();
        assert_eq!(flood, [1, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8]);
        // One now and then: the flood is forgotten a second at a time.
        let calm: Vec<i32> = (1..10).map(|step| second(120 + 10 * step, 1)).collect();
        assert_eq!(calm, [7, 6, 5, 4, 3, 2, 1, 1, 1]);
    }
}
