//! What a custom object is prepared and judged by: its metadata, its version's schema, its scale
//! (`apiextensions-apiserver/pkg/registry/customresource`).
use super::{Definition, Version, columns, lists, ratchet};
use crate::conform;
use crate::field::{BadValue, Error, ErrorList, ErrorType, Path};
use crate::kinds::Resource;
use crate::names;
use crate::patch::golang::printed;
use crate::rules::{Part, Row, Rules, Strategy, Verdict, embedded, metadata, prepare};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

/// The rules of every definition's row; with a status subresource if it has one.
pub fn of(has_status: bool) -> Rules {
    let strategy = Strategy::USUAL.conditional();
    Rules {
        strategy: if has_status { strategy } else { strategy.without_status() },
        prepare_create,
        prepare_update,
        validate_create,
        validate_update,
        columns: &[],
        row,
    }
}

fn definition(resource: &Resource) -> &Definition {
    resource.definition.as_deref().expect("only definitions' rows have these rules")
}

fn row(resource: &Resource, object: &Value, now: Timestamp) -> Result<Row, serde_json::Error> {
    Ok(columns::row(definition(resource), object, now))
}

fn prepare_create(resource: &Resource, object: &mut Value) {
    prepare::create(object, &resource.rules.strategy);
}

fn prepare_update(resource: &Resource, new: &mut Value, old: &Value, part: Part<'_>) {
    if part == Part::Main {
        if definition(resource).version.has_status {
            prepare::put(new, "status", old.get("status"));
        }
        if differs(new, old) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
            new["metadata"]["generation"] = (generation + 1).into();
        }
        return;
    }
    // Of a write to the status nothing else counts, but who owns what.
    let (status, owners) =
        (new.get("status").cloned(), new["metadata"].get("managedFields").cloned());
    *new = old.clone();
    prepare::put(new, "status", status.as_ref());
    prepare::put(&mut new["metadata"], "managedFields", owners.as_ref());
}

/// Whether anything but the metadata differs.
fn differs(new: &Value, old: &Value) -> bool {
    let (Value::Object(new), Value::Object(old)) = (new, old) else { return false };
    let rest = |name: &str| name != "metadata";
    new.iter().filter(|(name, _)| rest(name)).any(|(name, value)| old.get(name) != Some(value))
        || old.keys().filter(|name| rest(name)).any(|name| !new.contains_key(name))
}

fn validate_create(resource: &Resource, object: &Value) -> Result<Verdict, serde_json::Error> {
    let version = &*definition(resource).version;
    let meta = ObjectMeta::deserialize(&object["metadata"])?;
    let mut errors = of_another_kind(object, resource);
    if errors.is_empty() {
        let (path, rule) = (Path::new("metadata"), names::name_is_dns_subdomain);
        errors = metadata::validate(&meta, resource.is_namespaced(), rule, &path);
        errors.extend(conform::faults(object, &version.openapi, &Path::NIL));
        errors.extend(scale_spec(object, version));
        errors.extend(scale_status(object, version));
    }
    errors.extend(inside(object, version));
    errors.extend(lists::faults(object, version));
    Ok(Verdict { errors, warnings: finalizer_warnings(&meta, None) })
}

fn validate_update(
    resource: &Resource,
    new: &Value,
    old: &Value,
    part: Part<'_>,
) -> Result<Verdict, serde_json::Error> {
    let version = &*definition(resource).version;
    let meta = ObjectMeta::deserialize(&new["metadata"])?;
    let before = ObjectMeta::deserialize(&old["metadata"])?;
    let path = Path::new("metadata");
    let rule = metadata::path_segment;
    let mut errors = of_another_kind(new, resource);
    if errors.is_empty() {
        errors = metadata::validate(&meta, resource.is_namespaced(), rule, &path);
        errors.extend(metadata::validate_update(&meta, &before, &path));
        if part == Part::Main {
            errors.extend(ratchet::faults(new, old, &version.openapi));
            errors.extend(scale_spec(new, version));
        } else if let Some(status) = new.get("status") {
            let schema = &version.openapi["properties"]["status"];
            if schema.is_object() {
                let path = Path::new("status");
                errors.extend(ratchet::faults_at(status, &old["status"], schema, &path));
            }
        }
        errors.extend(scale_status(new, version));
    }
    let mut warnings = Vec::new();
    if part == Part::Main {
        errors.extend(inside(new, version));
        warnings = finalizer_warnings(&meta, Some(&before));
    }
    // What was twice in a list before may stay so.
    if lists::faults(old, version).is_empty() {
        errors.extend(lists::faults(new, version));
    }
    Ok(Verdict { errors, warnings })
}

