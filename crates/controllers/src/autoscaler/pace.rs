//! How fast the number of pods may change: what was recommended and done lately, policies, limits.
use super::review::Review;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules};

/// What was recommended, before any limit, and what was done, in the last hour: no window is longer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    recommended: Vec<(i32, Timestamp)>,
    added: Vec<(i32, Timestamp)>,
    removed: Vec<(i32, Timestamp)>,
}

const LONGEST: SignedDuration = SignedDuration::from_hours(1);

impl History {
    /// The first look counts as a recommendation of what is there, so that a control plane that
    /// was away does not scale down at once.
    pub fn begin(&mut self, current: i32, now: Timestamp) {
        if self.recommended.is_empty() {
            self.recommended.push((current, now));
        }
    }

    pub fn recommend(&mut self, replicas: i32, now: Timestamp) {
        add(&mut self.recommended, replicas, now);
    }

    pub fn changed(&mut self, before: i32, after: i32, now: Timestamp) {
        let list = if after > before { &mut self.added } else { &mut self.removed };
        add(list, (after - before).abs(), now);
    }
}

fn add(list: &mut Vec<(i32, Timestamp)>, value: i32, now: Timestamp) {
    list.retain(|(_, at)| now.duration_since(*at) <= LONGEST);
    list.push((value, now));
}

/// How many there may be, and what the conditions say of that.
pub fn limit(review: &mut Review, current: i32, proposed: i32, min: i32) -> i32 {
    let now = review.now;
    let window = review.world.settings.autoscaler.downscale_stabilization;
    let behavior = review.hpa.spec.behavior.clone();
    let max = review.hpa.spec.max_replicas;
    let (stable, why) = match &behavior {
        None => calm(&review.history, proposed, window, now),
        Some(behavior) => {
            let up = seconds(behavior.scale_up.as_ref()).unwrap_or(SignedDuration::ZERO);
            let down = seconds(behavior.scale_down.as_ref()).unwrap_or(window);
            calm_both(&review.history, current, proposed, (up, down), now)
        }
    };
    review.history.recommend(proposed, now);
    match why {
        Some((reason, message)) => review.set("AbleToScale", "True", reason, message),
        None => {
            let message = "recommended size matches current size";
            review.set("AbleToScale", "True", "ReadyForNewScale", message);
        }
    }
    let bounds = Bounds { current, min, max };
    let limited = match &behavior {
        None => bounds.simple(stable),
        Some(behavior) => bounds.paced(
            stable,
            &review.history,
            behavior.scale_up.as_ref().unwrap_or(&HPAScalingRules::default()),
            behavior.scale_down.as_ref().unwrap_or(&HPAScalingRules::default()),
            now,
        ),
    };
    let (desired, reason, message) = limited;
    let is_limited = if desired == stable { "False" } else { "True" };
    review.set("ScalingLimited", is_limited, reason, message);
    desired
}

fn seconds(rules: Option<&HPAScalingRules>) -> Option<SignedDuration> {
    let seconds = rules?.stabilization_window_seconds?;
    Some(SignedDuration::from_secs(seconds.into()))
}

type Why = Option<(&'static str, &'static str)>;

const STABLE_UP: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const STABLE_DOWN: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent \
     recommendation",
);

/// The highest of what was recommended lately.
fn calm(history: &History, proposed: i32, window: SignedDuration, now: Timestamp) -> (i32, Why) {
    let recent = history.recommended.iter().filter(|(_, at)| now.duration_since(*at) <= window);
    let highest = recent.map(|(count, _)| *count).fold(proposed, i32::max);
    (highest, (highest != proposed).then_some(STABLE_DOWN))
}

/// Up to the lowest, down to the highest of what was recommended lately, each in its own window.
fn calm_both(
    history: &History,
    current: i32,
    proposed: i32,
    (up, down): (SignedDuration, SignedDuration),
    now: Timestamp,
) -> (i32, Why) {
    let recent = |window: SignedDuration| {
        let of = history.recommended.iter();
        of.filter(move |(_, at)| now.duration_since(*at) < window).map(|(count, _)| *count)
    };
    let lowest = recent(up).fold(proposed, i32::min);
    let highest = recent(down).fold(proposed, i32::max);
    let stable = current.max(lowest).min(highest);
    let why = if proposed >= current { STABLE_UP } else { STABLE_DOWN };
    (stable, (stable != proposed).then_some(why))
}

