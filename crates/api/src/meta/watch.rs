//! Events of a watch.

use serde::{Deserialize, Serialize};

/// One change, and the object after it (or before, when it was deleted). `Bookmark` carries only
/// a resource version, `Error` a `Status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchEvent<T> {
    pub r#type: EventType,
    pub object: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl EventType {
    pub const fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
            EventType::Bookmark => "BOOKMARK",
            EventType::Error => "ERROR",
        }
    }
}

/// Appends one line of a JSON watch. The object is encoded already: many watchers share it.
pub fn write_watch_event(out: &mut Vec<u8>, event: EventType, object: &[u8]) {
    out.reserve(object.len() + 40);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.as_str().as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn every_event_is_a_line_that_reads_back() {
        for event in [
            EventType::Added,
            EventType::Modified,
            EventType::Deleted,
            EventType::Bookmark,
            EventType::Error,
        ] {
            let mut line = Vec::new();
            write_watch_event(&mut line, event, br#"{"kind":"Pod"}"#);
            let read: WatchEvent<Value> = serde_json::from_slice(&line).unwrap();
            assert_eq!(read, WatchEvent { r#type: event, object: json!({"kind": "Pod"}) });
            assert_eq!(line, (serde_json::to_string(&read).unwrap() + "\n").into_bytes());
        }
    }
}