/// An object is of its path's kind. Of one that is not nothing is asked but what needs no schema to be
/// told apart, as upstream does.
fn of_another_kind(object: &Value, resource: &Resource) -> ErrorList {
    let api_version = resource.api_version();
    let mut errors = ErrorList::new();
    for (field, wanted) in [("kind", resource.kind), ("apiVersion", &api_version)] {
        let found = object[field].as_str().unwrap_or_default();
        if found != wanted {
            let detail = format!("must be {wanted}");
            errors.push(Error::invalid(&Path::new(field), found, detail));
        }
    }
    errors
}

/// What is wrong with the objects inside of an object.
fn inside(object: &Value, version: &Version) -> ErrorList {
    match version.has_embedded {
        true => embedded::faults(object, &version.openapi),
        false => ErrorList::new(),
    }
}

/// Whether an object is too faulty to be held against its definition's own rules
/// (`x-kubernetes-validations`), and what is said instead.
pub fn unchecked(errors: &[Error]) -> Option<Error> {
    let blocks = |error: &Error| {
        matches!(
            error.error_type,
            ErrorType::NotSupported
                | ErrorType::Required
                | ErrorType::TooLong
                | ErrorType::TooMany
                | ErrorType::TypeInvalid
        )
    };
    let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    let error = || Error::invalid(&Path::NIL, BadValue::null(), detail);
    errors.iter().any(blocks).then(error)
}

/// A finalizer should name who set it.
fn finalizer_warnings(new: &ObjectMeta, old: Option<&ObjectMeta>) -> Vec<String> {
    let all = |meta: &ObjectMeta| meta.finalizers.clone().unwrap_or_default();
    let before = old.map(all).unwrap_or_default();
    let mut added: Vec<String> =
        all(new).into_iter().filter(|name| !before.contains(name)).collect();
    added.sort_unstable();
    added.dedup();
    let mut warnings = Vec::new();
    for name in added {
        let warn = |text: &str| format!("metadata.finalizers: {name:?}: {text}");
        warnings.extend(names::qualified_name(&name).iter().map(|fault| warn(fault)));
        let standard = ["orphan", "foregroundDeletion", "kubernetes"].contains(&name.as_str());
        if name.contains('/') || standard {
            continue;
        }
        warnings.push(warn(match name.contains('.') {
            true => "prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers",
            false => "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers",
        }));
    }
    warnings
}

/// The number or text that a scale's path leads to.
pub fn scale_of_path<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    nested(object, path).ok().flatten()
}

/// The same; or what is in the way, in the words of upstream's `unstructured.NestedFieldNoCopy`.
fn nested<'v>(object: &'v Value, path: &str) -> Result<Option<&'v Value>, String> {
    let path = path.strip_prefix('.').unwrap_or(path);
    let (mut value, mut way) = (object, String::new());
    for name in path.split('.') {
        way = format!("{way}.{name}");
        value = match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(name) {
                Some(field) => field,
                None => return Ok(None),
            },
            other => return Err(unexpected(&way, other, "map[string]interface{}")),
        };
    }
    Ok(Some(value))
}

fn scale_spec(object: &Value, version: &Version) -> ErrorList {
    let Some(scale) = &version.scale else { return ErrorList::new() };
    replicas(object, &scale.spec_replicas)
}

fn scale_status(object: &Value, version: &Version) -> ErrorList {
    let Some(scale) = &version.scale else { return ErrorList::new() };
    let mut errors = replicas(object, &scale.status_replicas);
    if !scale.selector.is_empty() {
        let fault = match nested(object, &scale.selector) {
            Ok(None | Some(Value::String(_))) => None,
            Ok(Some(other)) => Some(unexpected(&scale.selector, other, "string")),
            Err(fault) => Some(fault),
        };
        let field = Path::new(&scale.selector);
        errors.extend(fault.map(|detail| Error::invalid(&field, "", detail)));
    }
    errors
}

fn replicas(object: &Value, path: &str) -> ErrorList {
    let field = Path::new(path);
    let error = match nested(object, path) {
        Ok(None) => return ErrorList::new(),
        Err(fault) => Error::invalid(&field, 0, fault),
        Ok(Some(value)) => match value.as_i64() {
            None => Error::invalid(&field, 0, unexpected(path, value, "int64")),
            Some(number) if number < 0 => {
                Error::invalid(&field, number, "should be a non-negative integer")
            }
            Some(number) if number > i64::from(i32::MAX) => {
                let detail = format!("should be less than or equal to {}", i32::MAX);
                Error::invalid(&field, number, detail)
            }
            Some(_) => return ErrorList::new(),
        },
    };
    vec![error]
}

