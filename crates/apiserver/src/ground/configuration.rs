//! Files that the server is configured with. They are read strictly: a field that is misspelt, or said
//! twice, would mean something else than its writer thinks, and some of them keep people out.
use api::codec::yaml;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a file's text as one kind, in one of the versions of its group.
pub fn read<T: DeserializeOwned>(
    bytes: &[u8],
    group: &str,
    versions: &[&str],
    kind: &str,
) -> Result<T, String> {
    typed(document(bytes)?, group, versions, kind)
}

/// The document of a file. Nothing in it is said twice.
pub fn document(bytes: &[u8]) -> Result<Value, String> {
    let decoded = yaml::decode_untyped(bytes).map_err(|error| error.to_string())?;
    match decoded.problems.first() {
        Some(problem) => Err(format!("strict decoding error: {problem}")),
        None => Ok(decoded.value),
    }
}

/// Refuses a document that is not of the kind, in one of the versions.
pub fn expect_type(
    document: &Value,
    group: &str,
    versions: &[&str],
    kind: &str,
) -> Result<(), String> {
    let text = |field: &str| document[field].as_str().unwrap_or_default();
    let (found, found_kind) = (text("apiVersion"), text("kind"));
    if found_kind.is_empty() {
        return Err("Object 'Kind' is missing".into());
    }
    if found.is_empty() {
        return Err("Object 'apiVersion' is missing".into());
    }
    let known = versions.iter().any(|version| found == format!("{group}/{version}"));
    match known && found_kind == kind {
        true => Ok(()),
        false => Err(format!("no kind {found_kind:?} is registered for version {found:?}")),
    }
}

/// Reads a document of one kind, which has no fields that it should not.
pub fn typed<T: DeserializeOwned>(
    mut document: Value,
    group: &str,
    versions: &[&str],
    kind: &str,
) -> Result<T, String> {
    expect_type(&document, group, versions, kind)?;
    if let Value::Object(fields) = &mut document {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    strictly(document)
}

/// Reads what has no fields that it should not.
pub fn strictly<T: DeserializeOwned>(document: Value) -> Result<T, String> {
    serde_json::from_value(document).map_err(|error| {
        let text = error.to_string();
        let unknown = text.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
        match unknown {
            Some(field) => format!("strict decoding error: unknown field {field:?}"),
            None => text,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_is_said_twice_is_not_read() {
        let read = |text: &str| read::<BTreeMap<String, Value>>(text.as_bytes(), "g", &["v1"], "K");
        assert!(read("apiVersion: g/v1\nkind: K\na: 1\n").is_ok());
        let twice = read("apiVersion: g/v1\nkind: K\na: {b: 1, b: 2}\n").expect_err("refused");
        assert!(twice.starts_with("strict decoding error: ") && twice.contains("\"b\""), "{twice}");
        assert!(read("apiVersion: g/v2\nkind: K\n").is_err());
    }
}
