//! Two quantities, one per line: what parses prints to something equal and stable, and
//! arithmetic undoes itself.
#![no_main]

use api::quantity::{Quantity, canonicalize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (left, right) = text.split_once('\n').unwrap_or((text, "1"));
    let Ok(left) = Quantity::parse(left) else { return };
    let printed = left.to_string();
    assert_eq!(Quantity::parse(&printed).as_ref(), Ok(&left), "{printed}");
    assert_eq!(canonicalize(&printed).as_deref(), Ok(printed.as_str()));
    let _ = (left.value(), left.milli_value(), left.as_i64(), left.as_f64());

    let Ok(right) = Quantity::parse(right) else { return };
    let sum = left.clone() + &right;
    assert_eq!(sum, right.clone() + &left);
    // Beyond this length the smaller term of a sum is dropped, by design.
    if sum.to_string().len() < 1000 && printed.len() < 1000 {
        assert_eq!((left.clone() - &right).sign(), left.cmp(&right));
    }
    let mut product = left;
    product.multiply(right.value());
    product.round_up(0);
    let _ = product.to_string();
});
