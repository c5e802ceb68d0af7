//! How deep a tree may be. Walks over trees recurse; a hostile tree must not exhaust the stack.
use serde_json::{Map, Value};

/// `serde_json` refuses to parse deeper than 128; trees made in other ways get some room.
const LIMIT: usize = 192;

pub(crate) fn within_limit(value: &Value) -> bool {
    deep(value, LIMIT)
}

pub(crate) fn within_limit_map(map: &Map<String, Value>) -> bool {
    map.values().all(|value| deep(value, LIMIT - 1))
}

fn deep(value: &Value, left: usize) -> bool {
    match value {
        Value::Array(items) => left > 0 && items.iter().all(|item| deep(item, left - 1)),
        Value::Object(map) => left > 0 && map.values().all(|item| deep(item, left - 1)),
        _ => true,
    }
}
