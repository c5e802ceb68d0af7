//! Durations and times print to text that parses to the same value.
#![no_main]

use api::duration::Duration;
use api::time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(duration) = Duration::parse(text) {
        assert_eq!(Duration::parse(&duration.to_string()), Ok(duration));
        let _ = (duration.human(), duration.short_human());
    }
    if let Ok((secs, nanos)) = time::parse(text) {
        // An offset may carry a time out of the years that can be written.
        if (time::ZERO_SECS..253_402_300_800).contains(&secs) {
            assert_eq!(time::parse(&time::format(secs)), Ok((secs, 0)));
            let micros = nanos / 1000 * 1000;
            assert_eq!(time::parse_micro(&time::format_micro(secs, nanos)), Ok((secs, micros)));
        }
    }
    let _ = time::parse_micro(text);
});
