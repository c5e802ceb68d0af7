//! Objects without `metadata.managedFields`.
//!
//! Who owns which field is the API server's business, and is half of a pod's bytes and most of the work of
//! reading one. No component asks, and an update that names no owners keeps those that are stored: typed
//! forms are read without them.
use memchr::memchr2;

/// The JSON without `metadata.managedFields`; nothing if there are none.
pub fn without_managed_fields(json: &[u8]) -> Option<Vec<u8>> {
    let (_, metadata, _) = member(json, space(json, 0), "metadata")?;
    let (mut start, _, mut end) = member(json, metadata, "managedFields")?;
    // One comma goes with it: the one behind it, or, if it is the last, the one before it.
    end = space(json, end);
    match json.get(end)? {
        b',' => end += 1,
        _ => {
            let before = json[..start].iter().rposition(|byte| !byte.is_ascii_whitespace())?;
            if json[before] == b',' {
                start = before;
            }
        }
    }
    Some([&json[..start], &json[end..]].concat())
}

/// Where in the object that begins here a name begins, its value, and what comes after the value.
fn member(json: &[u8], object: usize, name: &str) -> Option<(usize, usize, usize)> {
    let mut at = space(json, object);
    if json.get(at) != Some(&b'{') {
        return None;
    }
    loop {
        let start = space(json, at + 1);
        let named = string(json, start)?;
        let colon = space(json, named);
        if json.get(colon) != Some(&b':') {
            return None;
        }
        let value = space(json, colon + 1);
        let end = self::value(json, value)?;
        if &json[start + 1..named - 1] == name.as_bytes() {
            return Some((start, value, end));
        }
        at = space(json, end);
        if json.get(at) != Some(&b',') {
            return None;
        }
    }
}

fn space(json: &[u8], at: usize) -> usize {
    let blank = json.iter().skip(at).take_while(|byte| byte.is_ascii_whitespace());
    at + blank.count()
}

/// The end of the string that begins here.
fn string(json: &[u8], at: usize) -> Option<usize> {
    if json.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += memchr2(b'"', b'\\', json.get(at..)?)?;
        match json[at] {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// The end of the value that begins here. It is looked at no closer than that: whoever reads what is left
/// finds what is wrong with it.
fn value(json: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match json.get(at)? {
            b'"' => at = string(json, at)?,
            b'{' | b'[' => (depth, at) = (depth + 1, at + 1),
            b'}' | b']' if depth > 0 => (depth, at) = (depth - 1, at + 1),
            b',' | b'}' | b']' if depth == 0 => return Some(at),
            _ => at += 1,
        }
        let ended = matches!(json.get(at - 1)?, b'"' | b'}' | b']');
        if depth == 0 && ended {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owners_go() {
        for (given, left) in [
            (
                r#"{"metadata":{"managedFields":[{"f":{"}":"]\"","\\":1}}],"name":"a"}}"#,
                r#"{"metadata":{"name":"a"}}"#,
            ),
            (r#"{"metadata":{"name":"a","managedFields":[]}}"#, r#"{"metadata":{"name":"a"}}"#),
            (r#"{"metadata":{"managedFields":null},"x":1}"#, r#"{"metadata":{},"x":1}"#),
            (
                r#"{"kind":"A", "n": 12.5e3, "metadata" : { "labels": {"managedFields":"x"} , "managedFields" : [ {} ] } , "spec": {}}"#,
                r#"{"kind":"A", "n": 12.5e3, "metadata" : { "labels": {"managedFields":"x"} } , "spec": {}}"#,
            ),
        ] {
            let found = without_managed_fields(given.as_bytes())
                .map(|json| String::from_utf8(json).unwrap());
            assert_eq!(found.as_deref(), Some(left));
            let _: serde_json::Value = serde_json::from_str(left).unwrap();
        }
    }

    #[test]
    fn what_has_none_or_is_no_object_is_left_alone() {
        for given in [
            "",
            "null",
            "[]",
            "{",
            "{}",
            "{\"metadata\"",
            "{\"metadata\":",
            "{\"metadata\":{",
            "\"",
            "{\"a\\",
            r#"{"metadata":{"name":"a"},"managedFields":[]}"#,
            r#"{"spec":{"metadata":{"managedFields":[]}}}"#,
            r#"{"metadata":{"managedFields":["#,
            r#"{"metadata":{"managedFields":[]"#,
            r#"{"metadata":7}"#,
        ] {
            assert_eq!(without_managed_fields(given.as_bytes()), None, "{given}");
        }
    }
}
