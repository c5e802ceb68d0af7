//! Whether a schema is structural: every value that it can say something about has one type, said
//! once, outside of `allOf`, `anyOf`, `oneOf` and `not`.
use super::super::Field;
use crate::field::ErrorList;
use crate::regexp;
use serde_json::{Value, json};

/// Where in an object a schema is.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Lists of schemas that are alternatives or additions.
const JUNCTORS: [&str; 3] = ["anyOf", "allOf", "oneOf"];

/// Fields that have no place in a nested schema, and what they must be instead.
const NESTED: &[(&str, &str)] = &[
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

/// What of JSON Schema no structural schema can have, and how it is called.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("id", "id"),
    ("$schema", "schema"),
    ("$ref", "$ref"),
    ("patternProperties", "patternProperties"),
    ("dependencies", "dependencies"),
    ("additionalItems", "additionalItems"),
    ("definitions", "definitions"),
];

/// Everything about the schema that is not structural, sorted.
pub fn faults(schema: &Field<'_, '_>) -> ErrorList {
    let mut errors = schema.apart(|schema| {
        invariants(schema, Level::Root);
        complete_validation(schema, schema, schema);
    });
    errors.sort_by_key(ToString::to_string);
    errors
}

/// Why the schema cannot even be read as a structural one.
pub fn unreadable(schema: &Value) -> Option<String> {
    let given = |field: &str| match schema.get(field) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Object(map)) if field != "additionalItems" => !map.is_empty(),
        Some(_) => true,
    };
    if let Some((_, word)) = UNSUPPORTED.iter().find(|(field, _)| given(field)) {
        return Some(format!("OpenAPIV3Schema '{word}' is not supported"));
    }
    let nested = ["not"].into_iter().filter_map(|field| schema.get(field));
    let listed = ["allOf", "anyOf", "oneOf"].into_iter();
    let listed = listed.filter_map(|field| schema.get(field)?.as_array()).flatten();
    if let Some(fault) = nested.chain(listed).find_map(unreadable) {
        return Some(fault);
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let word = "'x-kubernetes-preserve-unknown-fields' must be true or undefined";
        return Some(format!("internal error: {word}"));
    }
    let items = schema.get("items");
    if items.and_then(Value::as_array).is_some_and(|list| !list.is_empty()) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let more = schema.get("additionalProperties").filter(|more| more.is_object());
    items.into_iter().chain(properties.map(|(_, schema)| schema)).chain(more).find_map(unreadable)
}

fn invariants(schema: &Field<'_, '_>, level: Level) {
    let (kind, items) = (schema.at("type"), schema.at("items"));
    let flag = |name: &'static str| schema.at(name).flag();
    let (embedded, keeps) =
        (flag("x-kubernetes-embedded-resource"), flag("x-kubernetes-preserve-unknown-fields"));
    let int_or_string = flag("x-kubernetes-int-or-string");
    if kind.text() == "array" && !items.value().is_object() {
        items.required("must be specified");
    }
    if items.value().is_object() {
        invariants(&items, Level::Item);
    }
    for (_, property) in schema.at("properties").entries() {
        invariants(&property, Level::Field);
    }
    let more = schema.at("additionalProperties");
    if more.exists() && level == Level::Root {
        more.forbidden("must not be used at the root");
    }
    if more.value().is_object() {
        invariants(&more, Level::Field);
    }
    for (name, is) in [
        ("x-kubernetes-preserve-unknown-fields", keeps),
        ("x-kubernetes-embedded-resource", embedded),
    ] {
        if int_or_string && is {
            schema.at(name).invalid("must be false if x-kubernetes-int-or-string is true");
        }
    }
    value_validation(schema, is_int_or_string(schema.value()));
    if embedded && kind.text() != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        if kind.is_empty() { kind.required(detail) } else { kind.invalid(detail) }
    } else if kind.is_empty() && !int_or_string && !keeps {
        kind.required(match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        });
    }
    if embedded && more.exists() {
        more.forbidden("must not be used if x-kubernetes-embedded-resource is set");
    }
    if level == Level::Root && !kind.is_empty() && kind.text() != "object" {
        kind.invalid("must be object at the root");
    }
    type_and_metadata(schema, level, level == Level::Root || embedded);
    let properties = schema.at("properties");
    if embedded && !keeps && properties.is_empty() {
        properties.required("must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields");
    }
}

