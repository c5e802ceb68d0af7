//! The annotation in which `apply` keeps what was applied last, byte for byte as upstream writes it.
use crate::failure::{Failure, Outcome};
use api::quote::go_json;
use serde_json::{Value, json};

pub const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The object as it is written into its own annotation.
pub fn configuration(object: &Value) -> Outcome<String> {
    let mut object = object.clone();
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let annotations = &mut object["metadata"]["annotations"];
    match annotations.as_object_mut() {
        Some(fields) => drop(fields.remove(ANNOTATION)),
        // Upstream's has the empty map, too.
        None => *annotations = json!({}),
    }
    let text = go_json(&object).map_err(|error| Failure::Plain(error.to_string()))?;
    Ok(format!("{text}\n"))
}

/// The object with its annotation.
pub fn annotated(object: &Value) -> Outcome<Value> {
    let text = configuration(object)?;
    let mut object = object.clone();
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][ANNOTATION] = text.into();
    Ok(object)
}

/// What was applied last.
pub fn original(object: &Value) -> Outcome<Option<Value>> {
    match object["metadata"]["annotations"][ANNOTATION].as_str() {
        None | Some("") => Ok(None),
        Some(text) => {
            serde_json::from_str(text).map(Some).map_err(|error| Failure::Plain(error.to_string()))
        }
    }
}

pub fn has(object: &Value) -> bool {
    object["metadata"]["annotations"].get(ANNOTATION).is_some()
}

/// Brings an annotation that is there up to date, or makes it if asked.
pub fn refreshed(object: Value, make: bool) -> Outcome<Value> {
    if make || has(&object) { annotated(&object) } else { Ok(object) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_is_upstream_s() {
        let object = json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": "a" },
            "data": { "x": "<y>" } });
        let made = annotated(&object).unwrap();
        assert_eq!(
            made["metadata"]["annotations"][ANNOTATION],
            "{\"apiVersion\":\"v1\",\"data\":{\"x\":\"\\u003cy\\u003e\"},\"kind\":\"ConfigMap\",\
             \"metadata\":{\"annotations\":{},\"name\":\"a\"}}\n"
        );
        let again = annotated(&made).unwrap();
        assert_eq!(again, made);
        assert_eq!(original(&made).unwrap().unwrap()["data"], object["data"]);
    }
}
