//! Points in time as the API writes them: `metav1.Time` in whole seconds, `MicroTime` with six
//! digits, both in UTC.
//!
//! The functions work on seconds since 1970 and nanoseconds, which is what the protobuf encoding
//! holds. Reading accepts what Go's `time.Parse` accepts for RFC 3339, which is a little more
//! than the standard, and refuses the rest in its words, as clients see them.

use std::fmt::{self, Write};

use jiff::Timestamp;

/// Reads a `metav1.Time`: seconds since 1970, and nanoseconds.
pub fn parse(text: &str) -> Result<(i64, i32), ParseError> {
    Reader::new(text, false).read()
}

/// Reads a `MicroTime`, whose six digits of fraction are required.
pub fn parse_micro(text: &str) -> Result<(i64, i32), ParseError> {
    Reader::new(text, true).read()
}

/// Writes a `metav1.Time`, which has no fraction: `2006-01-02T15:04:05Z`.
pub fn format(secs: i64, _nanos: i32) -> String {
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
    let (secs, nanos) = parts(time);
    format(secs, nanos)
}

/// Seconds since 1970, rounded down, and the nanoseconds that follow.
pub fn parts(time: Timestamp) -> (i64, i32) {
    let (secs, nanos) = (time.as_second(), time.subsec_nanosecond());
    if nanos < 0 { (secs - 1, nanos + 1_000_000_000) } else { (secs, nanos) }
}

/// Go's zero time, the first second of the year 1: an unset `Time` when not a pointer. It is
/// written as null.
pub const ZERO_SECS: i64 = -62_135_596_800;

/// Why a text is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("parsing time {} as \"{layout}\": cannot parse {} as \"{element}\"", GoQuoted(.value), Bytes(.rest))]
    Mismatch { value: String, layout: &'static str, rest: Vec<u8>, element: &'static str },
    #[error("parsing time {}: {field} out of range", GoQuoted(.value))]
    OutOfRange { value: String, field: &'static str },
    #[error("parsing time {}: extra text: {}", GoQuoted(.value), Bytes(.rest))]
    ExtraText { value: String, rest: Vec<u8> },
}

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const LAYOUT_MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Follows the layout through the text; every step takes off what it reads.
struct Reader<'a> {
    value: &'a str,
    rest: &'a [u8],
    micro: bool,
}

impl<'a> Reader<'a> {
    fn new(value: &'a str, micro: bool) -> Self {
        Reader { value, rest: value.as_bytes(), micro }
    }

