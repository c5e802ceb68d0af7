//! Spans of time: as Go writes them (`1h2m3.5s`), which is the form of `metav1.Duration`, and as
//! people read them in a table's AGE column (`2d3h`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::quote::TimeQuoted;

/// A span in nanoseconds, at most some 292 years either way: Go's `time.Duration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    pub nanos: i64,
}

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Why a text is no duration; the words are Go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("time: invalid duration {}", TimeQuoted(.0.as_bytes()))]
    Invalid(String),
    #[error("time: missing unit in duration {}", TimeQuoted(.0.as_bytes()))]
    MissingUnit(String),
    #[error("time: unknown unit {} in duration {}", TimeQuoted(.1.as_bytes()), TimeQuoted(.0.as_bytes()))]
    UnknownUnit(String, String),
}

impl Duration {
    pub const fn from_secs(seconds: i64) -> Self {
        Duration { nanos: seconds.saturating_mul(SECOND as i64) }
    }

    /// Whole seconds, rounded towards zero.
    pub const fn as_secs(self) -> i64 {
        self.nanos / SECOND as i64
    }

    /// Reads a signed sequence of numbers with units, such as `300ms`, `-1.5h` or `2h45m`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let invalid = || ParseError::Invalid(text.to_owned());
        let negative = text.starts_with('-');
        let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
        if rest == "0" {
            return Ok(Duration::default());
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total = 0u64;
        while !rest.is_empty() {
            let (number, after) = Number::split(rest).ok_or_else(invalid)?;
            let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            rest = after;
            let unit = match name {
                "" => return Err(ParseError::MissingUnit(text.to_owned())),
                "ns" => 1,
                // The micro sign and the Greek letter look the same.
                "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
                "ms" => MILLISECOND,
                "s" => SECOND,
                "m" => MINUTE,
                "h" => HOUR,
                _ => return Err(ParseError::UnknownUnit(text.to_owned(), name.to_owned())),
            };
            let nanos = number.times(unit).ok_or_else(invalid)?;
            total = total.checked_add(nanos).filter(|t| *t <= LIMIT).ok_or_else(invalid)?;
        }
        if negative {
            return Ok(Duration { nanos: (total as i64).wrapping_neg() });
        }
        Ok(Duration { nanos: i64::try_from(total).map_err(|_| invalid())? })
    }

    /// An age as `kubectl get` shows it: two or three significant figures, `<invalid>` for what
    /// lies more than a second in the future.
    pub fn human(self) -> String {
        let seconds = self.as_secs();
        let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
        match seconds {
            ..-1 => "<invalid>".to_owned(),
            -1 => "0s".to_owned(),
            _ if seconds < 120 => format!("{seconds}s"),
            _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
            _ if minutes < 180 => format!("{minutes}m"),
            _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
            _ if hours < 48 => format!("{hours}h"),
            _ if hours < 192 => two(days, "d", hours % 24, "h"),
            _ if hours < 24 * 365 * 2 => format!("{days}d"),
            _ if hours < 24 * 365 * 8 => two(days / 365, "y", days % 365, "d"),
            _ => format!("{}y", days / 365),
        }
    }

    /// An age in one unit.
    pub fn short_human(self) -> String {
        let seconds = self.as_secs();
        match seconds {
            ..-1 => "<invalid>".to_owned(),
            -1 => "0s".to_owned(),
            0..60 => format!("{seconds}s"),
            60..3600 => format!("{}m", seconds / 60),
            3600..86400 => format!("{}h", seconds / 3600),
            _ if seconds / 86400 < 365 => format!("{}d", seconds / 86400),
            _ => format!("{}y", seconds / 86400 / 365),
        }
    }
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    }
}

/// The largest magnitude: that of the most negative duration.
const LIMIT: u64 = 1 << 63;

/// A decimal number as Go reads it: too many digits before the point are an error, after it they
/// are ignored.
struct Number {
    whole: u64,
    fraction: u64,
    scale: f64,
}

impl Number {
    fn split(text: &str) -> Option<(Number, &str)> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (before, mut rest) = text.split_at(digits(text));
        let mut after = "";
        if let Some(tail) = rest.strip_prefix('.') {
            (after, rest) = tail.split_at(digits(tail));
        }
        if before.is_empty() && after.is_empty() {
            return None;
        }
        let add = |sum: u64, digit: u8| {
            let sum = sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            (sum <= LIMIT).then_some(sum)
        };
        let whole = before.bytes().try_fold(0, add)?;
        let (mut fraction, mut scale) = (0, 1.0);
        for digit in after.bytes() {
            match add(fraction, digit) {
                Some(sum) => (fraction, scale) = (sum, scale * 10.0),
                None => break,
            }
        }
        Some((Number { whole, fraction, scale }, rest))
    }

    fn times(self, unit: u64) -> Option<u64> {
        let whole = self.whole.checked_mul(unit).filter(|nanos| *nanos <= LIMIT)?;
        let part = (self.fraction as f64 * (unit as f64 / self.scale)) as u64;
        whole.checked_add(part).filter(|nanos| *nanos <= LIMIT)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        let nanos = self.nanos.unsigned_abs();
        match nanos {
            0 => f.write_str("0s"),
            1..MICROSECOND => write!(f, "{nanos}ns"),
            MICROSECOND..MILLISECOND => fraction(f, nanos, MICROSECOND, "µs"),
            MILLISECOND..SECOND => fraction(f, nanos, MILLISECOND, "ms"),
            _ => {
                if nanos >= HOUR {
                    write!(f, "{}h", nanos / HOUR)?;
                }
                if nanos >= MINUTE {
                    write!(f, "{}m", nanos % HOUR / MINUTE)?;
                }
                fraction(f, nanos % MINUTE, SECOND, "s")
            }
        }
    }
}

