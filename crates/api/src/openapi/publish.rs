//! The schema of a definition as it is published
//! (`apiextensions-apiserver/pkg/controller/openapi/{builder,v2}`).
//!
//! What is in it beside the definition's own words is what every object has. OpenAPI v2 cannot say
//! everything that a definition can: null, alternatives and unknown fields are left out there, because
//! older clients take what is said for all there is.
use super::Dialect;
use super::operations::model_name;
use super::schemas::Schemas;
use crate::custom::Definition;
use crate::kinds::Resource;
use crate::schema::builtin;
use serde_json::{Map, Value, json};

/// Adds the schemas of the kind and of its list, if a definition brought them.
pub(super) fn add(row: &Resource, dialect: Dialect, schemas: &mut Schemas<'static>) {
    let Some(definition) = &row.definition else { return };
    let name = |kind: &str| model_name(row.group, row.version, kind);
    let shared = Shared::new(dialect, schemas);
    let object = object(row, definition, &shared);
    schemas.add(name(row.kind), object);
    schemas.add(name(row.list_kind), list(row, definition, &shared));
}

/// What every object has.
struct Shared {
    dialect: Dialect,
    object_meta: Value,
    list_meta: Value,
    api_version: Value,
    kind: Value,
}

impl Shared {
    fn new(dialect: Dialect, schemas: &mut Schemas<'static>) -> Shared {
        const POD: &str = "io.k8s.api.core.v1.Pod";
        const OBJECT_META: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
        const LIST_META: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
        let mut meta = |kind: &str, description: &str| {
            let ty = builtin().named(&format!("meta/v1.{kind}"));
            let reference = ty.map_or_else(|| json!({}), |ty| schemas.reference(ty));
            described_reference(reference, description, dialect)
        };
        let (object_meta, list_meta) =
            (meta("ObjectMeta", OBJECT_META), meta("ListMeta", LIST_META));
        let text = |field: &str| {
            let mut schema = json!({ "type": "string" });
            if let Some(description) = schemas.descriptions().of_field(POD, field) {
                schema["description"] = description.into();
            }
            schema
        };
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        Shared { dialect, object_meta, list_meta, api_version, kind }
    }

    fn put_into(&self, schema: &mut Value) {
        schema["properties"]["apiVersion"] = self.api_version.clone();
        schema["properties"]["kind"] = self.kind.clone();
        schema["properties"]["metadata"] = self.object_meta.clone();
    }
}

/// Beside a reference nothing else counts, in v3.
fn described_reference(reference: Value, description: &str, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V2 => {
            let mut reference = reference;
            reference["description"] = description.into();
            reference
        }
        Dialect::V3 => json!({ "allOf": [reference], "description": description }),
    }
}

fn object(row: &Resource, definition: &Definition, shared: &Shared) -> Value {
    let given = &definition.version.openapi;
    let keeps_unknown = given["x-kubernetes-preserve-unknown-fields"] == true;
    let mut schema = match shared.dialect {
        // Whatever is said would be taken for all there is.
        Dialect::V2 if keeps_unknown => json!({ "type": "object" }),
        dialect => {
            let mut schema = published(given, dialect);
            shared.put_into(&mut schema);
            embed(&mut schema, shared, true);
            schema
        }
    };
    finish(&mut schema, row, row.kind, definition);
    schema
}

fn list(row: &Resource, definition: &Definition, shared: &Shared) -> Value {
    let item = shared.dialect.reference(&model_name(row.group, row.version, row.kind));
    let mut schema = json!({
        "description": format!("{} is a list of {}", row.list_kind, row.kind),
        "properties": {
            "apiVersion": shared.api_version,
            "items": {
                "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", row.plural),
                "items": item,
                "type": "array",
            },
            "kind": shared.kind,
            "metadata": shared.list_meta,
        },
        "required": ["items"],
        "type": "object",
    });
    finish(&mut schema, row, row.list_kind, definition);
    schema
}

fn finish(schema: &mut Value, row: &Resource, kind: &str, definition: &Definition) {
    schema["x-kubernetes-group-version-kind"] =
        json!([{ "group": row.group, "kind": kind, "version": row.version }]);
    let fields = &definition.version.selectable;
    if !fields.is_empty() {
        let fields = fields.iter().map(|field| json!({ "fieldPath": field.label }));
        schema["x-kubernetes-selectable-fields"] = fields.collect();
    }
}

/// An object within an object has type and metadata, too.
fn embed(schema: &mut Value, shared: &Shared, is_root: bool) {
    each_below(schema, |inner| embed(inner, shared, false));
    let is = |schema: &Value, word: &str| schema.get(word).is_some_and(|value| *value == true);
    let open = is(schema, "x-kubernetes-preserve-unknown-fields") && shared.dialect == Dialect::V2;
    if is_root || open || !is(schema, "x-kubernetes-embedded-resource") {
        return;
    }
    shared.put_into(schema);
    let mut required: Vec<Value> = schema["required"].as_array().cloned().unwrap_or_default();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known == name) {
            required.push(name.into());
        }
    }
    schema["required"] = required.into();
}

