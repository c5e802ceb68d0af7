//! A CustomResourceDefinition's OpenAPI schema, compiled into the form that built-in types have.
//!
//! It is to be a *structural* schema; whether it is one was checked when the definition was
//! written, and what is not is read as leniently as upstream reads it. Value validation (patterns,
//! limits, CEL) is not compiled: it does not change what an object is made of.
use super::{
    Field, List, ListKind, Map, Name, Named, Scalar, Schema, Struct, Type, TypeId, TypeRef, builtin,
};
use serde_json::Value;

/// The schema of one version of a custom resource.
#[derive(Debug)]
pub struct CustomSchema {
    schema: Schema,
    root: TypeId,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CrdError {
    #[error("openAPIV3Schema is not an object")]
    NotAnObject,
    #[error("openAPIV3Schema is nested too deeply")]
    TooDeep,
}

/// Schemas are walked recursively; upstream's own limit on them is far lower.
const MAX_DEPTH: usize = 128;

impl CustomSchema {
    /// Compiles the value of `openAPIV3Schema`. Every object has `apiVersion`, `kind` and
    /// `metadata`, whether the schema says so or not.
    pub fn compile(openapi: &Value) -> Result<CustomSchema, CrdError> {
        if !openapi.is_object() {
            return Err(CrdError::NotAnObject);
        }
        let mut compiler = Compiler { schema: Schema::default(), metadata: None };
        let root = compiler.object(openapi, true, false, MAX_DEPTH)?;
        Ok(CustomSchema { schema: compiler.schema, root })
    }

    /// The type of the whole object.
    pub fn root(&self) -> TypeRef<'_> {
        self.schema.at(self.root)
    }
}

struct Compiler {
    schema: Schema,
    /// `ObjectMeta`, once somebody needs it.
    metadata: Option<TypeId>,
}

impl Compiler {
    /// `kept`: the list around it keeps unknown fields, and with it each of its elements.
    fn compile(&mut self, props: &Value, kept: bool, depth: usize) -> Result<TypeId, CrdError> {
        let depth = depth.checked_sub(1).ok_or(CrdError::TooDeep)?;
        if flag(props, "x-kubernetes-int-or-string") {
            return Ok(self.scalar(Scalar::IntOrString, props));
        }
        let format = text(props, "format");
        match text(props, "type") {
            "string" if format == "byte" => Ok(self.scalar(Scalar::Bytes, props)),
            "string" => Ok(self.scalar(Scalar::String, props)),
            "boolean" => Ok(self.scalar(Scalar::Bool, props)),
            "integer" if format == "int32" => Ok(self.scalar(Scalar::Int32, props)),
            "integer" if format == "int64" => Ok(self.scalar(Scalar::Int64, props)),
            "integer" | "number" => Ok(self.scalar(Scalar::Number, props)),
            "array" => self.list(props, kept, depth),
            "object" => self.object(props, false, kept, depth),
            _ if props.get("properties").is_some() => self.object(props, false, kept, depth),
            _ if props.get("items").is_some() => self.list(props, kept, depth),
            _ => Ok(self.schema.add(Type::Any)),
        }
    }

    fn object(
        &mut self,
        props: &Value,
        root: bool,
        kept: bool,
        depth: usize,
    ) -> Result<TypeId, CrdError> {
        let embedded_resource = root || flag(props, "x-kubernetes-embedded-resource");
        let preserve_unknown = kept || flag(props, "x-kubernetes-preserve-unknown-fields");
        let atomic = text(props, "x-kubernetes-map-type") == "atomic";
        let properties = props.get("properties").and_then(Value::as_object);
        if !embedded_resource && properties.is_none_or(|p| p.is_empty()) {
            match props.get("additionalProperties") {
                Some(value @ Value::Object(_)) => {
                    let nullable = flag(value, "nullable");
                    let value = self.compile(value, false, depth)?;
                    return Ok(self.add_map(value, atomic, nullable));
                }
                Some(Value::Bool(true)) => {
                    // Any key, of which nothing more is said: what is an object there is pruned.
                    let value = self.schema.add(Type::Struct(Struct::default()));
                    return Ok(self.add_map(value, atomic, true));
                }
                _ => {}
            }
        }
        let required: Vec<&str> = match props.get("required") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let mut fields = Vec::new();
        for (name, property) in properties.into_iter().flatten() {
            if embedded_resource && name == "metadata" {
                continue;
            }
            let mut field = Field::new(name.clone(), self.compile(property, false, depth)?);
            field.required = required.contains(&name.as_str());
            field.nullable = flag(property, "nullable");
            field.default = property.get("default").filter(|default| !default.is_null()).cloned();
            fields.push(field);
        }
        if embedded_resource {
            for name in ["apiVersion", "kind"] {
                if !fields.iter().any(|field| field.name == name) {
                    let ty = self.scalar(Scalar::String, &Value::Null);
                    fields.push(Field::new(name, ty));
                }
            }
            fields.push(Field::new("metadata", self.object_meta()));
        }
        let mut object =
            Struct { fields, atomic, preserve_unknown, embedded_resource, ..Struct::default() };
        object.seal();
        Ok(self.schema.add(Type::Struct(object)))
    }

    fn list(&mut self, props: &Value, kept: bool, depth: usize) -> Result<TypeId, CrdError> {
        let kept = kept || flag(props, "x-kubernetes-preserve-unknown-fields");
        let (element, nullable) = match props.get("items") {
            Some(items @ Value::Object(_)) => {
                (self.compile(items, kept, depth)?, flag(items, "nullable"))
            }
            _ => (self.schema.add(Type::Any), true),
        };
        let kind = match text(props, "x-kubernetes-list-type") {
            "set" => ListKind::Set,
            "map" => {
                let keys = props.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let keys = keys.into_iter().flatten().filter_map(Value::as_str);
                ListKind::Map(keys.map(|key| Name::Owned(key.to_owned())).collect())
            }
            _ => ListKind::Atomic,
        };
        Ok(self.schema.add(Type::List(List { element, kind, name: None, nullable })))
    }