/// `value / unit` without trailing zeros.
fn fraction(f: &mut fmt::Formatter<'_>, value: u64, unit: u64, name: &str) -> fmt::Result {
    write!(f, "{}", value / unit)?;
    let (mut rest, mut width) = (value % unit, unit.ilog10() as usize);
    if rest > 0 {
        while rest.is_multiple_of(10) {
            rest /= 10;
            width -= 1;
        }
        write!(f, ".{rest:0width$}")?;
    }
    f.write_str(name)
}

impl FromStr for Duration {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Duration::parse(text)
    }
}

/// As many nanoseconds as fit.
impl From<std::time::Duration> for Duration {
    fn from(duration: std::time::Duration) -> Self {
        Duration { nanos: i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX) }
    }
}

/// A negative duration is no time at all.
impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> Self {
        std::time::Duration::from_nanos(u64::try_from(duration.nanos).unwrap_or(0))
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Duration::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, want: Expect) {
        want.assert_eq(&match Duration::parse(text) {
            Ok(duration) => format!("{} = {duration}", duration.nanos),
            Err(error) => error.to_string(),
        });
    }

    #[test]
    fn durations_read_and_print_as_in_go() {
        check("0", expect!["0 = 0s"]);
        check("5s", expect!["5000000000 = 5s"]);
        check("-5.6s", expect!["-5600000000 = -5.6s"]);
        check("1.e0s", expect![[r#"time: unknown unit "e" in duration "1.e0s""#]]);
        check(".5s", expect!["500000000 = 500ms"]);
        check("1µs", expect!["1000 = 1µs"]);
        check("10.5μs", expect!["10500 = 10.5µs"]);
        check("3h30m", expect!["12600000000000 = 3h30m0s"]);
        check("10.5s4m", expect!["250500000000 = 4m10.5s"]);
        check("1h15m30.918273645s", expect!["4530918273645 = 1h15m30.918273645s"]);
        check("0.3333333333333333333h", expect!["1200000000000 = 20m0s"]);
        check("9223372036854775807ns", expect!["9223372036854775807 = 2562047h47m16.854775807s"]);
        check(
            "-9223372036854775808ns",
            expect!["-9223372036854775808 = -2562047h47m16.854775808s"],
        );
    }

    #[test]
    fn what_is_no_duration_is_refused_in_gos_words() {
        check("", expect![[r#"time: invalid duration """#]]);
        check("3", expect![[r#"time: missing unit in duration "3""#]]);
        check("-", expect![[r#"time: invalid duration "-""#]]);
        check(".s", expect![[r#"time: invalid duration ".s""#]]);
        check("1d", expect![[r#"time: unknown unit "d" in duration "1d""#]]);
        check("1é\"", expect![[r#"time: unknown unit "\xc3\xa9\"" in duration "1\xc3\xa9\"""#]]);
        check(
            "9223372036854775808ns",
            expect![[r#"time: invalid duration "9223372036854775808ns""#]],
        );
        check("3000000h", expect![[r#"time: invalid duration "3000000h""#]]);
    }

    #[test]
    fn ages_are_short() {
        const DAY: i64 = 86400;
        for (seconds, long, short) in [
            (-2, "<invalid>", "<invalid>"),
            (-1, "0s", "0s"),
            (0, "0s", "0s"),
            (119, "119s", "1m"),
            (120, "2m", "2m"),
            (125, "2m5s", "2m"),
            (10 * 60, "10m", "10m"),
            (3 * 3600 - 1, "179m", "2h"),
            (3 * 3600 + 60, "3h1m", "3h"),
            (47 * 3600, "47h", "1d"),
            (2 * DAY + 3600, "2d1h", "2d"),
            (8 * DAY, "8d", "8d"),
            (729 * DAY, "729d", "1y"),
            (800 * DAY, "2y70d", "2y"),
            (9 * 365 * DAY, "9y", "9y"),
        ] {
            let age = Duration::from_secs(seconds);
            assert_eq!((age.human().as_str(), age.short_human().as_str()), (long, short));
        }
    }

    proptest! {
        #[test]
        fn printing_loses_nothing(nanos: i64) {
            let duration = Duration { nanos };
            prop_assert_eq!(Duration::parse(&duration.to_string()), Ok(duration));
            let _ = (duration.human(), duration.short_human());
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC*|[-+]?([0-9.]{0,25}[nuµmsh]{1,2}){0,3}") {
            let _ = Duration::parse(&text);
        }
    }
}
