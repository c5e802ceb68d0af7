//! Points in time as the API writes them: `metav1.Time` in whole seconds, `MicroTime` with six
//! digits, both in UTC.
//!
//! The functions work on seconds since 1970 and nanoseconds, which is what the protobuf encoding
//! holds. Reading accepts what Go's `time.Parse` accepts for RFC 3339, which is a little more
//! than the standard, and refuses the rest in its words, as clients see them.

mod calendar;
mod read;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use jiff::Timestamp;

use calendar::civil_from_days;
pub use read::ParseError;
use read::Reader;

/// Reads a `metav1.Time`: seconds since 1970, and nanoseconds.
pub fn parse(text: &str) -> Result<(i64, i32), ParseError> {
    Reader::new(text, false).read()
}

/// Reads a `MicroTime`, whose six digits of fraction are required.
pub fn parse_micro(text: &str) -> Result<(i64, i32), ParseError> {
    Reader::new(text, true).read()
}

/// Writes a `metav1.Time`, which has no fraction: `2006-01-02T15:04:05Z`.
pub fn format(secs: i64) -> String {
    let mut out = date_and_time(secs);
    out.push('Z');
    out
}

/// Writes a `MicroTime`: `2006-01-02T15:04:05.000000Z`. Nanoseconds are cut off, not rounded.
pub fn format_micro(secs: i64, nanos: i32) -> String {
    // Any number of nanoseconds may come out of protobuf; Go carries them over.
    let secs = secs.saturating_add(i64::from(nanos.div_euclid(1_000_000_000)));
    let micros = nanos.rem_euclid(1_000_000_000) / 1000;
    let mut out = date_and_time(secs);
    out.push('.');
    for part in [micros / 10_000, micros / 100 % 100, micros % 100] {
        push_two(&mut out, part.into());
    }
    out.push('Z');
    out
}

/// The same instant as the type that typed objects use; `None` beyond the year 9999.
pub fn timestamp(secs: i64, nanos: i32) -> Option<Timestamp> {
    Timestamp::new(secs, nanos).ok()
}

/// Writes a [`Timestamp`] as a `metav1.Time`.
pub fn format_timestamp(time: Timestamp) -> String {
    format(parts(time).0)
}

/// Seconds since 1970, rounded down, and the nanoseconds that follow.
pub fn parts(time: Timestamp) -> (i64, i32) {
    let (secs, nanos) = (time.as_second(), time.subsec_nanosecond());
    if nanos < 0 { (secs - 1, nanos + 1_000_000_000) } else { (secs, nanos) }
}

/// Go's zero time, the first second of the year 1: an unset `Time` when not a pointer. It is
/// written as null.
pub const ZERO_SECS: i64 = -62_135_596_800;

/// Digit by digit: the codecs write times for every object, and `write!` takes more than twice as
/// long.
fn date_and_time(secs: i64) -> String {
    let (year, month, day) = civil_from_days(secs.div_euclid(86400));
    let second = secs.rem_euclid(86400);
    let mut out = String::with_capacity(27);
    if (0..10_000).contains(&year) {
        push_two(&mut out, year / 100);
        push_two(&mut out, year % 100);
    } else {
        let sign = if year < 0 { "-" } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(out, "{sign}{:04}", year.unsigned_abs());
    }
    let fields = [month, day, second / 3600, second / 60 % 60, second % 60];
    for (separator, value) in ['-', '-', 'T', ':', ':'].into_iter().zip(fields) {
        out.push(separator);
        push_two(&mut out, value);
    }
    out
}

/// A number below 100 with two digits.
fn push_two(out: &mut String, value: i64) {
    out.push(char::from(b'0' + (value / 10) as u8));
    out.push(char::from(b'0' + (value % 10) as u8));
}
