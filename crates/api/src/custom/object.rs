//! A custom object on its way in, and out of the store.
//!
//! What a Go type does to a built-in object when it is decoded, a version's schema does to a custom
//! one: unknown fields go ([`prune`]), what is missing gets its default, and the metadata is that of
//! every object (`apiextensions-apiserver/pkg/apiserver/customresource_handler.go`).
use super::{Definition, Version};
use crate::codec::object::{Encoding, TypeMeta};
use crate::codec::{DecodeError, Problem, json, yaml};
use crate::rules::embedded;
use crate::schema::{builtin, prune, set_defaults};
use serde_json::{Map, Value};

/// Decodes a request's body.
pub fn decode(
    bytes: &[u8],
    encoding: Encoding,
    definition: &Definition,
) -> Result<json::Decoded, DecodeError> {
    let plain = match encoding {
        Encoding::Json => json::decode_untyped(bytes)?,
        Encoding::Yaml => yaml::decode_untyped(bytes)?,
        Encoding::Protobuf => {
            return Err(DecodeError::Type("custom resources have no protobuf form".into()));
        }
    };
    let mut decoded = settle(plain.value, definition)?;
    decoded.problems.splice(0..0, plain.problems);
    Ok(decoded)
}

/// The same of an object in another version of the definition, or in one that there is not: of that
/// nothing is known.
pub fn decode_version(
    bytes: &[u8],
    encoding: Encoding,
    definition: &Definition,
    api_version: &str,
) -> Result<json::Decoded, DecodeError> {
    if let Some(version) = definition.family.version(api_version) {
        let (kind, singular) = (definition.kind, definition.singular);
        let (version, family) = (version.clone(), definition.family.clone());
        return decode(bytes, encoding, &Definition { kind, singular, version, family });
    }
    let mut decoded = decode(bytes, encoding, definition)?;
    let fields = decoded.value.as_object().into_iter().flat_map(Map::keys);
    let unknown = fields.filter(|name| !matches!(&***name, "apiVersion" | "kind" | "metadata"));
    decoded.problems = unknown.cloned().map(Problem::UnknownField).collect();
    Ok(decoded)
}

/// What is said of an object that does not say what it is.
pub fn without_kind(object: &str) -> String {
    format!("Object 'Kind' is missing in '{object}'")
}

