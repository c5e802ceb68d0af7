//! A definition's schemas and versions as upstream's messages show them: under Go's names, with
//! nothing left out.
use crate::field::BadValue;
use crate::quote::go_json;
use serde_json::Value;

/// What a field is, where that changes how it is shown.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    Schema,
    Schemas,
    SchemaMap,
    SchemaOrBool,
    SchemaOrList,
    Dependencies,
    Rows(Rows),
    Row(Rows),
}

/// Go's name, JSON's name, what stands for absence, what it is.
type Rows = &'static [(&'static str, &'static str, &'static str, Form)];

const SCHEMA: Rows = &[
    ("ID", "id", "\"\"", Form::Plain),
    ("Schema", "$schema", "\"\"", Form::Plain),
    ("Ref", "$ref", "null", Form::Plain),
    ("Description", "description", "\"\"", Form::Plain),
    ("Type", "type", "\"\"", Form::Plain),
    ("Nullable", "nullable", "false", Form::Plain),
    ("Format", "format", "\"\"", Form::Plain),
    ("Title", "title", "\"\"", Form::Plain),
    ("Default", "default", "null", Form::Plain),
    ("Maximum", "maximum", "null", Form::Plain),
    ("ExclusiveMaximum", "exclusiveMaximum", "false", Form::Plain),
    ("Minimum", "minimum", "null", Form::Plain),
    ("ExclusiveMinimum", "exclusiveMinimum", "false", Form::Plain),
    ("MaxLength", "maxLength", "null", Form::Plain),
    ("MinLength", "minLength", "null", Form::Plain),
    ("Pattern", "pattern", "\"\"", Form::Plain),
    ("MaxItems", "maxItems", "null", Form::Plain),
    ("MinItems", "minItems", "null", Form::Plain),
    ("UniqueItems", "uniqueItems", "false", Form::Plain),
    ("MultipleOf", "multipleOf", "null", Form::Plain),
    ("Enum", "enum", "null", Form::Plain),
    ("MaxProperties", "maxProperties", "null", Form::Plain),
    ("MinProperties", "minProperties", "null", Form::Plain),
    ("Required", "required", "null", Form::Plain),
    ("Items", "items", "null", Form::SchemaOrList),
    ("AllOf", "allOf", "null", Form::Schemas),
    ("OneOf", "oneOf", "null", Form::Schemas),
    ("AnyOf", "anyOf", "null", Form::Schemas),
    ("Not", "not", "null", Form::Schema),
    ("Properties", "properties", "null", Form::SchemaMap),
    ("AdditionalProperties", "additionalProperties", "null", Form::SchemaOrBool),
    ("PatternProperties", "patternProperties", "null", Form::SchemaMap),
    ("Dependencies", "dependencies", "null", Form::Dependencies),
    ("AdditionalItems", "additionalItems", "null", Form::SchemaOrBool),
    ("Definitions", "definitions", "null", Form::SchemaMap),
    ("ExternalDocs", "externalDocs", "null", Form::Row(DOCS)),
    ("Example", "example", "null", Form::Plain),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", "null", Form::Plain),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", "false", Form::Plain),
    ("XIntOrString", "x-kubernetes-int-or-string", "false", Form::Plain),
    ("XListMapKeys", "x-kubernetes-list-map-keys", "null", Form::Plain),
    ("XListType", "x-kubernetes-list-type", "null", Form::Plain),
    ("XMapType", "x-kubernetes-map-type", "null", Form::Plain),
    ("XValidations", "x-kubernetes-validations", "null", Form::Rows(RULE)),
];
const DOCS: Rows =
    &[("Description", "description", "\"\"", Form::Plain), ("URL", "url", "\"\"", Form::Plain)];
const RULE: Rows = &[
    ("Rule", "rule", "\"\"", Form::Plain),
    ("Message", "message", "\"\"", Form::Plain),
    ("MessageExpression", "messageExpression", "\"\"", Form::Plain),
    ("Reason", "reason", "null", Form::Plain),
    ("FieldPath", "fieldPath", "\"\"", Form::Plain),
    ("OptionalOldSelf", "optionalOldSelf", "null", Form::Plain),
];
const VERSION: Rows = &[
    ("Name", "name", "\"\"", Form::Plain),
    ("Served", "served", "false", Form::Plain),
    ("Storage", "storage", "false", Form::Plain),
    ("Deprecated", "deprecated", "false", Form::Plain),
    ("DeprecationWarning", "deprecationWarning", "null", Form::Plain),
    ("Schema", "schema", "null", Form::Row(VALIDATION)),
    ("Subresources", "subresources", "null", Form::Row(SUBRESOURCES)),
    ("AdditionalPrinterColumns", "additionalPrinterColumns", "null", Form::Rows(COLUMN)),
    ("SelectableFields", "selectableFields", "null", Form::Rows(SELECTABLE)),
];
const VALIDATION: Rows = &[("OpenAPIV3Schema", "openAPIV3Schema", "null", Form::Schema)];
const SUBRESOURCES: Rows =
    &[("Status", "status", "null", Form::Plain), ("Scale", "scale", "null", Form::Row(SCALE))];
