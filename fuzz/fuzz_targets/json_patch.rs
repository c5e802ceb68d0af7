//! A document and a patch, one per line: the patch applies or is refused, and a merge patch made
//! from two objects leads from one to the other.
#![no_main]

use api::patch::json_patch::{Limits, Patch};
use api::patch::{merge, merge_diff};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let Some((document, patch)) = text.split_once('\n') else { return };
    let Ok(document) = serde_json::from_str::<Value>(document) else { return };
    let Ok(patch) = serde_json::from_str::<Value>(patch) else { return };

    let _ = merge::apply(&mut document.clone(), &patch);
    if let Ok(difference) = merge_diff::two_way(&document, &patch) {
        let mut changed = document.clone();
        // A null in the new object cannot be said in a merge patch, and 1 is 1.0 to it.
        if merge::apply(&mut changed, &difference).is_ok() && !text.contains(['n', '.', 'e', 'E']) {
            assert_eq!(changed, patch);
        }
    }
    let limits = Limits { operations: 100, copied_bytes: 1 << 16 };
    if let Ok(patch) = Patch::decode(patch, &limits) {
        let _ = patch.apply(document, &limits);
    }
});