/// In Go's words.
fn unexpected(path: &str, value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Null => "<nil>",
    };
    let path = path.strip_prefix('.').unwrap_or(path);
    let shown = printed(value);
    format!(".{path} accessor error: {shown} is of the type {found}, expected {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::custom::testing;
    use serde_json::json;
    use std::sync::Arc;

    const VERSIONS: &str = "
- name: v1
  storage: true
  subresources: {status: {}, scale: {specReplicasPath: .spec.n, statusReplicasPath: .status.n}}
  schema:
    openAPIV3Schema:
      type: object
      properties:
        spec:
          type: object
          properties:
            n: {type: integer}
            set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
            map:
              type: array
              x-kubernetes-list-type: map
              x-kubernetes-list-map-keys: [k]
              items: {type: object, required: [k], properties: {k: {type: string}, v: {type: string}}}
        status: {type: object, properties: {n: {type: integer}}}";

    fn row() -> Arc<Resource> {
        testing::row(VERSIONS, "v1")
    }

    fn object(spec: Value) -> Value {
        json!({ "apiVersion": "a.io/v1", "kind": "Foo", "spec": spec,
            "metadata": { "name": "f", "namespace": "default", "generation": 1, "resourceVersion": "1" } })
    }

    /// What is said of an object that comes to be, or that is changed from another.
    fn said(new: &Value, old: Option<&Value>, part: Part<'_>) -> String {
        let row = row();
        let verdict = match old {
            None => validate_create(&row, new),
            Some(old) => validate_update(&row, new, old, part),
        };
        let verdict = verdict.expect("it can be read");
        let errors = verdict.errors.iter().map(ToString::to_string);
        errors.chain(verdict.warnings).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_schema_the_lists_and_the_scale_are_asked() {
        let new = object(json!({ "n": -1, "set": ["a", "b", "a", "a"],
            "map": [{ "k": "1", "v": "x" }, { "k": "2" }, { "k": "1", "v": "y" }] }));
        assert_eq!(
            said(&new, None, Part::Main),
            [
                ".spec.n: Invalid value: -1: should be a non-negative integer",
                r#"spec.map[2]: Duplicate value: {"k":"1"}"#,
                r#"spec.set[2]: Duplicate value: "a""#,
            ]
            .join("\n")
        );
        // What was twice before may stay so.
        let old = object(json!({ "set": ["a", "a"] }));
        assert_eq!(said(&old, Some(&old), Part::Main), "");
    }

    #[test]
    fn what_is_in_the_way_of_a_scale_is_told_of() {
        let mut new = object(json!([1, "a"]));
        new["status"] = "x".into();
        assert_eq!(
            said(&new, None, Part::Main),
            [
                "spec: Invalid value: \"array\": spec in body must be of type object: \"array\"",
                "status: Invalid value: \"string\": status in body must be of type object: \"string\"",
                ".spec.n: Invalid value: 0: .spec.n accessor error: [1 a] is of the type []interface {}, expected map[string]interface{}",
                ".status.n: Invalid value: 0: .status.n accessor error: x is of the type string, expected map[string]interface{}",
            ]
            .join("\n")
        );
    }

    #[test]
    fn an_object_is_of_its_paths_kind() {
        let mut new = object(json!({ "n": -1 }));
        new["kind"] = "Bar".into();
        let text = "kind: Invalid value: \"Bar\": must be Foo";
        assert_eq!(said(&new, None, Part::Main), text);
        assert_eq!(said(&new, Some(&object(json!({}))), Part::Main), text);
    }

    #[test]
    fn a_finalizer_should_say_whose_it_is() {
        let mut new = object(json!({}));
        new["metadata"]["finalizers"] = json!(["orphan", "a.io/x", "a.io", "x"]);
        let text = "prefer a domain-qualified finalizer name";
        let end = "to avoid accidental conflicts with other finalizer writers";
        let first = format!(r#"metadata.finalizers: "a.io": {text} including a path (/) {end}"#);
        let second = format!(r#"metadata.finalizers: "x": {text} {end}"#);
        assert_eq!(said(&new, None, Part::Main), format!("{first}\n{second}"));
        assert_eq!(said(&new.clone(), Some(&new), Part::Main), "");
    }

    #[test]
    fn each_part_is_written_through_its_own_path() {
        let row = row();
        let mut old = object(json!({ "n": 1 }));
        old["status"] = json!({ "n": 1 });
        let mut new = object(json!({ "n": 2 }));
        new["status"] = json!({ "n": 2 });
        let mut main = new.clone();
        prepare_update(&row, &mut main, &old, Part::Main);
        assert_eq!((&main["spec"]["n"], &main["status"]["n"]), (&json!(2), &json!(1)));
        assert_eq!(main["metadata"]["generation"], 2);
        let mut status = new.clone();
        status["metadata"]["labels"] = json!({ "a": "b" });
        prepare_update(&row, &mut status, &old, Part::Sub("status"));
        assert_eq!((&status["spec"]["n"], &status["status"]["n"]), (&json!(1), &json!(2)));
        assert_eq!(status["metadata"], old["metadata"]);
        prepare_create(&row, &mut new);
        assert!(new.get("status").is_none());
    }
}
