//! Types as OpenAPI schemas.
use super::Dialect;
use super::descriptions::Descriptions;
use super::operations::Model;
use crate::kinds;
use crate::schema::{Field, ListKind, Named, Omit, Scalar, Schema, Struct, Type, TypeRef};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Collects the schemas that documents refer to, and all that those refer to in turn.
pub(super) struct Schemas<'s> {
    dialect: Dialect,
    schema: &'s Schema,
    descriptions: Descriptions,
    /// Name → schema; what was asked for and is not made yet waits in `pending`.
    made: BTreeMap<String, Value>,
    pending: Vec<(String, Pending<'s>)>,
}

enum Pending<'s> {
    Type(TypeRef<'s>),
    Scalar(Scalar),
}

/// Scalars that OpenAPI knows by name.
const NAMED_SCALARS: &[(Scalar, &str)] = &[
    (Scalar::Quantity, "io.k8s.apimachinery.pkg.api.resource.Quantity"),
    (Scalar::Time, "io.k8s.apimachinery.pkg.apis.meta.v1.Time"),
    (Scalar::MicroTime, "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"),
    (Scalar::Duration, "io.k8s.apimachinery.pkg.apis.meta.v1.Duration"),
    (Scalar::IntOrString, "io.k8s.apimachinery.pkg.util.intstr.IntOrString"),
    (Scalar::RawExtension, "io.k8s.apimachinery.pkg.runtime.RawExtension"),
    (Scalar::FieldsV1, "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"),
    (Scalar::Json, "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON"),
];

/// `core/v1.Pod` → `io.k8s.api.core.v1.Pod`; `None` for a type without a name.
pub(super) fn openapi_name(schema: &Schema, ty: TypeRef<'_>) -> Option<String> {
    let name: &str = match ty.get() {
        Type::Struct(s) => &s.name,
        Type::Either(which, _) => match which {
            crate::schema::Either::SchemaOrBool => "apiextensions/v1.JSONSchemaPropsOrBool",
            crate::schema::Either::SchemaOrList => "apiextensions/v1.JSONSchemaPropsOrArray",
            crate::schema::Either::SchemaOrStrings => {
                "apiextensions/v1.JSONSchemaPropsOrStringArray"
            }
        },
        _ => return None,
    };
    let (package, name) = name.rsplit_once('.')?;
    let package = schema.packages().iter().find(|p| p.name == package)?;
    Some(format!("{}.{name}", package.openapi))
}

impl<'s> Schemas<'s> {
    pub fn new(dialect: Dialect, schema: &'s Schema) -> Self {
        let descriptions = Descriptions::load();
        Schemas { dialect, schema, descriptions, made: BTreeMap::new(), pending: Vec::new() }
    }

    /// A reference to what an operation is about.
    pub fn model(&mut self, model: &Model) -> Value
    where
        's: 'static,
    {
        match model {
            Model::Type(ty) => self.reference(*ty),
            Model::Defined(name) => self.dialect.reference(name),
        }
    }

    /// A schema that comes from elsewhere.
    pub fn add(&mut self, name: String, schema: Value) {
        self.made.insert(name, schema);
    }

    pub fn descriptions(&self) -> &Descriptions {
        &self.descriptions
    }

    /// A reference to the type, which will be among the finished schemas.
    pub fn reference(&mut self, ty: TypeRef<'s>) -> Value {
        // A field may hold a variant of a type; what has the name is the type itself.
        let ty = ty.as_struct().and_then(|s| self.schema.named(&s.name)).unwrap_or(ty);
        match openapi_name(self.schema, ty) {
            Some(name) => self.named(name, Pending::Type(ty)),
            None => json!({ "type": "string" }),
        }
    }

