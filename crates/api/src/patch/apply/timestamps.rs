//! A write that changes nothing but the time at which it was made is no write.
use super::managed_fields;
use serde_json::Value;

/// If `new` differs from `old` only in the times of its managers, gives it the old times back, so
/// that the store sees no change and the object keeps its resource version.
pub fn keep_timestamps_if_unchanged(old: &Value, new: &mut Value) {
    let (Some(Value::Array(old_list)), Some(Value::Array(new_list))) =
        (managed_fields::of(old), managed_fields::of(new))
    else {
        return;
    };
    // A manager added or gone is a change, even if the object is the same.
    if old_list.is_empty() || old_list.len() != new_list.len() || old_list == new_list {
        return;
    }
    let same = old_list.iter().zip(new_list).all(|(old, new)| same_but(old, new, &["time"]))
        && same_but(old, new, &["metadata", "managedFields"]);
    if same {
        let list = Value::Array(old_list.clone());
        managed_fields::put(new, Some(list));
    }
}

/// Whether two objects are equal apart from what `path` leads to.
fn same_but(old: &Value, new: &Value, path: &[&str]) -> bool {
    let (Value::Object(a), Value::Object(b), Some((first, rest))) = (old, new, path.split_first())
    else {
        return path.is_empty() || old == new;
    };
    let others =
        |map: &serde_json::Map<String, Value>| map.keys().filter(|key| key != first).count();
    others(a) == others(b)
        && a.iter().filter(|(key, _)| key != first).all(|(key, value)| b.get(key) == Some(value))
        && match (a.get(*first), b.get(*first)) {
            (Some(old), Some(new)) => same_but(old, new, rest),
            (None, None) => true,
            _ => rest.is_empty(),
        }
}