    fn read(mut self) -> Result<(i64, i32), ParseError> {
        let year = self.year()?;
        self.literal("-")?;
        let month = self.number("01", true)?;
        self.check("month", (1..=12).contains(&month))?;
        self.literal("-")?;
        let day = self.number("02", true)?;
        self.literal("T")?;
        let hour = self.number("15", false)?;
        self.check("hour", hour < 24)?;
        self.literal(":")?;
        let minute = self.number("04", true)?;
        self.check("minute", minute < 60)?;
        self.literal(":")?;
        let second = self.number("05", true)?;
        self.check("second", second < 60)?;
        let nanos = if self.micro { self.micros()? } else { self.fraction() };
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            let value = self.value.to_owned();
            return Err(ParseError::ExtraText { value, rest: self.rest.to_owned() });
        }
        self.check("day", day >= 1 && day <= days_in_month(year, month))?;
        let days = days_from_civil(year, month, day);
        Ok((days * 86400 + hour * 3600 + minute * 60 + second - offset, nanos))
    }

    fn year(&mut self) -> Result<i64, ParseError> {
        match self.rest.split_at_checked(4) {
            Some((digits, rest)) if digits.iter().all(u8::is_ascii_digit) => {
                self.rest = rest;
                Ok(decimal(digits))
            }
            _ => Err(self.mismatch("2006", self.rest)),
        }
    }

    fn literal(&mut self, text: &'static str) -> Result<(), ParseError> {
        match self.rest.strip_prefix(text.as_bytes()) {
            Some(rest) => self.rest = rest,
            None => return Err(self.mismatch(text, self.rest)),
        }
        Ok(())
    }

    /// Two digits, or one where that is not `fixed`.
    fn number(&mut self, element: &'static str, fixed: bool) -> Result<i64, ParseError> {
        let (number, rest) = match self.rest {
            [a, b, rest @ ..] if a.is_ascii_digit() && b.is_ascii_digit() => {
                (decimal(&[*a, *b]), rest)
            }
            [a, rest @ ..] if a.is_ascii_digit() && !fixed => (decimal(&[*a]), rest),
            _ => return Err(self.mismatch(element, self.rest)),
        };
        self.rest = rest;
        Ok(number)
    }

    /// A fraction the layout does not mention is read nevertheless, to nine digits.
    fn fraction(&mut self) -> i32 {
        let [b'.' | b',', tail @ ..] = self.rest else { return 0 };
        let length = tail.iter().take_while(|b| b.is_ascii_digit()).count();
        if length == 0 {
            return 0;
        }
        let (digits, rest) = tail.split_at(length);
        self.rest = rest;
        nanos(&digits[..length.min(9)])
    }

    fn micros(&mut self) -> Result<i32, ParseError> {
        let hold = self.rest;
        match hold {
            [b'.' | b',', tail @ ..]
                if tail.len() >= 6 && tail[..6].iter().all(u8::is_ascii_digit) =>
            {
                self.rest = &tail[6..];
                Ok(nanos(&tail[..6]))
            }
            _ => Err(self.mismatch(".000000", hold)),
        }
    }

    /// `Z`, or hours and minutes east of UTC; in seconds.
    fn offset(&mut self) -> Result<i64, ParseError> {
        if let [b'Z', rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(0);
        }
        let hold = self.rest;
        let &[sign, h1, h2, b':', m1, m2, ref rest @ ..] = hold else {
            return Err(self.mismatch("Z07:00", hold));
        };
        self.rest = rest;
        let digits =
            |a: u8, b: u8| (a.is_ascii_digit() && b.is_ascii_digit()).then(|| decimal(&[a, b]));
        let hours = digits(h1, h2);
        let minutes = hours.and(digits(m1, m2));
        // Some people do write an offset of 24 hours or 60 minutes.
        self.check("time zone offset minute", minutes.is_none_or(|m| m <= 60))?;
        self.check("time zone offset hour", hours.is_none_or(|h| h <= 24))?;
        match (sign, hours, minutes) {
            (b'+', Some(hours), Some(minutes)) => Ok((hours * 60 + minutes) * 60),
            (b'-', Some(hours), Some(minutes)) => Ok(-(hours * 60 + minutes) * 60),
            _ => Err(self.mismatch("Z07:00", hold)),
        }
    }

    fn check(&self, field: &'static str, in_range: bool) -> Result<(), ParseError> {
        if in_range {
            return Ok(());
        }
        Err(ParseError::OutOfRange { value: self.value.to_owned(), field })
    }

    fn mismatch(&self, element: &'static str, rest: &[u8]) -> ParseError {
        ParseError::Mismatch {
            value: self.value.to_owned(),
            layout: if self.micro { LAYOUT_MICRO } else { LAYOUT },
            rest: rest.to_owned(),
            element,
        }
    }
}

fn decimal(digits: &[u8]) -> i64 {
    digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
}

/// Up to nine digits behind the point.
fn nanos(digits: &[u8]) -> i32 {
    (0..9).fold(0, |sum, i| sum * 10 + digits.get(i).map_or(0, |digit| i32::from(digit - b'0')))
}

/// Digit by digit: the codecs write a time for every object, and `write!` takes five times as
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

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970 in the proleptic Gregorian calendar. A year is counted from March, so that the
/// leap day comes last and months have a regular length.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * DAYS_PER_ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year
        - DAYS_BEFORE_1970
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_BEFORE_1970;
    let (era, day) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year_of_era = (day - day / 1460 + day / 36524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = (month + 2) % 12 + 1;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// 400 years, after which the calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;
/// From 1 March of the year 0.
const DAYS_BEFORE_1970: i64 = 719_468;

/// Quotes as the errors of Go's package `time` do, which is not as the rest of Go does.
pub(crate) struct GoQuoted<'a>(pub &'a str);

impl fmt::Display for GoQuoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Bytes(self.0.as_bytes()).fmt(f)
    }
}