/// What every object has is not for a schema to say.
fn type_and_metadata(schema: &Field<'_, '_>, level: Level, is_object: bool) {
    let properties = schema.at("properties");
    for name in ["kind", "apiVersion"] {
        let property = properties.key(name);
        let kind = property.at("type");
        if property.exists() && is_object && kind.text() != "string" {
            kind.invalid("must be string");
        }
    }
    let metadata = properties.key("metadata");
    let kind = metadata.at("type");
    if metadata.exists() && is_object && kind.text() != "object" {
        kind.invalid("must be object");
    }
    let known = |name: &str| matches!(name, "name" | "generateName");
    let allowed = |(field, value): (&String, &Value)| match field.as_str() {
        "type" | "default" => true,
        "properties" => value.as_object().is_none_or(|map| map.keys().all(|name| known(name))),
        _ => false,
    };
    if level == Level::Root && !metadata.map().into_iter().flatten().all(allowed) {
        metadata.forbidden("must not specify anything other than name and generateName, but metadata is implicitly specified");
    }
}

fn is_int_or_string(schema: &Value) -> bool {
    schema.get("anyOf") == Some(&json!([{ "type": "integer" }, { "type": "string" }]))
}

/// `skip`: the alternatives are an integer and a string, the one case where they name types.
fn value_validation(schema: &Field<'_, '_>, skip: bool) {
    let first = schema.at("allOf").list().first();
    let skip_first = first.is_some_and(is_int_or_string);
    for name in JUNCTORS {
        for (i, each) in schema.at(name).items().enumerate() {
            if name != "anyOf" || !skip {
                nested(&each, name == "allOf" && i == 0 && skip_first);
            }
        }
    }
    if schema.at("not").exists() {
        nested(&schema.at("not"), false);
    }
    let pattern = schema.at("pattern");
    if let Err(fault) = regexp::check(pattern.text()) {
        pattern.invalid(format!("must be a valid regular expression, but isn't: {fault}"));
    }
}

fn nested(schema: &Field<'_, '_>, skip_any_of: bool) {
    value_validation(schema, skip_any_of);
    if schema.at("items").exists() {
        nested(&schema.at("items"), false);
    }
    for (_, property) in schema.at("properties").entries() {
        nested(&property, false);
    }
    if !schema.at("type").is_empty() {
        schema.at("type").forbidden("must be empty to be structural");
    }
    let more = schema.at("additionalProperties");
    if more.value().is_object() || more.flag() {
        more.forbidden("must be undefined to be structural");
    }
    for (name, detail) in NESTED {
        let field = schema.at(name);
        let pointer =
            matches!(*name, "default" | "x-kubernetes-list-type" | "x-kubernetes-map-type");
        if if pointer { field.exists() } else { !field.is_empty() } {
            field.forbidden(*detail);
        }
    }
    let metadata = schema.at("properties");
    if metadata.key("metadata").exists() {
        metadata.key("metadata").forbidden("must not be specified in a nested context");
    }
}

/// Whatever is said of a value under a junctor, the value has to be specified outside of it.
fn complete_validation(validation: &Field<'_, '_>, schema: &Field<'_, '_>, at: &Field<'_, '_>) {
    if validation.at("not").exists() {
        complete(&validation.at("not"), schema, at);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        validation.at(name).items().for_each(|each| complete(&each, schema, at));
    }
}

fn complete(validation: &Field<'_, '_>, schema: &Field<'_, '_>, at: &Field<'_, '_>) {
    if !schema.exists() {
        return at.required(format!("because it is defined in {}", validation.path()));
    }
    complete_validation(validation, schema, at);
    if validation.at("items").exists() {
        complete(&validation.at("items"), &schema.at("items"), &schema.at("items"));
    }
    let (wanted, given) = (validation.at("properties"), schema.at("properties"));
    for (name, property) in wanted.entries() {
        complete(&property, &given.key(name), &given.key(name));
    }
}
