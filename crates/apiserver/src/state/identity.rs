//! What the server itself writes into an object's metadata when it comes to be.
use crate::ground::uuid;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// Identity and times of an object that comes to be.
pub fn begin(object: &mut Value, now: Timestamp) {
    let metadata = metadata(object);
    metadata.insert("uid".into(), uuid().into());
    metadata.insert("creationTimestamp".into(), api::time::format(now.as_second()).into());
    metadata.remove("resourceVersion");
}

pub fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    object["metadata"].as_object_mut().expect("just made")
}

pub fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object["metadata"][field].as_str().unwrap_or_default()
}
