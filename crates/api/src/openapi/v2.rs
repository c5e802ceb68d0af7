//! OpenAPI v2: everything in one document, for older clients.
use super::operations::{self, Answer, Body, Media, Operation, Path};
use super::parameters::Parameter;
use super::schemas::Schemas;
use super::{Dialect, bearer_token};
use crate::kinds;
use crate::schema::builtin;
use serde_json::{Map, Value, json};

pub fn document() -> Value {
    let mut schemas = Schemas::new(Dialect::V2, builtin());
    let mut shared = Map::new();
    let mut paths = Map::new();
    for (group, versions) in kinds::groups() {
        for version in versions {
            for Path { path, mut operations } in operations::paths(group, version) {
                let mut item = Map::new();
                let common = operations::share_parameters(&mut operations);
                for operation in &operations {
                    item.insert(
                        operation.method.into(),
                        render(operation, &mut schemas, &mut shared),
                    );
                }
                if !common.is_empty() {
                    item.insert("parameters".into(), references(&common, &mut shared));
                }
                paths.insert(path, item.into());
            }
        }
    }
    json!({
        "definitions": schemas.finish(),
        "info": { "title": "Kubernetes", "version": crate::VERSION },
        "parameters": shared,
        "paths": paths,
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
        "consumes": consumes(operation.body.as_ref()),
        "description": operation.description,
        "operationId": operation.id,
        "produces": produces(operation.answer.media),
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
    let mut value = json!({ "in": "body", "name": "body", "schema": schemas.reference(*ty) });
    if required {
        value["required"] = true.into();
    }
    value
}

fn consumes(body: Option<&Body>) -> Value {
    match body {
        Some(Body::Patch(_)) => json!([
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            "application/apply-patch+yaml",
        ]),
        _ => json!(["*/*"]),
    }
}

fn produces(media: Media) -> Value {
    match media {
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
    let schema = answer.ty.map_or_else(|| json!({ "type": "string" }), |ty| schemas.reference(ty));
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
        let document = document();
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