/// A tree that a client sent or a patch made, as the version has it: without what its schema does not
/// know, with its defaults. Of an object of another kind only the metadata is known.
pub fn settle(mut value: Value, definition: &Definition) -> Result<json::Decoded, DecodeError> {
    let version = &definition.version;
    if !value.is_object() {
        let found = if value.is_array() { "array" } else { "value" };
        let text = format!(
            "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        );
        return Err(DecodeError::Type(text));
    }
    let kind = TypeMeta::of(&value).kind;
    if !kind.is_empty() && kind != definition.kind {
        let mut unknown = Vec::new();
        metadata(&mut value, false, &mut unknown)?;
        let problems = unknown.into_iter().map(Problem::UnknownField).collect();
        return Ok(json::Decoded { value, problems });
    }
    let unknown = coerce(&mut value, version, false)?;
    set_defaults(&mut value, version.schema.root())
        .map_err(|error| DecodeError::Type(error.to_string()))?;
    let problems = unknown.into_iter().map(Problem::UnknownField).collect();
    Ok(json::Decoded { value, problems })
}

/// What a hook made of an object, with the defaults of the version that it calls itself. What that version does
/// not know stays until the object is stored: another version, to which it is converted first, may know it
/// (`apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go`, `unstructuredDefaulter`).
pub fn patched(mut value: Value, definition: &Definition) -> Result<Value, DecodeError> {
    metadata(&mut value, false, &mut Vec::new())?;
    let said = TypeMeta::of(&value);
    if said.kind == definition.kind
        && let Some(version) = definition.family.version(&said.api_version)
    {
        set_defaults(&mut value, version.schema.root())
            .map_err(|error| DecodeError::Type(error.to_string()))?;
    }
    Ok(value)
}

/// One object in another version of its definition.
pub type Conversion<'c> = &'c dyn Fn(Value, &Version) -> Result<Value, String>;

/// The conversion that changes nothing but the version's name.
pub fn renamed(mut object: Value, to: &Version) -> Value {
    object["apiVersion"] = to.api_version.as_str().into();
    object
}

/// A stored object in the version of a row: defaulted in the version that it is stored in, converted,
/// and pruned by the version it is read in.
pub fn read(
    mut object: Value,
    definition: &Definition,
    convert: Conversion<'_>,
) -> Result<Value, String> {
    let wanted = &definition.version;
    let api_version = TypeMeta::of(&object).api_version;
    if api_version != wanted.api_version {
        object = convert(prepared(object, definition)?, wanted)?;
    }
    coerce(&mut object, wanted, true).map_err(|error| error.to_string())?;
    if api_version == wanted.api_version {
        set_defaults(&mut object, wanted.schema.root()).map_err(|error| error.to_string())?;
    }
    Ok(object)
}

/// A stored object as its own version has it: what is converted.
pub fn prepared(mut object: Value, definition: &Definition) -> Result<Value, String> {
    // A version that is no more is taken for what it was: nothing is known of it.
    if let Some(stored) = definition.family.version(&TypeMeta::of(&object).api_version) {
        coerce(&mut object, stored, true).map_err(|error| error.to_string())?;
        set_defaults(&mut object, stored.schema.root()).map_err(|error| error.to_string())?;
    }
    Ok(object)
}

/// An object that a webhook has converted, without what its new version does not know. It gets no defaults
/// there, and what does not fit is for others to refuse: upstream's storage does as much
/// (`apiextensions-apiserver/pkg/apiserver/customresource_handler.go`, `schemaCoercingConverter`).
pub fn coerced(mut object: Value, version: &Version) -> Result<Value, String> {
    coerce(&mut object, version, false).map_err(|error| error.to_string())?;
    Ok(object)
}

/// Drops what the schema does not know, and answers where that was. Metadata that cannot be read is
/// an error, or dropped as well if it is `lenient`: it was stored before anybody looked at it.
fn coerce(value: &mut Value, version: &Version, lenient: bool) -> Result<Vec<String>, DecodeError> {
    let mut unknown = Vec::new();
    metadata(value, lenient, &mut unknown)?;
    if lenient {
        // Very old objects have none.
        let metadata = &mut value["metadata"];
        if metadata.is_object() && metadata["generation"].is_null() {
            metadata["generation"] = 1.into();
        }
    }
    // Before pruning, which knows metadata too, and tells of it at another place.
    let inside = match version.has_embedded {
        true => embedded::coerce(value, &version.openapi, lenient)
            .map_err(|error| DecodeError::Type(error.to_string()))?,
        false => Vec::new(),
    };
    unknown.extend(prune(value, version.schema.root()));
    unknown.extend(inside);
    Ok(unknown)
}

fn metadata(
    value: &mut Value,
    lenient: bool,
    unknown: &mut Vec<String>,
) -> Result<(), DecodeError> {
    let Some(ty) = builtin().named("meta/v1.ObjectMeta") else { return Ok(()) };
    if let Some(metadata) = value.get_mut("metadata") {
        *metadata = embedded::readable(metadata.take(), ty, lenient, "metadata", unknown)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::custom::testing::definition;
    use serde_json::json;

    const VERSIONS: &str = "
- name: v1
  storage: true
  schema:
    openAPIV3Schema:
      type: object
      properties: {spec: {type: object, properties: {a: {type: string, default: x}, n: {type: string}}}}
- name: v2
  schema:
    openAPIV3Schema:
      type: object
      properties: {spec: {type: object, properties: {a: {type: string}, b: {type: string, default: 'y'}}}}";

    #[test]
    fn what_is_sent_is_pruned_and_defaulted() {
        let definition = definition(VERSIONS, "v1");
        let body = r#"{"apiVersion":"a.io/v1","kind":"Foo","extra":1,"spec":{"n":null,"z":1,"n":"m"},
            "metadata":{"name":"f","labels":{},"what":2}}"#;
        let decoded = decode(body.as_bytes(), Encoding::Json, &definition).unwrap();
        let expected = json!({ "apiVersion": "a.io/v1", "kind": "Foo",
            "spec": { "a": "x", "n": "m" }, "metadata": { "name": "f" } });
        assert_eq!(decoded.value, expected);
        let problems: Vec<String> = decoded.problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                r#"duplicate field "spec.n""#,
                r#"unknown field "metadata.what""#,
                r#"unknown field "extra""#,
                r#"unknown field "spec.z""#,
            ]
        );
        assert!(decode(b"[]", Encoding::Json, &definition).is_err());
        assert!(decode(br#"{"metadata":{"labels":7}}"#, Encoding::Json, &definition).is_err());
    }

    /// A stored object, read in a version.
    fn check(stored: Value, version: &str, expected: Value) {
        let definition = definition(VERSIONS, version);
        let object = read(stored, &definition, &|object, to| Ok(renamed(object, to))).unwrap();
        assert_eq!(object, expected);
    }

    #[test]
    fn what_is_stored_is_defaulted_in_its_own_version_and_pruned_in_the_other() {
        let stored = json!({ "apiVersion": "a.io/v1", "kind": "Foo",
            "metadata": { "name": "f" }, "spec": { "n": "m", "old": 1 } });
        let metadata = json!({ "name": "f", "generation": 1 });
        check(
            stored.clone(),
            "v1",
            json!({ "apiVersion": "a.io/v1", "kind": "Foo", "metadata": metadata,
                "spec": { "a": "x", "n": "m" } }),
        );
        check(
            stored,
            "v2",
            json!({ "apiVersion": "a.io/v2", "kind": "Foo", "metadata": metadata,
                "spec": { "a": "x" } }),
        );
    }

    #[test]
    fn what_a_webhook_converted_is_pruned_and_gets_no_defaults() {
        let definition = definition(VERSIONS, "v2");
        for (spec, expected) in [
            (json!({ "a": "1", "n": "m" }), json!({ "a": "1" })),
            (json!("x"), json!("x")),
            (json!({ "a": 5 }), json!({ "a": 5 })),
        ] {
            let object = json!({ "apiVersion": "a.io/v2", "kind": "Foo", "status": { "a": 1 },
                "metadata": { "name": "f" }, "spec": spec });
            let coerced = coerced(object, &definition.version).unwrap();
            let whole = json!({ "apiVersion": "a.io/v2", "kind": "Foo",
                "metadata": { "name": "f" }, "spec": expected });
            assert_eq!(coerced, whole);
        }
    }

    #[test]
    fn what_a_hook_made_gets_the_defaults_of_what_it_says_it_is_and_keeps_the_rest() {
        let definition = definition(VERSIONS, "v2");
        for (version, kind, expected) in [
            ("a.io/v2", "Foo", json!({ "n": "m", "b": "y" })),
            ("a.io/v1", "Foo", json!({ "n": "m", "a": "x" })),
            ("a.io/v3", "Foo", json!({ "n": "m" })),
            ("a.io/v2", "Bar", json!({ "n": "m" })),
        ] {
            let object = json!({ "apiVersion": version, "kind": kind,
                "metadata": { "name": "f" }, "spec": { "n": "m" } });
            let patched = patched(object, &definition).unwrap();
            assert_eq!(patched["spec"], expected, "{version} {kind}");
        }
        assert!(patched(json!({ "metadata": { "labels": 7 } }), &definition).is_err());
    }

    #[test]
    fn metadata_that_cannot_be_read_is_left_out_of_what_was_stored() {
        check(
            json!({ "apiVersion": "a.io/v1", "kind": "Foo", "spec": { "a": "1" },
                "metadata": { "name": "f", "labels": 7, "generation": 3 } }),
            "v1",
            json!({ "apiVersion": "a.io/v1", "kind": "Foo", "spec": { "a": "1" },
                "metadata": { "name": "f", "generation": 3 } }),
        );
    }
}