    pub fn finish(mut self) -> BTreeMap<String, Value> {
        while let Some((name, pending)) = self.pending.pop() {
            let schema = match pending {
                Pending::Scalar(scalar) => scalar_schema(scalar, self.dialect),
                Pending::Type(ty) => match ty.get() {
                    Type::Struct(s) => self.structure(&name, s, ty),
                    _ => json!({}),
                },
            };
            let schema = described(schema, self.descriptions.of(&name));
            self.made.insert(name, schema);
        }
        self.made
    }

    fn named(&mut self, name: String, pending: Pending<'s>) -> Value {
        let reference = self.dialect.reference(&name);
        if !self.made.contains_key(&name) {
            self.made.insert(name.clone(), Value::Null);
            self.pending.push((name, pending));
        }
        reference
    }

    fn structure(&mut self, name: &str, structure: &'s Struct, ty: TypeRef<'s>) -> Value {
        let mut schema = Map::new();
        let mut properties = Map::new();
        for field in &structure.fields {
            properties.insert(field.name.to_string(), self.property(name, field, ty.at(field.ty)));
        }
        if !properties.is_empty() {
            schema.insert("properties".into(), properties.into());
        }
        let required: Vec<Value> =
            structure.fields.iter().filter(|f| f.required).map(|f| Value::from(&*f.name)).collect();
        if !required.is_empty() {
            schema.insert("required".into(), required.into());
        }
        schema.insert("type".into(), "object".into());
        if ty.is_kind() {
            let kinds = group_version_kinds(self.schema, &structure.name);
            if !kinds.is_empty() {
                schema.insert("x-kubernetes-group-version-kind".into(), kinds.into());
            }
        }
        if structure.atomic {
            schema.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        if structure.union {
            schema.insert("x-kubernetes-unions".into(), json!([union(structure)]));
        }
        schema.into()
    }

    fn property(&mut self, owner: &str, field: &Field, ty: TypeRef<'s>) -> Value {
        let description = self.descriptions.of_field(owner, &field.name);
        let default = default_of(field, ty).filter(|_| self.dialect == Dialect::V3);
        let mut schema = self.value(ty);
        if schema.get("$ref").is_some()
            && self.dialect == Dialect::V3
            && (description.is_some() || default.is_some())
        {
            // Beside a reference nothing else counts, in v3.
            schema = json!({ "allOf": [schema] });
        }
        let mut schema = described(schema, description);
        if let Some(default) = default {
            schema["default"] = default;
        }
        annotate(&mut schema, field, ty);
        schema
    }

    fn value(&mut self, ty: TypeRef<'s>) -> Value {
        match ty.get() {
            Type::Scalar(Named { scalar, values, .. }) => {
                if let Some((_, name)) = NAMED_SCALARS.iter().find(|(named, _)| named == scalar) {
                    return self.named((*name).to_owned(), Pending::Scalar(*scalar));
                }
                let mut schema = scalar_schema(*scalar, self.dialect);
                if !values.is_empty() {
                    schema["enum"] = values.iter().map(|v| Value::from(&**v)).collect();
                }
                schema
            }
            Type::Struct(_) | Type::Either(..) => self.reference(ty),
            Type::List(list) => {
                json!({ "items": self.value(ty.at(list.element)), "type": "array" })
            }
            Type::Map(map) => {
                json!({ "additionalProperties": self.value(ty.at(map.value)), "type": "object" })
            }
            Type::Any => json!({}),
        }
    }
}

fn described(mut schema: Value, description: Option<String>) -> Value {
    if let (Some(text), Value::Object(schema)) = (description, &mut schema) {
        schema.insert("description".into(), text.into());
    }
    schema
}

fn scalar_schema(scalar: Scalar, dialect: Dialect) -> Value {
    match scalar {
        Scalar::String | Scalar::Duration => json!({ "type": "string" }),
        Scalar::Bytes => json!({ "format": "byte", "type": "string" }),
        Scalar::Bool => json!({ "type": "boolean" }),
        Scalar::Int32 => json!({ "format": "int32", "type": "integer" }),
        Scalar::Int64 => json!({ "format": "int64", "type": "integer" }),
        Scalar::Double => json!({ "format": "double", "type": "number" }),
        Scalar::Number => json!({ "type": "number" }),
        Scalar::Time | Scalar::MicroTime => json!({ "format": "date-time", "type": "string" }),
        Scalar::Quantity if dialect == Dialect::V3 => {
            json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] })
        }
        Scalar::IntOrString if dialect == Dialect::V3 => {
            json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] })
        }
        Scalar::Quantity => json!({ "type": "string" }),
        Scalar::IntOrString => json!({ "format": "int-or-string", "type": "string" }),
        Scalar::RawExtension | Scalar::FieldsV1 => json!({ "type": "object" }),
        Scalar::Json => json!({}),
    }
}

