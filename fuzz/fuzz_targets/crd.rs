//! A schema and an object, one per line: the schema compiles or is refused; pruning and defaulting
//! end, and doing either again changes nothing.
#![no_main]

use api::codec::json;
use api::schema::{CustomSchema, prune, set_defaults};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Some((schema, object)) = text.split_once('\n') else { return };
    let Ok(schema) = json::decode_untyped(schema.as_bytes()) else { return };
    let Ok(object) = json::decode_untyped(object.as_bytes()) else { return };
    let Ok(schema) = CustomSchema::compile(&schema.value) else { return };
    let mut object = object.value;
    prune(&mut object, schema.root());
    assert!(prune(&mut object, schema.root()).is_empty());
    set_defaults(&mut object, schema.root());
    let once = object.clone();
    set_defaults(&mut object, schema.root());
    assert_eq!(object, once);
});
