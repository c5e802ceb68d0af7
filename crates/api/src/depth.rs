//! How deep a tree may be: one limit for whoever reads one and whoever writes one.
//!
//! Walks over trees recurse, and so does dropping one; a hostile tree must not exhaust the stack.
//! What is accepted must also be readable ever after, so nothing is stored that is deeper than
//! [`LIMIT`], and every reader of what is stored goes as deep as that ([`read`]). `serde_json`'s own
//! readers stop at 128 levels: they are for what others answer us, never for stored objects.
use serde::Deserialize;
use serde_json::{Map, Value};

/// Objects and lists may nest this deep. Deep enough for any definition's schema; shallow enough
/// for any stack.
pub const LIMIT: usize = 200;

pub fn within_limit(value: &Value) -> bool {
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

/// How many levels a tree has, and how many values: what it costs to find out.
pub(crate) fn levels(value: &Value) -> (usize, usize) {
    let around = |inner: &mut dyn Iterator<Item = &Value>| {
        let (mut deepest, mut values) = (0, 1);
        for (levels, more) in inner.map(levels) {
            deepest = deepest.max(levels);
            values += more;
        }
        (deepest + 1, values)
    };
    match value {
        Value::Array(items) => around(&mut items.iter()),
        Value::Object(map) => around(&mut map.values()),
        _ => (0, 1),
    }
}

/// Reads JSON that is as deep as may be stored.
pub fn read<'a, T: Deserialize<'a>>(json: &'a [u8]) -> serde_json::Result<T> {
    match serde_json::from_slice(json) {
        Err(error) if error.is_syntax() && (128..=LIMIT).contains(&levels_of_text(json)) => {
            let mut deserializer = serde_json::Deserializer::from_slice(json);
            deserializer.disable_recursion_limit();
            let read = T::deserialize(&mut deserializer)?;
            deserializer.end().map(|()| read)
        }
        outcome => outcome,
    }
}

/// The same of a text, without recursion.
fn levels_of_text(json: &[u8]) -> usize {
    let (mut now, mut deepest) = (0_usize, 0);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                now += 1;
                deepest = deepest.max(now);
            }
            b'}' | b']' => now = now.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'\\' => _ = bytes.next(),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn what_may_be_written_can_be_read() {
        for depth in [1, 127, 128, 129, LIMIT] {
            let read: Value = read(nested(depth).as_bytes()).unwrap();
            assert!(within_limit(&read), "{depth}");
            assert_eq!(levels(&read), (depth, depth));
        }
        assert!(read::<Value>(nested(LIMIT + 1).as_bytes()).is_err());
        assert!(read::<Value>(nested(1_000_000).as_bytes()).is_err());
    }

    #[test]
    fn brackets_in_texts_are_no_levels() {
        assert_eq!(levels_of_text(br#"{"a[\"{[":[{},"]}"]}"#), 3);
        assert_eq!(levels_of_text(br#""\"#), 0);
    }
}