/// The declared default, else the zero value of what Go always writes.
fn default_of(field: &Field, ty: TypeRef<'_>) -> Option<Value> {
    if field.default.is_some() {
        return field.default.clone();
    }
    if field.pointer {
        return None;
    }
    match ty.get() {
        Type::Struct(_) => Some(json!({})),
        Type::Scalar(Named { scalar: Scalar::Double, .. }) if field.omit == Omit::Never => {
            Some(json!(0))
        }
        _ => None,
    }
}

/// What merging needs to know of a field.
fn annotate(schema: &mut Value, field: &Field, ty: TypeRef<'_>) {
    if field.declares_kind {
        schema["x-kubernetes-list-type"] = "atomic".into();
    }
    if let Some(list) = ty.as_list() {
        match &list.kind {
            ListKind::Atomic => {}
            ListKind::Set => schema["x-kubernetes-list-type"] = "set".into(),
            ListKind::Map(keys) => {
                schema["x-kubernetes-list-type"] = "map".into();
                schema["x-kubernetes-list-map-keys"] =
                    keys.iter().map(|k| Value::from(&**k)).collect();
            }
        }
    }
    if let Some(atomic) = field.atomic {
        schema["x-kubernetes-map-type"] = if atomic { "atomic" } else { "granular" }.into();
    }
    if let Some(key) = &field.patch.key {
        schema["x-kubernetes-patch-merge-key"] = (**key).into();
    }
    let strategies = [
        (field.patch.merge, "merge"),
        (field.patch.retain_keys, "retainKeys"),
        (field.patch.replace, "replace"),
    ];
    let strategies: Vec<&str> =
        strategies.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    if !strategies.is_empty() {
        schema["x-kubernetes-patch-strategy"] = strategies.join(",").into();
    }
}

fn union(structure: &Struct) -> Value {
    let mut union = Map::new();
    let mut members = Map::new();
    for field in &structure.fields {
        if field.discriminator {
            union.insert("discriminator".into(), (*field.name).into());
        } else {
            let mut name = field.name.to_string();
            name[..1].make_ascii_uppercase();
            members.insert(field.name.to_string(), name.into());
        }
    }
    union.insert("fields-to-discriminateBy".into(), members.into());
    union.into()
}

/// The group, version and kind of a type; a kind of `meta/v1` has one in every version served.
fn group_version_kinds(schema: &Schema, name: &str) -> Vec<Value> {
    let Some((package, kind)) = name.rsplit_once('.') else { return Vec::new() };
    let gvk =
        |group: &str, version: &str| json!({ "group": group, "kind": kind, "version": version });
    if package == "meta/v1" {
        return match kind {
            "DeleteOptions" | "WatchEvent" => kinds::groups()
                .into_iter()
                .flat_map(|(group, versions)| versions.into_iter().map(move |v| (group, v)))
                .map(|(group, version)| gvk(group, version))
                .collect(),
            _ => vec![gvk("", "v1")],
        };
    }
    let package = schema.packages().iter().find(|p| p.name == package);
    package.map(|p| vec![gvk(p.group.as_deref().unwrap_or(""), p.version())]).unwrap_or_default()
}
