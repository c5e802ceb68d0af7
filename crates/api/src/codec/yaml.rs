//! YAML as Kubernetes users meet it: YAML 1.1 booleans, several documents in a file, keys that
//! look like numbers; and written the way upstream writes it.
//!
//! YAML is read into a plain tree first and takes its type afterwards, as upstream goes through
//! JSON: `"1"` and `1` differ, whatever the field would like.
use super::DecodeError;
use super::json::{self, Decoded, Problem};
use crate::quote::Quoted;
use crate::schema::TypeRef;
use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;

mod emit;

pub use emit::encode;

/// Decodes one document of a known type.
pub fn decode(bytes: &[u8], ty: TypeRef<'_>) -> Result<Decoded, DecodeError> {
    decode_with(bytes, |plain| json::canonicalize(plain, ty))
}

/// The same, with the lists and maps that were given empty.
pub fn decode_given(bytes: &[u8], ty: TypeRef<'_>) -> Result<Decoded, DecodeError> {
    decode_with(bytes, |plain| json::canonicalize_given(plain, ty))
}

fn decode_with(
    bytes: &[u8],
    settle: impl FnOnce(Value) -> Result<Decoded, DecodeError>,
) -> Result<Decoded, DecodeError> {
    let plain = decode_untyped(bytes)?;
    let mut decoded = settle(plain.value)?;
    decoded.problems.splice(0..0, plain.problems);
    Ok(decoded)
}

/// Decodes one document. Of a key set twice the last value counts, and strictness hears of it.
pub fn decode_untyped(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| DecodeError::Syntax("yaml: invalid UTF-8".to_owned()))?;
    let mut decoded = read(text, DuplicateKeyPolicy::LastWins)
        .map_err(|error| DecodeError::Syntax(format!("yaml: {error}")))??;
    if let Some(Problem::DuplicateField(path)) = std::mem::take(&mut decoded.problems).first() {
        // Only a second reading, which stops there, knows the line.
        let line = match read(text, DuplicateKeyPolicy::Error) {
            Err(error) => error.location().map_or(0, |location| location.line()),
            Ok(_) => 0,
        };
        let key = path.rsplit('.').next().unwrap_or(path);
        let text = format!(
            "yaml: unmarshal errors:\n  line {line}: key {} already set in map",
            Quoted(key)
        );
        decoded.problems.push(Problem::Yaml(text));
    }
    Ok(decoded)
}

/// The outer error is YAML's, the inner one ours.
fn read(
    text: &str,
    duplicate_keys: DuplicateKeyPolicy,
) -> Result<Result<Decoded, DecodeError>, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        json::decode_with(deserializer)
    })
}

/// The documents of a file: separated by lines of `---`, empty ones left out.
pub fn documents(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            if is_separator(line) {
                rest = Some(&text[at + line.len()..]);
                return Some(&text[..at]);
            }
            at += line.len();
        }
        rest = None;
        Some(text)
    })
    .filter(|document| {
        document.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    })
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|after| {
        let after = after.trim();
        after.is_empty() || after.starts_with('#')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;
    use serde_json::{Value, json};

    fn check(yaml: &str, expected: Value) {
        assert_eq!(decode_untyped(yaml.as_bytes()).unwrap().value, expected, "{yaml}");
    }

    #[test]
    fn scalars_are_read_as_upstream_reads_them() {
        check("a: yes\nb: 'yes'\nc: off", json!({"a": true, "b": "yes", "c": false}));
        check("a: 0755\nb: 1e3\nc: 1.5\nd: 0x1F", json!({"a": 493, "b": 1000, "c": 1.5, "d": 31}));
        check("a: ~\nb:\nc: null", json!({"a": null, "b": null, "c": null}));
        check("1: one\ntrue: yes", json!({"1": "one", "true": true}));
        check("a: |\n  two\n  lines\n", json!({"a": "two\nlines\n"}));
        check("a: &x {b: 1}\nc: *x", json!({"a": {"b": 1}, "c": {"b": 1}}));
    }

    #[test]
    fn a_key_set_twice_is_a_problem_and_the_last_one_counts() {
        let decoded = decode_untyped(b"a: 1\nb: 2\na: 3\n").unwrap();
        assert_eq!(decoded.value, json!({"a": 3, "b": 2}));
        let text = "yaml: unmarshal errors:\n  line 3: key \"a\" already set in map";
        assert_eq!(decoded.problems, [Problem::Yaml(text.into())]);
    }

    #[test]
    fn a_typed_document_reports_unknown_fields() {
        let pod = builtin().kind("", "v1", "Pod").unwrap();
        let yaml = b"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    imagee: b\n";
        let decoded = decode(yaml, pod).unwrap();
        assert_eq!(decoded.problems, [Problem::UnknownField("spec.containers[0].imagee".into())]);
    }

    #[test]
    fn documents_are_separated_and_empty_ones_dropped() {
        let all: Vec<&str> = documents("---\na: 1\n--- # next\n# nothing\n---\nb: 2").collect();
        assert_eq!(all, ["a: 1\n", "b: 2"]);
    }
}