/// Fields, elements and entries.
fn each_below(schema: &mut Value, mut visit: impl FnMut(&mut Value)) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(&mut visit);
    }
    for below in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(below).filter(|inner| inner.is_object()) {
            visit(inner);
        }
    }
}

/// What a definition says, as far as the dialect can say it.
fn published(given: &Value, dialect: Dialect) -> Value {
    let Value::Object(fields) = given else { return given.clone() };
    let mut schema = Map::new();
    for (name, value) in fields {
        let value = match name.as_str() {
            "items" => published(value, dialect),
            "additionalProperties" if value.is_object() => published(value, dialect),
            "properties" => each(value, |property| published(property, dialect)),
            // What is false or empty is as good as not said.
            _ if *value == false || value.is_null() || *value == json!([]) => continue,
            _ => value.clone(),
        };
        schema.insert(name.clone(), value);
    }
    if fields.get("x-kubernetes-int-or-string").is_some_and(|is| *is == true)
        && !schema.contains_key("anyOf")
    {
        let either = json!([{ "type": "integer" }, { "type": "string" }]);
        schema.insert("anyOf".into(), either);
    }
    if dialect == Dialect::V2 {
        simplify(&mut schema, given);
    }
    schema.into()
}

fn each(properties: &Value, publish: impl Fn(&Value) -> Value) -> Value {
    let Value::Object(properties) = properties else { return properties.clone() };
    let all = properties.iter().map(|(name, property)| (name.clone(), publish(property)));
    all.collect::<Map<_, _>>().into()
}

/// Takes away what OpenAPI v2 has no words for, and what older clients stumble over.
fn simplify(schema: &mut Map<String, Value>, given: &Value) {
    for junctor in ["allOf", "anyOf", "oneOf", "not"] {
        schema.remove(junctor);
    }
    let is = |schema: &Value, word: &str| schema.get(word).is_some_and(|value| *value == true);
    let (nullable, open) =
        (is(given, "nullable"), is(given, "x-kubernetes-preserve-unknown-fields"));
    if nullable {
        schema.remove("type");
        schema.remove("nullable");
    }
    if nullable || open {
        schema.remove("items");
        schema.remove("properties");
    }
    let has_type =
        |schema: &Map<String, Value>, word: &str| schema.get("type").is_some_and(|ty| ty == word);
    if !schema.contains_key("items") && has_type(schema, "array") {
        schema.remove("type");
    }
    if open && has_type(schema, "object") {
        schema.remove("type");
    }
    let properties = given["properties"].as_object();
    let may_be_null = |name: &Value| {
        let property = properties.and_then(|all| all.get(name.as_str()?));
        property.is_some_and(|property| is(property, "nullable"))
    };
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        if schema_keeps_required(given) {
            required.retain(|name| !may_be_null(name));
        } else {
            required.clear();
        }
        if required.is_empty() {
            schema.remove("required");
        }
    }
}

/// Entries that may be null make nothing required.
fn schema_keeps_required(given: &Value) -> bool {
    !given["additionalProperties"].get("nullable").is_some_and(|nullable| *nullable == true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(schema: Value, dialect: Dialect, expected: Expect) {
        expected.assert_eq(&published(&schema, dialect).to_string());
    }

    #[test]
    fn the_older_dialect_says_less() {
        let schema = json!({ "type": "object", "required": ["a", "n"], "properties": {
            "a": { "type": "string", "minLength": 1, "anyOf": [{ "pattern": "x" }] },
            "n": { "type": "object", "nullable": true, "properties": { "x": { "type": "string" } } },
            "open": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "port": { "x-kubernetes-int-or-string": true },
            "list": { "type": "array", "nullable": false, "items": { "type": "string" } } } });
        check(
            schema.clone(),
            Dialect::V2,
            expect![[
                r#"{"properties":{"a":{"minLength":1,"type":"string"},"list":{"items":{"type":"string"},"type":"array"},"n":{},"open":{"x-kubernetes-preserve-unknown-fields":true},"port":{"x-kubernetes-int-or-string":true}},"required":["a"],"type":"object"}"#
            ]],
        );
        check(
            schema,
            Dialect::V3,
            expect![[
                r#"{"properties":{"a":{"anyOf":[{"pattern":"x"}],"minLength":1,"type":"string"},"list":{"items":{"type":"string"},"type":"array"},"n":{"nullable":true,"properties":{"x":{"type":"string"}},"type":"object"},"open":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"port":{"anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true}},"required":["a","n"],"type":"object"}"#
            ]],
        );
    }
}