    fn add_map(&mut self, value: TypeId, atomic: bool, nullable: bool) -> TypeId {
        self.schema.add(Type::Map(Map { value, key: None, name: None, atomic, nullable }))
    }

    fn scalar(&mut self, scalar: Scalar, props: &Value) -> TypeId {
        let values = props.get("enum").and_then(Value::as_array).into_iter().flatten();
        let values = values.filter_map(Value::as_str).map(|value| Name::Owned(value.to_owned()));
        self.schema.add(Type::Scalar(Named { scalar, name: None, values: values.collect() }))
    }

    fn object_meta(&mut self) -> TypeId {
        if let Some(id) = self.metadata {
            return id;
        }
        let id = match builtin().named("meta/v1.ObjectMeta") {
            Some(ty) => self.schema.import(ty),
            None => self.schema.add(Type::Any),
        };
        *self.metadata.insert(id)
    }
}

fn flag(props: &Value, key: &str) -> bool {
    props.get(key).and_then(Value::as_bool).unwrap_or_default()
}

fn text<'v>(props: &'v Value, key: &str) -> &'v str {
    props.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// The compiled types, written like the table of facts.
    fn check(openapi: &str, expected: Expect) {
        let compiled = CustomSchema::compile(&serde_saphyr::from_str(openapi).unwrap()).unwrap();
        expected.assert_eq(&show(compiled.root(), 0));
    }

    fn show(ty: TypeRef<'_>, indent: usize) -> String {
        match ty.get() {
            Type::Scalar(named) => {
                format!("{:?} {}", named.scalar, named.values.join("|")).trim().to_owned()
            }
            Type::Any => "Any".to_owned(),
            Type::Either(..) => "Either".to_owned(),
            Type::List(list) => {
                format!("[{:?} {}]", list.kind, show(ty.at(list.element), indent))
            }
            Type::Map(map) => {
                let atomic = if map.atomic { " atomic" } else { "" };
                format!("{{*: {}}}{atomic}", show(ty.at(map.value), indent))
            }
            Type::Struct(s) if !s.name.is_empty() => s.name.to_string(),
            Type::Struct(s) => {
                let mut text = "{".to_owned();
                for (flag, word) in [
                    (s.atomic, "atomic"),
                    (s.preserve_unknown, "open"),
                    (s.embedded_resource, "object"),
                ] {
                    if flag {
                        text += &format!(" {word}");
                    }
                }
                for field in &s.fields {
                    text += &format!("\n{:1$}", "", indent + 2);
                    text += &format!("{}: {}", field.name, show(ty.at(field.ty), indent + 2));
                    for (flag, word) in [(field.required, "required"), (field.nullable, "nullable")]
                    {
                        if flag {
                            text += &format!(" {word}");
                        }
                    }
                    if let Some(default) = &field.default {
                        text += &format!(" = {default}");
                    }
                }
                text + &format!("\n{:1$}}}", "", indent)
            }
        }
    }

    #[test]
    fn every_object_is_an_object_of_the_api() {
        check(
            "{type: object}",
            expect![[r#"
                { object
                  apiVersion: String
                  kind: String
                  metadata: meta/v1.ObjectMeta
                }"#]],
        );
    }

    #[test]
    fn properties_items_and_additional_properties_are_structs_lists_and_maps() {
        check(
            "
type: object
properties:
  metadata: {type: object, properties: {name: {type: string, maxLength: 5}}}
  spec:
    type: object
    required: [size]
    properties:
      size: {type: integer, format: int32, default: 1}
      ratio: {type: number, nullable: true}
      color: {type: string, enum: [red, green]}
      port: {x-kubernetes-int-or-string: true}
      tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
      ports:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [port, protocol]
        items: {type: object, properties: {port: {type: integer}, protocol: {type: string, default: TCP}}}
      labels: {type: object, additionalProperties: {type: string}}
      limits: {type: object, x-kubernetes-map-type: atomic, additionalProperties: {type: boolean}}
      ref: {type: object, x-kubernetes-map-type: atomic, properties: {name: {type: string}}}
      free: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {known: {type: string}}}
      any: {x-kubernetes-preserve-unknown-fields: true}
      template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}",
            expect![[r#"
                { object
                  apiVersion: String
                  kind: String
                  metadata: meta/v1.ObjectMeta
                  spec: {
                    any: Any
                    color: String red|green
                    free: { open
                      known: String
                    }
                    labels: {*: String}
                    limits: {*: Bool} atomic
                    port: IntOrString
                    ports: [Map(["port", "protocol"]) {
                      port: Number
                      protocol: String = "TCP"
                    }]
                    ratio: Number nullable
                    ref: { atomic
                      name: String
                    }
                    size: Int32 required = 1
                    tags: [Set String]
                    template: { open object
                      apiVersion: String
                      kind: String
                      metadata: meta/v1.ObjectMeta
                    }
                  }
                }"#]],
        );
    }

    #[test]
    fn object_meta_comes_with_all_its_types() {
        let compiled = CustomSchema::compile(&serde_json::json!({"type": "object"})).unwrap();
        let metadata = compiled.root().child("metadata").unwrap();
        let references = metadata.child("ownerReferences").unwrap();
        assert_eq!(references.as_list().unwrap().kind, ListKind::Map(vec!["uid".into()]));
        let reference = references.at(references.as_list().unwrap().element);
        assert!(reference.as_struct().unwrap().atomic && reference.child("uid").is_some());
    }
}
