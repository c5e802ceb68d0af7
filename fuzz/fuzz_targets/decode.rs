//! Bytes as an object of some kind, in some encoding: nothing panics, and what decodes is
//! canonical, so that every encoding gives it back.
#![no_main]

use api::codec::json;
use api::codec::object::{Encoding, decode, encode, type_meta};
use api::kinds::RESOURCES;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // The first two bytes choose.
    let [kind, encoding, bytes @ ..] = input else { return };
    let resource = &RESOURCES[*kind as usize % RESOURCES.len()];
    let encoding = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf][*encoding as usize % 3];
    let _ = type_meta(bytes, encoding);
    let Ok(decoded) = decode(bytes, encoding, resource.ty()) else { return };
    let again = encode(&decoded.value, Encoding::Json, resource.ty());
    let again = json::decode(&again, resource.ty()).expect("what decoded encodes to something that does");
    assert_eq!(again.value, decoded.value);
    let message = encode(&decoded.value, Encoding::Protobuf, resource.ty());
    decode(&message, Encoding::Protobuf, resource.ty()).expect("and to protobuf that does");
});
