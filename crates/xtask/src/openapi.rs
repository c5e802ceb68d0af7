//! `cargo xtask openapi PATH`: compares our OpenAPI v3 documents with published ones, file by
//! file (`api__v1_openapi.json`, …, as in Kubernetes' `api/openapi-spec/v3`). Prose, enumerations
//! (which published files leave out) and CBOR do not count.
use crate::roundtrip::difference;
use api::openapi::v3;
use serde_json::{Map, Value};
use std::path::Path;

pub fn run(folder: &Path) -> Result<(), String> {
    let (mut equal, mut different) = (0, 0);
    for (path, group, version) in v3::index(api::kinds::built_in()) {
        let file = folder.join(format!("{}_openapi.json", path.replace('/', "__")));
        let text = std::fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let published: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
        let ours = v3::document(api::kinds::built_in(), group, version);
        for part in ["/components/schemas", "/paths"] {
            let (ours, published) = (facts(&ours, part), facts(&published, part));
            for name in ours.keys().chain(published.keys().filter(|name| !ours.contains_key(*name)))
            {
                let (a, b) = (ours.get(name), published.get(name));
                let found = match (a, b) {
                    (Some(a), Some(b)) => difference(a, b, String::new()),
                    (None, _) => Some(" is missing".into()),
                    (_, None) => Some(" is not published".into()),
                };
                match found {
                    None => equal += 1,
                    Some(found) => {
                        different += 1;
                        println!("{path} {name}{found}");
                    }
                }
            }
        }
    }
    println!("{equal} equal, {different} different");
    if different > 0 { Err("some schemas or paths differ".into()) } else { Ok(()) }
}

fn facts(document: &Value, part: &str) -> Map<String, Value> {
    let mut part = document.pointer(part).and_then(Value::as_object).cloned().unwrap_or_default();
    part.values_mut().for_each(strip);
    part
}

/// Leaves only facts. A property named `description` or `enum` is a fact: it is an object.
fn strip(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|name, value| {
                let prose = name == "description" && value.is_string();
                let values = name == "enum" && value.is_array();
                let kinds = name == "x-kubernetes-group-version-kind" && value.is_array();
                !prose && !values && !kinds && !name.contains("cbor")
            });
            object.values_mut().for_each(strip);
            if let Some(Value::Array(required)) = object.get_mut("required") {
                required.sort_by_key(Value::to_string);
            }
            // Where there is no prose beside a reference, it needs no wrapping.
            if object.len() == 1
                && let Some(Value::Array(all)) = object.get_mut("allOf")
                && let Some(Value::Object(only)) = all.pop()
            {
                *object = only;
            }
        }
        Value::Array(array) => array.iter_mut().for_each(strip),
        _ => {}
    }
}
