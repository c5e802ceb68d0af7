//! Definitions for tests.
use super::{Definition, define};
use crate::kinds::Resource;
use serde_json::{Value, json};
use std::sync::Arc;

/// The row of a version of a definition that has these versions (YAML; all are served).
pub fn row(versions: &str, version: &str) -> Arc<Resource> {
    let mut versions: Value = serde_saphyr::from_str(versions).expect("YAML");
    for version in versions.as_array_mut().into_iter().flatten() {
        version["served"] = true.into();
    }
    let names =
        json!({ "plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList" });
    let defined = define(&json!({
        "metadata": { "name": "foos.a.io", "uid": "u" },
        "spec": { "group": "a.io", "scope": "Namespaced", "names": names, "versions": versions },
        "status": { "acceptedNames": names } }));
    let rows = defined.expect("a sound definition").rows;
    rows.into_iter().find(|row| row.version == version).expect("a version of it")
}

pub fn definition(versions: &str, version: &str) -> Arc<Definition> {
    row(versions, version).definition.clone().expect("a definition's row")
}