struct Bounds {
    current: i32,
    min: i32,
    max: i32,
}

type Limited = (i32, &'static str, &'static str);

const WITHIN: (&str, &str) =
    ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_FAST: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_FAST_DOWN: (&str, &str) = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);

fn limited(count: i32, (reason, message): (&'static str, &'static str)) -> Limited {
    (count, reason, message)
}

impl Bounds {
    /// Without a behaviour: twice as many at once, or four.
    fn simple(&self, desired: i32) -> Limited {
        let fastest = self.current.saturating_mul(2).max(4);
        let (most, why) =
            if self.max > fastest { (fastest, TOO_FAST) } else { (self.max, TOO_MANY) };
        match desired {
            _ if desired < self.min => limited(self.min, TOO_FEW),
            _ if desired > most => limited(most, why),
            _ => limited(desired, WITHIN),
        }
    }

    fn paced(
        &self,
        desired: i32,
        history: &History,
        up: &HPAScalingRules,
        down: &HPAScalingRules,
        now: Timestamp,
    ) -> Limited {
        if desired > self.current {
            let fastest = most(self.current, history, up, now).max(self.current);
            let (most, why) =
                if self.max > fastest { (fastest, TOO_FAST) } else { (self.max, TOO_MANY) };
            if desired > most {
                return limited(most, why);
            }
        } else if desired < self.current {
            let fastest = least(self.current, history, down, now).min(self.current);
            let (least, why) =
                if self.min < fastest { (fastest, TOO_FAST_DOWN) } else { (self.min, TOO_FEW) };
            if desired < least {
                return limited(least, why);
            }
        }
        limited(desired, WITHIN)
    }
}

fn policy(type_: &str, value: i32) -> HPAScalingPolicy {
    HPAScalingPolicy { type_: type_.to_owned(), value, period_seconds: 15 }
}

/// How many there were when a policy's period began.
fn at_start(current: i32, history: &History, policy: &HPAScalingPolicy, now: Timestamp) -> i32 {
    let period = SignedDuration::from_secs(policy.period_seconds.into());
    let sum = |list: &[(i32, Timestamp)]| {
        let recent = list.iter().filter(|(_, at)| now.duration_since(*at) < period);
        recent.map(|(count, _)| *count).sum::<i32>()
    };
    current - sum(&history.added) + sum(&history.removed)
}

