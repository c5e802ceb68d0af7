//! Any `Accept` or `Content-Type` header gets an answer.
#![no_main]

use api::content::{Encoding, OBJECTS, PatchType, negotiate, negotiate_stream};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|header: &str| {
    let _ = negotiate(header, &OBJECTS);
    let _ = negotiate_stream(header, &OBJECTS);
    let _ = Encoding::of_request(header, Encoding::ALL);
    let _ = PatchType::of_request(header, PatchType::ALL);
});
