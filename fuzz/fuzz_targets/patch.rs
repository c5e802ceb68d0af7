//! A pod and a patch, one per line: the patch merges or is refused, its outcome can be told as a
//! patch again, and the pod's ownership survives being written.
#![no_main]

use api::codec::json;
use api::kinds::find_kind;
use api::patch::apply::fieldset::Set;
use api::patch::apply::typed;
use api::patch::strategic;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Some((object, patch)) = text.split_once('\n') else { return };
    let ty = find_kind("v1", "Pod").expect("pods are in the registry").ty();
    let (Ok(object), Ok(patch)) = (json::decode(object.as_bytes(), ty), json::decode_untyped(patch.as_bytes()))
    else {
        return;
    };
    if let Ok(patched) = strategic::merge(object.value.clone(), patch.value.clone(), ty) {
        let _ = strategic::two_way(&object.value, &patched, ty);
    }
    let set = typed::field_set(&object.value, ty);
    assert_eq!(Set::from_value(&set.to_value()).as_ref(), Ok(&set));
    let _ = Set::from_value(&patch.value);
});
