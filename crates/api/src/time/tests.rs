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
        expect![[r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#]],
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
    assert_eq!(format(-1), "1969-12-31T23:59:59Z");
    assert_eq!(format(253_402_300_800), "10000-01-01T00:00:00Z");
    assert_eq!(format_micro(0, -1), "1969-12-31T23:59:59.999999Z");
    let _ = (format(i64::MAX), format(i64::MIN), format_micro(i64::MIN, i32::MIN));
}

proptest! {
    #[test]
    fn writing_and_reading_agree(secs in ZERO_SECS..253_402_300_800, micros in 0..1_000_000) {
        let nanos = micros * 1000;
        prop_assert_eq!(parse(&format(secs)), Ok((secs, 0)));
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
