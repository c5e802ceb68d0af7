//! OpenAPI v2: everything in one document, for older clients.
use super::operations::{self, Answer, Body, Media, Operation, Path};
use super::parameters::Parameter;
use super::schemas::Schemas;
use super::{Dialect, bearer_token, publish};
use crate::kinds::{self, Registry};
use crate::schema::builtin;
use serde_json::{Map, Value, json};

/// What some versions add to the document. The document of many is the sum of their parts, so that
/// one that changes is all that is made anew.
#[derive(Debug, Default)]
pub struct Part {
    pub definitions: Map<String, Value>,
    pub parameters: Map<String, Value>,
    pub paths: Map<String, Value>,
}

/// The part of everything that is built in.
pub fn built_in() -> Part {
    let registry = kinds::built_in();
    let versions = |(group, versions): (&'static str, Vec<&'static str>)| {
        versions.into_iter().map(move |version| (group, version))
    };
    part(registry, registry.groups().into_iter().flat_map(versions))
}

/// The part of a version of a definition's group. What it refers to beside its own is built in.
pub fn defined(registry: &Registry, group: &str, version: &str) -> Part {
    let mut part = part(registry, std::iter::once((group, version)));
    let own = registry.rows_of(group, version).flat_map(|row| {
        [row.kind, row.list_kind].map(|kind| operations::model_name(group, version, kind))
    });
    let own: Vec<String> = own.collect();
    part.definitions.retain(|name, _| own.contains(name));
    part
}

fn part<'a>(registry: &Registry, versions: impl Iterator<Item = (&'a str, &'a str)>) -> Part {
    let mut schemas = Schemas::new(Dialect::V2, builtin());
    let mut part = Part::default();
    for (group, version) in versions {
        for row in registry.rows_of(group, version) {
            publish::add(row, Dialect::V2, &mut schemas);
        }
        for Path { path, mut operations } in operations::paths(registry, group, version) {
            let mut item = Map::new();
            let common = operations::share_parameters(&mut operations);
            let shared = &mut part.parameters;
            for operation in &operations {
                item.insert(operation.method.into(), render(operation, &mut schemas, shared));
            }
            if !common.is_empty() {
                item.insert("parameters".into(), references(&common, shared));
            }
            part.paths.insert(path, item.into());
        }
    }
    part.definitions = schemas.finish().into_iter().collect();
    part
}

/// The document that the parts make up.
pub fn document<'p>(parts: impl Iterator<Item = &'p Part>) -> Value {
    let mut all = Part::default();
    for part in parts {
        let copies = |map: &Map<String, Value>| map.clone().into_iter();
        all.definitions.extend(copies(&part.definitions));
        all.parameters.extend(copies(&part.parameters));
        all.paths.extend(copies(&part.paths));
    }
    json!({
        "definitions": all.definitions,
        "info": { "title": "Kubernetes", "version": crate::VERSION },
        "parameters": all.parameters,
        "paths": all.paths,
        "security": [{ "BearerToken": [] }],
        "securityDefinitions": bearer_token(),
        "swagger": "2.0",
    })
}

/// Parameters are written once and referred to: they are most of what operations consist of.
fn references(parameters: &[Parameter], shared: &mut Map<String, Value>) -> Value {
    parameters
        .iter()
        .map(|parameter| {
            let key = format!("{}-{}", parameter.name, parameter.place);
            let reference = json!({ "$ref": format!("#/parameters/{key}") });
            shared.entry(key).or_insert_with(|| parameter.v2());
            reference
        })
        .collect()
}

fn render(
    operation: &Operation,
    schemas: &mut Schemas<'static>,
    shared: &mut Map<String, Value>,
) -> Value {
    let mut value = json!({
        "consumes": consumes(operation),
        "description": operation.description,
        "operationId": operation.id,
        "produces": produces(operation),
        "responses": responses(&operation.answer, schemas),
        "schemes": ["https"],
        "tags": [operation.tag],
    });
    if let Some((action, gvk)) = &operation.action {
        value["x-kubernetes-action"] = (*action).into();
        value["x-kubernetes-group-version-kind"] =
            json!({ "group": gvk.group, "kind": gvk.kind, "version": gvk.version });
    }
    let mut parameters = references(&operation.parameters, shared);
    if let (Some(body), Value::Array(parameters)) = (&operation.body, &mut parameters) {
        parameters.insert(0, body_parameter(body, schemas));
    }
    if parameters.as_array().is_some_and(|all| !all.is_empty()) {
        value["parameters"] = parameters;
    }
    value
}

fn body_parameter(body: &Body, schemas: &mut Schemas<'static>) -> Value {
    let (ty, required) = match body {
        Body::Object(ty) | Body::Patch(ty) => (ty, true),
        Body::Options(ty) => (ty, false),
    };
    let mut value = json!({ "in": "body", "name": "body", "schema": schemas.model(ty) });
    if required {
        value["required"] = true.into();
    }
    value
}

fn consumes(operation: &Operation) -> Value {
    match operation.body.as_ref() {
        Some(Body::Patch(_)) if operation.custom => json!([
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ]),
        _ if operation.custom => json!(["application/json", "application/yaml"]),
        Some(Body::Patch(_)) => json!([
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            "application/apply-patch+yaml",
        ]),
        _ => json!(["*/*"]),
    }
}

fn produces(operation: &Operation) -> Value {
    match operation.answer.media {
        _ if operation.custom => json!(["application/json", "application/yaml"]),
        Media::Object => {
            json!(["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"])
        }
        Media::Watchable => json!([
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "application/json;stream=watch",
            "application/vnd.kubernetes.protobuf;stream=watch",
        ]),
        Media::Text => {
            json!([
                "text/plain",
                "application/json",
                "application/yaml",
                "application/vnd.kubernetes.protobuf"
            ])
        }
        Media::Stream => json!(["*/*"]),
    }
}

fn responses(answer: &Answer, schemas: &mut Schemas<'static>) -> Value {
    let schema = answer.ty.as_ref();
    let schema = schema.map_or_else(|| json!({ "type": "string" }), |ty| schemas.model(ty));
    let mut responses = Map::new();
    for (code, description) in answer.codes {
        responses.insert(code.to_string(), json!({ "description": description, "schema": schema }));
    }
    responses.insert("401".into(), json!({ "description": "Unauthorized" }));
    responses.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_document_has_every_kind_and_no_dangling_reference() {
        let document = document(std::iter::once(&built_in()));
        let definitions = document["definitions"].as_object().unwrap();
        for resource in kinds::RESOURCES {
            let name = crate::openapi::schemas::openapi_name(builtin(), resource.ty()).unwrap();
            let gvk = &definitions[&name]["x-kubernetes-group-version-kind"][0];
            assert_eq!(gvk["kind"], resource.kind);
        }
        let text = document.to_string();
        for reference in text.split("\"#/").skip(1).filter_map(|rest| rest.split('"').next()) {
            let (part, name) = reference.split_once('/').unwrap();
            assert!(!document[part][name].is_null(), "{reference} leads nowhere");
        }
    }
}
