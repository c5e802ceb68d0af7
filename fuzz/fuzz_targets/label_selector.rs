//! A label selector prints to text that parses to the same selector.
#![no_main]

use std::collections::BTreeMap;

use api::selector::label::Selector;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(selector) = Selector::parse(text) else { return };
    assert_eq!(Selector::parse(&selector.to_string()).as_ref(), Ok(&selector));
    let labels: BTreeMap<String, String> = selector
        .requirements()
        .into_iter()
        .flatten()
        .filter_map(|r| Some((r.key().to_owned(), r.values().first()?.clone())))
        .collect();
    let _ = selector.matches(&labels);
});