/// What is left of a text may begin in the middle of a character.
struct Bytes<'a>(&'a [u8]);

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for byte in self.0 {
            match byte {
                b'"' | b'\\' => write!(f, "\\{}", *byte as char)?,
                b' '..=0x7f => f.write_char(*byte as char)?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, want: Expect) {
        want.assert_eq(&match parse(text) {
            Ok((secs, nanos)) => format!("{secs} {nanos} {}", format_micro(secs, nanos)),
            Err(error) => error.to_string(),
        });
    }

    #[test]
    fn times_are_read_with_fractions_and_offsets() {
        check("1970-01-01T00:00:00Z", expect!["0 0 1970-01-01T00:00:00.000000Z"]);
        check(
            "2026-11-15T20:48:00.123456789Z",
            expect!["1794775680 123456789 2026-11-15T20:48:00.123456Z"],
        );
        check("2000-02-29T23:59:59+05:30", expect!["951848999 0 2000-02-29T18:29:59.000000Z"]);
        check("1969-12-31T23:59:59,5-00:30", expect!["1799 500000000 1970-01-01T00:29:59.500000Z"]);
        check("2000-01-01T1:02:03Z", expect!["946688523 0 2000-01-01T01:02:03.000000Z"]);
        check("0001-01-01T00:00:00Z", expect!["-62135596800 0 0001-01-01T00:00:00.000000Z"]);
    }

    #[test]
    fn what_is_no_time_is_refused_in_gos_words() {
        check(
            "",
            expect![[
                r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#
            ]],
        );
        check(
            "yesterday",
            expect![[
                r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#
            ]],
        );
        check(
            "2000-13-01T00:00:00Z",
            expect![[r#"parsing time "2000-13-01T00:00:00Z": month out of range"#]],
        );
        check(
            "2001-02-29T00:00:00Z",
            expect![[r#"parsing time "2001-02-29T00:00:00Z": day out of range"#]],
        );
        check(
            "2000-01-01 00:00:00Z",
            expect![[
                r#"parsing time "2000-01-01 00:00:00Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 00:00:00Z" as "T""#
            ]],
        );
        check(
            "2000-01-01T00:00:00",
            expect![[
                r#"parsing time "2000-01-01T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#
            ]],
        );
        check(
            "2000-01-01T00:00:00Zé",
            expect![[r#"parsing time "2000-01-01T00:00:00Z\xc3\xa9": extra text: "\xc3\xa9""#]],
        );
        check(
            "2000-01-01T00:00:60Z",
            expect![[r#"parsing time "2000-01-01T00:00:60Z": second out of range"#]],
        );
    }

    #[test]
    fn micro_times_need_six_digits() {
        assert_eq!(parse_micro("2000-01-01T00:00:00.000001Z"), Ok((946684800, 1000)));
        assert!(parse_micro("2000-01-01T00:00:00Z").is_err());
        assert!(parse_micro("2000-01-01T00:00:00.0000001Z").is_err());
    }

    #[test]
    fn seconds_are_cut_and_years_of_any_length_printed() {
        assert_eq!(format(-1, 999_999_999), "1969-12-31T23:59:59Z");
        assert_eq!(format(253_402_300_800, 0), "10000-01-01T00:00:00Z");
        assert_eq!(format_micro(0, -1), "1969-12-31T23:59:59.999999Z");
        let _ = (format(i64::MAX, 0), format(i64::MIN, 0), format_micro(i64::MIN, i32::MIN));
    }

    proptest! {
        #[test]
        fn writing_and_reading_agree(secs in ZERO_SECS..253_402_300_800, micros in 0..1_000_000) {
            let nanos = micros * 1000;
            prop_assert_eq!(parse(&format(secs, nanos)), Ok((secs, 0)));
            prop_assert_eq!(parse_micro(&format_micro(secs, nanos)), Ok((secs, nanos)));
        }

        #[test]
        fn the_calendar_is_jiffs(secs in ZERO_SECS..253_402_200_000, nanos in 0..1_000_000_000) {
            let time = timestamp(secs, nanos).unwrap();
            prop_assert_eq!(parts(time), (secs, nanos));
            let whole = Timestamp::from_second(secs).unwrap();
            prop_assert_eq!(format_timestamp(time), whole.to_string());
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC*|[0-9]{4}-[0-9é]{2}-[0-9]{2}T[0-9:.,Z+-]*") {
            let _ = (parse(&text), parse_micro(&text));
        }
    }
}
