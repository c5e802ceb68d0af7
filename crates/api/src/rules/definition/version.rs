//! One version of a definition, and what all versions share.
use super::super::Field;
use super::{path, schema};
use crate::codec::given;
use crate::field::{BadValue, Error};
use crate::names;
use crate::quote::is_printable;
use crate::schema::builtin;
use serde_json::Value;

const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] =
    &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const MAX_SELECTABLE: usize = 8;

/// Which parts of the versions are the same in all of them.
pub struct Shared {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

/// A schema of a definition, and where its faults are told.
pub struct Placed<'v> {
    pub path: String,
    /// The first one that it is the schema of.
    pub version: &'v str,
    pub schema: &'v Value,
}

/// Every schema of a definition, once.
pub fn schemas(definition: &Value) -> Vec<Placed<'_>> {
    let versions = definition["spec"]["versions"].as_array().map_or(&[][..], Vec::as_slice);
    let shared = Shared::of(versions).schema;
    let placed = versions.iter().enumerate().filter_map(|(index, version)| {
        let path = match shared {
            true => "spec.validation.openAPIV3Schema".to_owned(),
            false => format!("spec.versions[{index}].schema.openAPIV3Schema"),
        };
        let schema = version.pointer("/schema/openAPIV3Schema")?;
        Some(Placed { path, version: version["name"].as_str().unwrap_or_default(), schema })
    });
    placed.take(if shared { 1 } else { versions.len() }).collect()
}

impl Shared {
    pub fn of(versions: &[Value]) -> Shared {
        let same = |field: &str| {
            let mut all = versions.iter();
            all.next().is_some_and(|first| {
                all.all(|version| {
                    let (one, other) = (version.get(field), first.get(field));
                    one == other || aligned(one, other, field) == aligned(other, one, field)
                })
            })
        };
        Shared {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable: same("selectableFields"),
        }
    }

    /// The shared fields, under JSON's names.
    pub fn fields(&self) -> Vec<&'static str> {
        let all = [
            (self.schema, "schema"),
            (self.subresources, "subresources"),
            (self.columns, "additionalPrinterColumns"),
            (self.selectable, "selectableFields"),
        ];
        all.into_iter().filter_map(|(is, field)| is.then_some(field)).collect()
    }
}

/// A part of a version with what is given empty in another, which makes no difference.
fn aligned(part: Option<&Value>, other: Option<&Value>, field: &str) -> Option<Value> {
    let version = builtin().named("apiextensions/v1.CustomResourceDefinitionVersion");
    match (part, other, version.and_then(|version| version.child(field))) {
        (Some(part), Some(other), Some(ty)) => Some(given::aligned(part, other, ty).into_owned()),
        _ => part.cloned(),
    }
}

/// What is the version's own.
pub fn own(version: &Field<'_, '_>, shared: &Shared) {
    let name = version.at("name");
    let faults = names::dns1035_label(name.text());
    if !faults.is_empty() {
        name.invalid(faults.join(","));
    }
    warning(version);
    if !shared.schema {
        validation(&version.at("schema"), version.at("subresources.status").exists());
    }
    if !shared.subresources {
        scale(&version.at("subresources"));
    }
    if !shared.columns {
        version.at("additionalPrinterColumns").items().for_each(|each| column(&each));
    }
    if !shared.selectable {
        let fields = version.at("selectableFields");
        match version.value().pointer("/schema/openAPIV3Schema").filter(|_| !shared.schema) {
            Some(schema) => selectable(&fields, schema),
            None if !fields.is_empty() => fields.invalid_as(
                "",
                "may only be set when `version.schema.openAPIV3Schema` is not included",
            ),
            None => {}
        }
    }
}

/// What all versions share, reported at the top.
pub fn shared(spec: &Field<'_, '_>, shared: &Shared) {
    let versions = spec.at("versions");
    let Some(first) = versions.items().next() else { return };
    let status = versions.items().any(|version| version.at("subresources.status").exists());
    if shared.schema {
        let place = spec.spelled("validation");
        validation(&first.at("schema").on_path(*place.path()), status);
    }
    if shared.subresources {
        let place = spec.spelled("subresources");
        scale(&first.at("subresources").on_path(*place.path()));
    }
    if shared.columns {
        let place = spec.spelled("additionalPrinterColumns");
        let columns = first.at("additionalPrinterColumns").on_path(*place.path());
        columns.items().for_each(|each| column(&each));
    }
    if shared.selectable {
        let place = spec.spelled("selectableFields");
        let fields = first.at("selectableFields").on_path(*place.path());
        match first.value().pointer("/schema/openAPIV3Schema").filter(|_| shared.schema) {
            Some(schema) => selectable(&fields, schema),
            None if !fields.is_empty() => {
                fields.invalid_as("", "may only be set when validations.schema is included")
            }
            None => {}
        }
    }
}

