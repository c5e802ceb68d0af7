//! When a schedule comes due, as robfig/cron v3 counts it, which is what upstream uses.
use api::rules::cron::{ANY, Schedule};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

/// A schedule that comes due less often than that never does: 30 February.
const HORIZON: SignedDuration = SignedDuration::from_hours(5 * 366 * 24);
const MINUTE: SignedDuration = SignedDuration::from_secs(60);

/// The first moment after this one.
pub fn next(schedule: &Schedule, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let [minutes, hours, days, months, weekdays] = match schedule {
        Schedule::Every(span) => {
            let whole = Timestamp::from_second(after.as_second()).ok()?;
            return whole.checked_add(SignedDuration::from_secs(span.as_secs().max(1))).ok();
        }
        Schedule::Fields(fields) => *fields,
    };
    let has = |set: u64, value: i8| set & (1 << value) != 0;
    let is_day = |at: &Zoned| {
        let day = has(days, at.day());
        let weekday = has(weekdays, at.weekday().to_sunday_zero_offset());
        let either = days & ANY == 0 && weekdays & ANY == 0;
        has(months, at.month()) && if either { day || weekday } else { day && weekday }
    };
    let mut at = Timestamp::from_second(after.as_second().div_euclid(60) * 60).ok()? + MINUTE;
    let end = after.checked_add(HORIZON).ok()?;
    while at < end {
        let local = at.to_zoned(zone.clone());
        // Hours go by as they do on a clock that is changed: one that is left out never comes,
        // one that comes twice counts twice.
        at = if !is_day(&local) {
            local.tomorrow().and_then(|it| it.start_of_day()).ok()?.timestamp()
        } else if !has(hours, local.hour()) {
            at + MINUTE * i32::from(60 - local.minute())
        } else if !has(minutes, local.minute()) {
            at + MINUTE
        } else {
            return Some(at);
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::rules::cron::{find_zone, parse};

    #[test]
    fn schedules_come_due() {
        for (schedule, zone, after, due) in [
            ("* * * * *", "UTC", "2026-01-01T12:00:00Z", "2026-01-01T12:01:00Z"),
            ("*/15 * * * *", "UTC", "2026-01-01T12:14:59.5Z", "2026-01-01T12:15:00Z"),
            ("0 0 * * *", "Europe/Berlin", "2026-01-01T12:00:00Z", "2026-01-01T23:00:00Z"),
            ("0 0 29 2 *", "UTC", "2026-01-01T12:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 30 2 *", "UTC", "2026-01-01T12:00:00Z", ""),
            // Either the 13th or a Friday; with one of them left open, the other alone.
            ("0 0 13 * fri", "UTC", "2026-01-01T12:00:00Z", "2026-01-02T00:00:00Z"),
            ("0 0 * * mon", "UTC", "2026-01-01T12:00:00Z", "2026-01-05T00:00:00Z"),
            ("0 0 13 * *", "UTC", "2026-01-01T12:00:00Z", "2026-01-13T00:00:00Z"),
            // 02:30 is left out on 29 March, and comes twice on 25 October.
            ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"),
            ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
            ("@every 90s", "UTC", "2026-01-01T12:00:00.7Z", "2026-01-01T12:01:30Z"),
            ("@weekly", "UTC", "2026-01-01T12:00:00Z", "2026-01-04T00:00:00Z"),
        ] {
            let parsed = parse(schedule).expect("a schedule");
            let zone = find_zone(zone).expect("a zone");
            let found = next(&parsed, &zone, after.parse().expect("a moment"));
            let found = found.map(|at| at.to_string()).unwrap_or_default();
            assert_eq!(found, due, "{schedule} after {after}");
        }
    }
}
