//! The schema of one version: OpenAPI v3 with Kubernetes' extensions.
//!
//! Not here: compiling the rules in CEL, which crate `cel` does.
use super::super::Field;
use super::{default, shown, structural};
use crate::field::Error;
use serde_json::Value;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const LIST_TYPES: &[&str] = &["atomic", "set", "map"];
const MAP_TYPES: &[&str] = &["atomic", "granular"];
const REASONS: &[&str] =
    &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
/// What the root may say when the status is a part of its own: JSON's names, in Go's order.
const AT_ROOT: &[&str] = &[
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];
const AT_ROOT_SHOWN: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations]";
/// What cannot be used at all.
const FORBIDDEN: &[&str] =
    &["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

/// What holds for the schemas inside of one.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Why there may be no defaults.
    no_defaults: Option<&'static str>,
    inside_metadata: bool,
}

/// The whole schema of a version. `status`: the status is a part of its own.
pub fn whole(schema: &Field<'_, '_>, status: bool) {
    let before = schema.count();
    if status {
        root_with_status(schema);
    }
    if schema.at("nullable").flag() {
        schema.at("nullable").forbidden("nullable cannot be true at the root");
    }
    let unreadable = structural::unreadable(schema.value());
    if unreadable.is_none() {
        let faults = structural::faults(schema);
        let sound = faults.is_empty();
        schema.extend(faults);
        if sound {
            schema.extend(default::faults(schema));
        }
    }
    openapi(schema, Place::default(), true);
    if let Some(fault) = unreadable.filter(|_| schema.count() == before) {
        schema.invalid_as("", fault);
    }
}

/// The status is validated by what its property says: the root must not say more of it. The first
/// field that does, in the order of Go's struct, is told.
fn root_with_status(schema: &Field<'_, '_>) {
    let kind = schema.at("type");
    let given = |name: &&str| schema.value().get(name).is_some();
    let early = ["id", "$schema", "$ref"].iter().any(given);
    if !early && !kind.is_empty() && kind.text() != "object" {
        return kind.invalid("only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled");
    }
    let odd = |name: &String| !AT_ROOT.contains(&name.as_str());
    if schema.map().is_some_and(|fields| fields.keys().any(odd)) {
        schema.invalid_as(
            shown::schema(schema.value()),
            format!("only {AT_ROOT_SHOWN} fields are allowed at the root of the schema if the status subresource is enabled"),
        );
    }
}

fn openapi(schema: &Field<'_, '_>, place: Place, is_root: bool) {
    standard(schema, place);
    if schema.at("uniqueItems").flag() {
        schema.at("uniqueItems").forbidden(
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        );
    }
    let (more, properties) = (schema.at("additionalProperties"), schema.at("properties"));
    if more.exists() && !properties.is_empty() && *more.value() != Value::Bool(true) {
        more.forbidden("additionalProperties and properties are mutual exclusive");
    }
    if more.value().is_object() {
        let reason = "inside additionalProperties applying to object metadata";
        let no_defaults = if place.inside_metadata { Some(reason) } else { place.no_defaults };
        openapi(&more, Place { no_defaults, ..place }, false);
    }
    let embedded = schema.at("x-kubernetes-embedded-resource").flag();
    for (name, property) in properties.entries() {
        let of_object = (is_root || embedded) && matches!(name, "metadata" | "kind" | "apiVersion");
        let no_defaults = match name {
            "metadata" if of_object && is_root => Some("in top-level metadata"),
            "kind" if of_object && is_root => Some("in top-level kind"),
            "apiVersion" if of_object && is_root => Some("in top-level apiVersion"),
            _ => place.no_defaults,
        };
        let inside_metadata = place.inside_metadata || of_object;
        openapi(&property, Place { no_defaults, inside_metadata }, false);
    }
    if schema.at("not").exists() {
        openapi(&schema.at("not"), place, false);
    }
    for list in ["allOf", "oneOf", "anyOf"] {
        schema.at(list).items().for_each(|each| openapi(&each, place, false));
    }
    schema.at("definitions").entries().for_each(|(_, each)| openapi(&each, place, false));
    let items = schema.at("items");
    match items.value() {
        Value::Array(_) => items.items().for_each(|each| openapi(&each, place, false)),
        Value::Object(_) => openapi(&items, place, false),
        _ => {}
    }
    for (_, each) in schema.at("dependencies").entries() {
        if each.value().is_object() {
            openapi(&each, place, false);
        }
    }
    extensions(schema);
    list_items(schema);
    schema.at("x-kubernetes-validations").items().for_each(|each| rule(&each, schema.value()));
}

fn standard(schema: &Field<'_, '_>, place: Place) {
    let kind = schema.at("type");
    if !kind.is_empty() {
        kind.one_of(TYPES);
    }
    if let Some(reason) = place.no_defaults.filter(|_| schema.at("default").exists()) {
        schema.at("default").forbidden(format!("must not be set {reason}"));
    }
    for name in FORBIDDEN {
        let field = schema.at(name);
        let given = match *name {
            "additionalItems" | "$ref" | "dependencies" => field.exists(),
            _ => !field.is_empty(),
        };
        if given {
            field.forbidden(format!("{name} is not supported"));
        }
    }
    if kind.text() == "null" {
        kind.forbidden("type cannot be set to null, use nullable as an alternative");
    }
    let items = schema.at("items");
    if items.value().is_array() && !items.is_empty() {
        items.forbidden("items must be a schema object and not an array");
    }
    let embedded = schema.at("x-kubernetes-embedded-resource");
    if place.inside_metadata && embedded.flag() {
        embedded.forbidden("must not be used inside of resource meta");
    }
}

