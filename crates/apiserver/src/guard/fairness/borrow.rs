//! How many seats each level has for the next while: levels lend what they do not need.
//!
//! Seats are shared in proportion to what was asked for lately, but no level gets less than what it
//! keeps for itself or needs of its own, nor more than it may borrow.
use super::Fairness;
use super::level::{Bounds, Kind, Level};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How often seats are lent anew, while somebody has to wait: upstream's period.
const LEND_EVERY: Duration = Duration::from_secs(10);
/// How much of an older demand is left after that.
const FADING: f64 = 0.977;

impl Fairness {
    /// Lends seats anew when somebody has to wait, and from time to time while that lasts.
    pub(super) async fn lend_while_pressed(&self) {
        loop {
            self.press.notified().await;
            while self.pressed.swap(false, Relaxed) {
                self.lend();
                tokio::time::sleep(LEND_EVERY).await;
            }
            self.lend();
        }
    }

    /// Shares the seats among the levels by what they asked for.
    pub(super) fn lend(&self) {
        let current = self.current();
        let levels: Vec<&Arc<Level>> =
            current.levels.values().filter(|level| level.kind != Kind::Exempt).collect();
        let kept: u32 = current
            .levels
            .values()
            .filter(|level| level.kind == Kind::Exempt)
            .map(|level| level.bounds.least)
            .sum();
        let total: u32 = current.levels.values().map(|level| level.bounds.nominal).sum();
        let wish = |level: &&Arc<Level>| {
            let peak = f64::from(level.room.take_peak());
            let old = f64::from_bits(level.room.smoothed.load(Relaxed));
            let smoothed = peak.max(FADING * old + (1.0 - FADING) * peak);
            level.room.smoothed.store(smoothed.to_bits(), Relaxed);
            let Bounds { nominal, least, most } = level.bounds;
            let least = f64::from(least).max(f64::from(nominal).min(peak));
            Wish { least, most: f64::from(most), target: smoothed.max(least) }
        };
        let wishes: Vec<Wish> = levels.iter().map(wish).collect();
        let seats = share(f64::from(total.saturating_sub(kept)), &wishes);
        for (level, seats) in levels.iter().zip(seats) {
            level.room.resize((seats.round() as u32).max(1));
        }
    }
}

/// What a level may have, and wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wish {
    pub least: f64,
    pub most: f64,
    /// At least `least`.
    pub target: f64,
}

/// A wish that is nothing would get nothing of what nobody wants.
const LEAST_TARGET: f64 = 0.001;

/// Shares `total` seats: everybody gets `target` times one factor, within its bounds.
pub fn share(total: f64, wishes: &[Wish]) -> Vec<f64> {
    let with = |factor: f64| -> Vec<f64> {
        let one =
            |wish: &Wish| (wish.target.max(LEAST_TARGET) * factor).min(wish.most).max(wish.least);
        wishes.iter().map(one).collect()
    };
    // The sum grows with the factor, so the factor is found by halving.
    let (mut low, mut high) = (0.0, 1.0);
    while with(high).iter().sum::<f64>() < total && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if with(middle).iter().sum::<f64>() < total { low = middle } else { high = middle }
    }
    with(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `least-most:target` each.
    fn check(total: f64, wishes: &str, expected: &[i64]) {
        let number = |text: &str| text.parse::<f64>().expect("a number");
        let wishes: Vec<Wish> = wishes
            .split(' ')
            .map(|text| {
                let (bounds, target) = text.split_once(':').expect("a target");
                let (least, most) = bounds.split_once('-').expect("bounds");
                Wish { least: number(least), most: number(most), target: number(target) }
            })
            .collect();
        let shares: Vec<i64> =
            share(total, &wishes).iter().map(|share| share.round() as i64).collect();
        assert_eq!(shares, expected, "{wishes:?}");
    }

    #[test]
    fn seats_go_to_those_who_want_them_within_bounds() {
        check(100.0, "0-100:50 0-100:50", &[50, 50]);
        check(100.0, "0-100:30 0-100:10", &[75, 25]);
        check(100.0, "20-100:80 20-100:20", &[80, 20]);
        // Nobody gets less than his own.
        check(100.0, "40-100:40 0-100:1000", &[40, 60]);
        // Nobody borrows more than he may.
        check(100.0, "0-30:1000 10-100:10", &[30, 70]);
        // Where nobody wants anything, it is spread by what each keeps.
        check(60.0, "10-100:10 20-100:20", &[20, 40]);
    }
}
