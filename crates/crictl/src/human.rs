//! Spans and sizes as `docker/go-units` shows them.
use std::time::Duration;

/// `5 minutes`, without saying before or after what.
pub fn duration(span: Duration) -> String {
    let seconds = span.as_secs();
    let minutes = seconds / 60;
    // Rounded, unlike everything else.
    let hours = (span.as_secs_f64() / 3600.0 + 0.5) as u64;
    match (seconds, minutes, hours) {
        (0, ..) => "Less than a second".to_owned(),
        (1, ..) => "1 second".to_owned(),
        (..60, ..) => format!("{seconds} seconds"),
        (_, 1, _) => "About a minute".to_owned(),
        (_, ..60, _) => format!("{minutes} minutes"),
        (.., 1) => "About an hour".to_owned(),
        (.., ..48) => format!("{hours} hours"),
        (.., ..336) => format!("{} days", hours / 24),
        (.., ..1440) => format!("{} weeks", hours / 24 / 7),
        (.., ..17520) => format!("{} months", hours / 24 / 30),
        _ => format!("{} years", seconds / 3600 / 24 / 365),
    }
}

/// How long ago a moment was, in nanoseconds since 1970.
pub fn ago(nanos: i64, now: jiff::Timestamp) -> String {
    let span = now.as_nanosecond() - i128::from(nanos);
    let span = u64::try_from(span.max(0)).unwrap_or(u64::MAX);
    format!("{} ago", duration(Duration::from_nanos(span)))
}

/// `4.456kB`: powers of a thousand, with so many digits that count.
pub fn size(bytes: u64, digits: usize) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{}{}", general(value, digits), UNITS[unit])
}

/// C's and Go's `%.{digits}g` of a number that is not negative.
fn general(value: f64, digits: usize) -> String {
    let scientific = format!("{value:.*e}", digits.saturating_sub(1));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent >= digits as i32 || exponent < -4 {
        return format!("{}e{exponent:+03}", trimmed(mantissa));
    }
    let after = usize::try_from(digits as i32 - 1 - exponent).unwrap_or_default();
    trimmed(&format!("{value:.after$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_rounded_as_people_say_them() {
        for (seconds, shown) in [
            (0, "Less than a second"),
            (1, "1 second"),
            (59, "59 seconds"),
            (60, "About a minute"),
            (179, "2 minutes"),
            (3599, "59 minutes"),
            (3600, "About an hour"),
            (5400, "2 hours"),
            (47 * 3600, "47 hours"),
            (48 * 3600, "2 days"),
            (15 * 86400, "2 weeks"),
            (61 * 86400, "2 months"),
            (800 * 86400, "2 years"),
        ] {
            assert_eq!(duration(Duration::from_secs(seconds)), shown, "{seconds}");
        }
    }

    #[test]
    fn sizes_have_a_few_digits() {
        for (bytes, digits, shown) in [
            (0, 4, "0B"),
            (999, 3, "999B"),
            (4456, 4, "4.456kB"),
            (1_234_567, 3, "1.23MB"),
            (740_000, 3, "740kB"),
            (999_950, 3, "1e+03kB"),
            (12_345_678_901, 4, "12.35GB"),
            (u64::MAX, 4, "18.45EB"),
        ] {
            assert_eq!(size(bytes, digits), shown, "{bytes}");
        }
    }
}