/// Whether any schema in the version's has a default.
pub fn has_defaults(version: &Value) -> bool {
    fn any(schema: &Value) -> bool {
        let Value::Object(fields) = schema else { return false };
        fields.contains_key("default")
            || fields.iter().any(|(name, value)| match (name.as_str(), value) {
                ("enum" | "example" | "required", _) => false,
                (_, Value::Array(list)) => list.iter().any(any),
                (_, Value::Object(map)) => any(value) || map.values().any(any),
                _ => false,
            })
    }
    version.pointer("/schema/openAPIV3Schema").is_some_and(any)
}

fn validation(validation: &Field<'_, '_>, status: bool) {
    if validation.at("openAPIV3Schema").exists() {
        schema::whole(&validation.at("openAPIV3Schema"), status);
    }
}

fn warning(version: &Field<'_, '_>) {
    let warning = version.at("deprecationWarning");
    if !warning.exists() {
        return;
    }
    if !version.at("deprecated").flag() {
        return warning.invalid("can only be set for deprecated versions");
    }
    if warning.text().len() > 256 {
        warning.invalid("must be <= 256 characters long");
    }
    if warning.text().is_empty() {
        warning.invalid("must not be an empty string");
    }
    let odd = |(_, c): &(usize, char)| *c != ' ' && !is_printable(*c);
    if let Some((i, _)) = warning.text().char_indices().find(odd) {
        // A pointer, which is shown as JSON.
        warning.invalid_as(BadValue::json(warning.value()), format!("must only contain printable UTF-8 characters; non-printable character found at index {i}"));
    }
}

fn scale(subresources: &Field<'_, '_>) {
    let scale = subresources.at("scale");
    if !scale.exists() {
        return;
    }
    for (field, root) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let path = scale.at(field);
        if path.require() && simple(&path) && !path.text().starts_with(&format!("{root}.")) {
            path.invalid(format!("should be a json path under {root}"));
        }
    }
    let selector = scale.at("labelSelectorPath");
    let known = [".spec.", ".status."].iter().any(|root| selector.text().starts_with(root));
    if !selector.is_empty() && simple(&selector) && !known {
        selector.invalid("should be a json path under either .spec or .status");
    }
}

/// A path that begins with a dot.
fn simple(path: &Field<'_, '_>) -> bool {
    let sound = path.text().starts_with('.');
    if !sound {
        path.invalid("must be a simple json path starting with .");
    }
    sound
}

fn column(column: &Field<'_, '_>) {
    column.at("name").require();
    let kind = column.at("type");
    let one_of = |words: &[&str]| format!("must be one of {}", words.join(","));
    if kind.is_empty() {
        kind.required(one_of(COLUMN_TYPES));
    } else if !COLUMN_TYPES.contains(&kind.text()) {
        kind.invalid(one_of(COLUMN_TYPES));
    }
    let format = column.at("format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format.text()) {
        format.invalid(one_of(COLUMN_FORMATS));
    }
    let place = column.spelled("JSONPath");
    let path = column.at("jsonPath").on_path(*place.path());
    if path.require() {
        simple(&path);
    }
}

fn selectable(fields: &Field<'_, '_>, schema: &Value) {
    let mut seen: Vec<Vec<String>> = Vec::new();
    for field in fields.items() {
        let path = field.at("jsonPath");
        if !path.require() {
            continue;
        }
        let (steps, found) = match path::find(path.text(), schema, false) {
            Ok(found) => found,
            Err(fault) => {
                path.invalid(format!("is an invalid path: {fault}"));
                continue;
            }
        };
        if steps.first().is_some_and(|step| step == "metadata") {
            path.invalid("must not point to fields in metadata");
        }
        if !matches!(found["type"].as_str(), Some("string" | "boolean" | "integer")) {
            path.invalid("must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.");
        }
        if seen.contains(&steps) {
            path.duplicate();
        } else {
            seen.push(steps);
        }
    }
    if seen.len() > MAX_SELECTABLE {
        fields.push(Error::too_many(fields.path(), Some(seen.len()), MAX_SELECTABLE));
    }
}
