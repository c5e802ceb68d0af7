//! A field selector prints to text that parses to the same terms.
#![no_main]

use api::selector::field::{Selector, escape_value, unescape_value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    assert_eq!(unescape_value(&escape_value(text)).as_deref(), Ok(text));
    let Ok(selector) = Selector::parse(text) else { return };
    // Their order may differ: it is that of the text, where `==` sorts unlike `=`.
    let sorted = |selector: &Selector| {
        let mut terms = selector.terms().to_vec();
        terms.sort();
        terms
    };
    let again = Selector::parse(&selector.to_string()).expect("the printed form parses");
    assert_eq!(sorted(&again), sorted(&selector));
});
