//! What nobody checks: a schema may have it, and its author is told.
use crate::conform;
use serde_json::Value;
use std::collections::BTreeSet;

/// A word about each format of a definition's schemas that is not known, and about each type whose values can
/// be no members of a set, once.
pub fn warnings(definition: &Value) -> Vec<String> {
    let (mut warnings, mut sets) = (Vec::new(), BTreeSet::new());
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    for schema in versions.filter_map(|version| version.pointer("/schema/openAPIV3Schema")) {
        collect(schema, &mut warnings);
        collect_sets(schema, &mut sets);
    }
    let said = |ty: &str| {
        format!(
            "x-kubernetes-list-type: set for items of type {ty:?} is not supported by server-side apply or CEL \
             validation rules"
        )
    };
    warnings.extend(sets.into_iter().map(said));
    warnings
}

fn collect_sets<'s>(schema: &'s Value, types: &mut BTreeSet<&'s str>) {
    let items = schema["items"]["type"].as_str();
    if schema["x-kubernetes-list-type"] == "set" {
        types.extend(items.filter(|ty| matches!(*ty, "object" | "array")));
    }
    each(schema, &mut |inner| collect_sets(inner, types));
}

fn collect(schema: &Value, warnings: &mut Vec<String>) {
    let format = schema["format"].as_str().unwrap_or_default();
    if !format.is_empty() && !is_known(format, schema["type"].as_str().unwrap_or_default()) {
        let warning = format!("unrecognized format {}", crate::quote::Quoted(format));
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    each(schema, &mut |inner| collect(inner, warnings));
}

fn is_known(format: &str, kind: &str) -> bool {
    match kind {
        "" | "string" => conform::is_known(format),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// The schemas that one has inside.
fn each<'s>(schema: &'s Value, visit: &mut dyn FnMut(&'s Value)) {
    for field in ["items", "allOf", "anyOf", "oneOf", "not"] {
        match &schema[field] {
            Value::Array(list) => list.iter().for_each(&mut *visit),
            inner @ Value::Object(_) => visit(inner),
            _ => {}
        }
    }
    for field in ["properties", "patternProperties", "definitions", "dependencies"] {
        let inner = schema[field].as_object().into_iter().flatten().map(|(_, inner)| inner);
        inner.filter(|inner| inner.is_object()).for_each(&mut *visit);
    }
    for field in ["additionalProperties", "additionalItems"] {
        if schema[field].is_object() {
            visit(&schema[field]);
        }
    }
}
