//! A field selector prints to text that parses to the same selector.
#![no_main]

use api::selector::field::{Selector, escape_value, unescape_value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    assert_eq!(unescape_value(&escape_value(text)).as_deref(), Ok(text));
    let Ok(selector) = Selector::parse(text) else { return };
    assert_eq!(Selector::parse(&selector.to_string()).as_ref(), Ok(&selector));
});