fn extensions(schema: &Field<'_, '_>) {
    let keeps = schema.at("x-kubernetes-preserve-unknown-fields");
    if keeps.exists() && !keeps.flag() {
        keeps.invalid("must be true or undefined");
    }
    let kind = schema.at("type");
    for (name, wanted, types) in [
        ("x-kubernetes-map-type", "object", MAP_TYPES),
        ("x-kubernetes-list-type", "array", LIST_TYPES),
    ] {
        let field = schema.at(name);
        if !field.exists() {
            continue;
        }
        if kind.text() != wanted {
            let detail = format!("must be {wanted} if {name} is specified");
            if kind.is_empty() { kind.required(detail) } else { kind.invalid(detail) }
        } else if wanted == "array" && field.text() == "set" {
            atomic_items(&schema.at("items"));
        }
        field.one_of(types);
    }
}

/// The items of a set are compared as wholes.
fn atomic_items(items: &Field<'_, '_>) {
    const DETAIL: &str = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list = items.at("x-kubernetes-list-type");
    let map = items.at("x-kubernetes-map-type");
    match items.at("type").text() {
        "array" if list.exists() && list.text() != "atomic" => list.invalid(DETAIL),
        // Upstream shows the list type here too.
        "object" if map.text() != "atomic" => {
            let shown = list.exists().then(|| list.text());
            map.invalid_as(shown, DETAIL);
        }
        _ => {}
    }
}

fn list_items(schema: &Field<'_, '_>) {
    let kind = schema.at("x-kubernetes-list-type");
    let keys = schema.at("x-kubernetes-list-map-keys");
    if !keys.is_empty() && kind.text() != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        if kind.exists() { kind.invalid(detail) } else { kind.required(detail) }
    }
    if kind.text() == "map" {
        map_items(schema, &keys);
    }
    let items = schema.at("items");
    if !matches!(kind.text(), "map" | "set") || !items.value().is_object() {
        return;
    }
    if items.at("nullable").flag() {
        items.at("nullable").forbidden(format!(
            "cannot be nullable when x-kubernetes-list-type is {}",
            kind.text()
        ));
    }
    if kind.text() == "map" {
        let properties = items.at("properties");
        for key in keys.texts() {
            let property = properties.key(key);
            if !property.exists() {
                continue;
            }
            let required = items.at("required").texts().any(|name| name == key);
            if !required && !property.at("default").exists() {
                property.at("default").required("this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property");
            }
            if property.at("nullable").flag() {
                property.at("nullable").forbidden(
                    "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
                );
            }
        }
    }
}

/// A list whose items are found by keys.
fn map_items(schema: &Field<'_, '_>, keys: &Field<'_, '_>) {
    let items = schema.at("items");
    keys.require_for("must not be empty if x-kubernetes-list-type is map");
    match items.value() {
        Value::Null => {
            return items.required("must have a schema if x-kubernetes-list-type is map");
        }
        Value::Array(_) => {
            return items.invalid_as(
                shown::items(items.value()),
                "must only have a single schema if x-kubernetes-list-type is map",
            );
        }
        _ => {}
    }
    let kind = items.at("type");
    if kind.text() != "object" {
        return kind.invalid("must be object if parent array's x-kubernetes-list-type is map");
    }
    let properties = items.at("properties");
    let mut seen = Vec::new();
    for key in keys.texts() {
        let property = properties.key(key);
        if !property.exists() {
            keys.invalid("entries must all be names of item properties");
        } else if matches!(property.at("type").text(), "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            property.at("type").invalid_as(kind.text(), detail);
        }
        if seen.contains(&key) {
            keys.invalid("must not contain duplicate entries");
        }
        seen.push(key);
    }
}

fn rule(rule: &Field<'_, '_>, schema: &Value) {
    let (text, message) = (rule.at("rule"), rule.at("message"));
    let lines = |field: &Field<'_, '_>| field.text().trim().contains(['\n', '\r']);
    let blank = |field: &Field<'_, '_>| field.text().trim().is_empty();
    if blank(&text) {
        text.required("rule is not specified");
    } else if !message.is_empty() && blank(&message) {
        message.invalid("must be non-empty if specified");
    } else if lines(&message) {
        message.invalid("must not contain line breaks");
    } else if lines(&text) && blank(&message) {
        message.required("message must be specified if rule contains line breaks");
    }
    let expression = rule.at("messageExpression");
    if !expression.is_empty() && blank(&expression) {
        expression.required("messageExpression must be non-empty if specified");
    }
    let reason = rule.at("reason");
    if reason.exists() && !REASONS.contains(&reason.text()) {
        reason.push(Error::not_supported(reason.path(), reason.text(), REASONS));
    }
    let path = rule.at("fieldPath");
    if !path.is_empty() && blank(&path) {
        path.invalid("must be non-empty if specified");
    }
    if path.text().contains(['\n', '\r']) {
        path.invalid("must not contain line breaks");
    }
    if !path.is_empty() && super::path::find(path.text(), schema, true).is_err() {
        path.invalid("must be a valid path");
    }
}