const SCALE: Rows = &[
    ("SpecReplicasPath", "specReplicasPath", "\"\"", Form::Plain),
    ("StatusReplicasPath", "statusReplicasPath", "\"\"", Form::Plain),
    ("LabelSelectorPath", "labelSelectorPath", "null", Form::Plain),
];
const COLUMN: Rows = &[
    ("Name", "name", "\"\"", Form::Plain),
    ("Type", "type", "\"\"", Form::Plain),
    ("Format", "format", "\"\"", Form::Plain),
    ("Description", "description", "\"\"", Form::Plain),
    ("Priority", "priority", "0", Form::Plain),
    ("JSONPath", "jsonPath", "\"\"", Form::Plain),
];
const SELECTABLE: Rows = &[("JSONPath", "jsonPath", "\"\"", Form::Plain)];

/// A schema.
pub fn schema(schema: &Value) -> BadValue {
    BadValue::verbatim(row(schema, SCHEMA))
}

/// A rule in CEL.
pub fn rule_shown(rule: &Value) -> BadValue {
    BadValue::verbatim(row(rule, RULE))
}

/// The schema of a list's items, or several.
pub fn items(items: &Value) -> BadValue {
    BadValue::verbatim(shown(items, Form::SchemaOrList))
}

/// All versions, without what they have in common: that is the definition's own.
pub fn versions(versions: &Value, common: &[&str]) -> BadValue {
    let Value::Array(list) = versions else { return BadValue::null() };
    let bare = |version: &Value| {
        let mut version = version.clone();
        if let Value::Object(fields) = &mut version {
            common.iter().for_each(|field| drop(fields.remove(*field)));
        }
        row(&version, VERSION)
    };
    BadValue::verbatim(joined(list.iter().map(bare), '[', ']'))
}

fn row(value: &Value, rows: Rows) -> String {
    let part = |(go, json, zero, form): &(&str, &str, &str, Form)| {
        let shown = value.get(json).map_or_else(|| (*zero).to_owned(), |value| shown(value, *form));
        format!("\"{go}\":{shown}")
    };
    joined(rows.iter().map(part), '{', '}')
}

fn shown(value: &Value, form: Form) -> String {
    let text = || go_json(value).unwrap_or_default();
    match (form, value) {
        (Form::Schema, _) => row(value, SCHEMA),
        (Form::Schemas, Value::Array(list)) => {
            joined(list.iter().map(|schema| row(schema, SCHEMA)), '[', ']')
        }
        (Form::SchemaMap, Value::Object(map)) => entries(map, |schema| row(schema, SCHEMA)),
        (Form::SchemaOrBool, Value::Bool(allows)) => {
            format!("{{\"Allows\":{allows},\"Schema\":null}}")
        }
        (Form::SchemaOrBool, _) => format!("{{\"Allows\":true,\"Schema\":{}}}", row(value, SCHEMA)),
        (Form::SchemaOrList, Value::Array(_)) => {
            format!("{{\"Schema\":null,\"JSONSchemas\":{}}}", shown(value, Form::Schemas))
        }
        (Form::SchemaOrList, _) => {
            format!("{{\"Schema\":{},\"JSONSchemas\":null}}", row(value, SCHEMA))
        }
        (Form::Dependencies, Value::Object(map)) => entries(map, |dependency| match dependency {
            Value::Array(_) => {
                format!("{{\"Schema\":null,\"Property\":{}}}", shown(dependency, Form::Plain))
            }
            Value::Object(_) => {
                format!("{{\"Schema\":{},\"Property\":null}}", row(dependency, SCHEMA))
            }
            _ => "{\"Schema\":null,\"Property\":null}".to_owned(),
        }),
        (Form::Rows(rows), Value::Array(list)) => {
            joined(list.iter().map(|value| row(value, rows)), '[', ']')
        }
        (Form::Row(rows), Value::Object(_)) => row(value, rows),
        _ => text(),
    }
}

fn entries(
    map: &serde_json::Map<String, Value>,
    mut shown: impl FnMut(&Value) -> String,
) -> String {
    let mut sorted: Vec<_> = map.iter().collect();
    sorted.sort_by_key(|(key, _)| *key);
    let entry = |(key, value): (&String, &Value)| {
        format!("{}:{}", go_json(key).unwrap_or_default(), shown(value))
    };
    joined(sorted.into_iter().map(entry), '{', '}')
}

fn joined(parts: impl Iterator<Item = String>, open: char, close: char) -> String {
    format!("{open}{}{close}", parts.collect::<Vec<_>>().join(","))
}