/// How many there may be at most by the policies: the largest of them, or the smallest.
fn most(current: i32, history: &History, rules: &HPAScalingRules, now: Timestamp) -> i32 {
    let each = |policy: &HPAScalingPolicy| {
        let start = at_start(current, history, policy, now);
        match policy.type_.as_str() {
            "Pods" => start.saturating_add(policy.value),
            // Rounded up, or a few pods would never become more.
            _ => (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
        }
    };
    let fallback = [policy("Pods", 4), policy("Percent", 100)];
    let policies = rules.policies.as_deref().filter(|all| !all.is_empty()).unwrap_or(&fallback);
    let limits = policies.iter().map(each);
    let limit = match rules.select_policy.as_deref() {
        Some("Disabled") => Some(current),
        Some("Min") => limits.min(),
        _ => limits.max(),
    };
    limit.unwrap_or(current)
}

/// How few there may be at least.
fn least(current: i32, history: &History, rules: &HPAScalingRules, now: Timestamp) -> i32 {
    let each = |policy: &HPAScalingPolicy| {
        let start = at_start(current, history, policy, now);
        match policy.type_.as_str() {
            "Pods" => start.saturating_sub(policy.value),
            _ => (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
        }
    };
    let fallback = [policy("Percent", 100)];
    let policies = rules.policies.as_deref().filter(|all| !all.is_empty()).unwrap_or(&fallback);
    let limits = policies.iter().map(each);
    let limit = match rules.select_policy.as_deref() {
        Some("Disabled") => Some(current),
        Some("Min") => limits.max(),
        _ => limits.min(),
    };
    limit.unwrap_or(current)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::now;

    fn rules(text: &str, select: &str) -> HPAScalingRules {
        let policy = |word: &str| {
            let mut parts = word.split('/');
            let mut next = || parts.next().unwrap_or_default().to_owned();
            let (type_, value, period) = (next(), next(), next());
            HPAScalingPolicy {
                type_,
                value: value.parse().expect("a number"),
                period_seconds: period.parse().expect("seconds"),
            }
        };
        HPAScalingRules {
            policies: Some(text.split_whitespace().map(policy).collect()),
            select_policy: Some(select.to_owned()),
            ..HPAScalingRules::default()
        }
    }

    fn ago(list: &[(i32, i64)]) -> Vec<(i32, Timestamp)> {
        list.iter().map(|(n, s)| (*n, now() - SignedDuration::from_secs(*s))).collect()
    }

    /// As upstream's `TestCalculateScaleUpLimitWithScalingRules` and its kin have it.
    #[test]
    fn policies_limit_from_where_their_period_began() {
        let history = History { added: ago(&[(4, 20), (5, 50)]), ..History::default() };
        let up = |current, text, select| most(current, &history, &rules(text, select), now());
        // In the last thirty seconds four of the ten came: six, and three more.
        assert_eq!(up(10, "Pods/3/30", "Max"), 9);
        assert_eq!(up(10, "Percent/100/30", "Max"), 12);
        assert_eq!(up(10, "Percent/100/30 Pods/3/30", "Min"), 9);
        assert_eq!(up(10, "Pods/3/60", "Max"), 4);
        assert_eq!(up(10, "Pods/3/10", "Disabled"), 10);
        assert_eq!(up(1, "Percent/10/10", "Max"), 2);
        let history = History { removed: ago(&[(4, 20), (5, 50)]), ..History::default() };
        let down = |current, text, select| least(current, &history, &rules(text, select), now());
        assert_eq!(down(10, "Pods/3/30", "Max"), 11);
        assert_eq!(down(10, "Percent/50/30", "Max"), 7);
        assert_eq!(down(10, "Percent/50/10 Pods/1/10", "Min"), 9);
        assert_eq!(down(10, "Percent/50/10 Pods/1/10", "Max"), 5);
    }

    #[test]
    fn without_a_behaviour_it_doubles_at_most() {
        let simple = |current, desired, min, max| {
            let (count, reason, _) = Bounds { current, min, max }.simple(desired);
            format!("{count} {reason}")
        };
        assert_eq!(simple(1, 20, 1, 100), "4 ScaleUpLimit");
        assert_eq!(simple(10, 50, 1, 100), "20 ScaleUpLimit");
        assert_eq!(simple(10, 50, 1, 15), "15 TooManyReplicas");
        assert_eq!(simple(10, 1, 3, 15), "3 TooFewReplicas");
        assert_eq!(simple(10, 12, 3, 15), "12 DesiredWithinRange");
    }

    #[test]
    fn recent_recommendations_hold_it_back() {
        let secs = SignedDuration::from_secs;
        let past = |list: &[(i32, i64)]| History { recommended: ago(list), ..History::default() };
        let five = SignedDuration::from_mins(5);
        assert_eq!(calm(&past(&[(10, 299), (3, 10)]), 2, five, now()), (10, Some(STABLE_DOWN)));
        assert_eq!(calm(&past(&[(10, 301)]), 2, five, now()), (2, None));
        let both = |list: &[(i32, i64)], current, proposed, up, down| {
            let (count, why) =
                calm_both(&past(list), current, proposed, (secs(up), secs(down)), now());
            (count, why.map(|(reason, _)| reason))
        };
        // The table of upstream's TestScaleUpStabilized... in short: lowest up, highest down.
        assert_eq!(both(&[(3, 10), (20, 40)], 2, 10, 30, 300), (3, Some("ScaleUpStabilized")));
        assert_eq!(both(&[(8, 100)], 10, 2, 0, 300), (8, Some("ScaleDownStabilized")));
        assert_eq!(both(&[(8, 300)], 10, 2, 0, 300), (2, None));
        assert_eq!(both(&[], 2, 10, 0, 300), (10, None));
    }
}
