//! OpenAPI v3: one document for each group and version.
use super::operations::{self, Answer, Body, Media, Operation, Path};
use super::schemas::Schemas;
use super::{Dialect, bearer_token, publish};
use crate::kinds::Registry;
use crate::schema::builtin;
use serde_json::{Map, Value, json};

/// The paths below `/openapi/v3/` that have a document: `api/v1`, `apis/apps/v1`, …
pub fn index(registry: &Registry) -> Vec<(String, &'static str, &'static str)> {
    registry
        .groups()
        .into_iter()
        .flat_map(|(group, versions)| versions.into_iter().map(move |version| (group, version)))
        .map(|(group, version)| {
            (operations::root(group, version).trim_start_matches('/').to_owned(), group, version)
        })
        .collect()
}

/// The document of one group and version.
pub fn document(registry: &Registry, group: &str, version: &str) -> Value {
    let mut schemas = Schemas::new(Dialect::V3, builtin());
    for row in registry.rows_of(group, version) {
        publish::add(row, Dialect::V3, &mut schemas);
    }
    let mut paths = Map::new();
    for Path { path, mut operations } in operations::paths(registry, group, version) {
        let mut item = Map::new();
        let shared = operations::share_parameters(&mut operations);
        for operation in &operations {
            item.insert(operation.method.into(), render(operation, &mut schemas));
        }
        if !shared.is_empty() {
            item.insert("parameters".into(), shared.iter().map(|p| p.v3()).collect());
        }
        paths.insert(path, item.into());
    }
    json!({
        "components": { "schemas": schemas.finish(), "securitySchemes": bearer_token() },
        "info": { "title": "Kubernetes", "version": crate::VERSION },
        "openapi": "3.0.0",
        "paths": paths,
    })
}

fn render(operation: &Operation, schemas: &mut Schemas<'static>) -> Value {
    let mut value = json!({
        "description": operation.description,
        "operationId": operation.id,
        "responses": responses(operation, schemas),
        "tags": [operation.tag],
    });
    if let Some((action, gvk)) = &operation.action {
        value["x-kubernetes-action"] = (*action).into();
        value["x-kubernetes-group-version-kind"] =
            json!({ "group": gvk.group, "kind": gvk.kind, "version": gvk.version });
    }
    if !operation.parameters.is_empty() {
        value["parameters"] = operation.parameters.iter().map(|p| p.v3()).collect();
    }
    if let Some(body) = &operation.body {
        value["requestBody"] = request_body(body, operation.custom, schemas);
    }
    value
}

const TEXT: &[&str] = &["application/json", "application/yaml"];

const PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

fn request_body(body: &Body, custom: bool, schemas: &mut Schemas<'static>) -> Value {
    let any: &[&str] = if custom { TEXT } else { &["*/*"] };
    let patches = if custom { &PATCHES[..3] } else { PATCHES };
    let (ty, media, required): (_, &[&str], _) = match body {
        Body::Object(ty) => (ty, any, true),
        Body::Options(ty) => (ty, any, false),
        Body::Patch(ty) => (ty, patches, true),
    };
    let mut value = json!({ "content": content(media, &schemas.model(ty)) });
    if required {
        value["required"] = true.into();
    }
    value
}

fn responses(operation: &Operation, schemas: &mut Schemas<'static>) -> Value {
    let answer: &Answer = &operation.answer;
    let media: &[&str] = match answer.media {
        _ if operation.custom => TEXT,
        Media::Object => {
            &["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"]
        }
        Media::Watchable => &[
            "application/json",
            "application/json;stream=watch",
            "application/vnd.kubernetes.protobuf",
            "application/vnd.kubernetes.protobuf;stream=watch",
            "application/yaml",
        ],
        Media::Text => &[
            "application/json",
            "application/vnd.kubernetes.protobuf",
            "application/yaml",
            "text/plain",
        ],
        Media::Stream => &["*/*"],
    };
    let schema = answer.ty.as_ref();
    let schema = schema.map_or_else(|| json!({ "type": "string" }), |ty| schemas.model(ty));
    let mut responses = Map::new();
    for (code, description) in answer.codes {
        responses.insert(
            code.to_string(),
            json!({ "content": content(media, &schema), "description": description }),
        );
    }
    responses.insert("401".into(), json!({ "description": "Unauthorized" }));
    responses.into()
}

fn content(media: &[&str], schema: &Value) -> Value {
    media
        .iter()
        .map(|m| ((*m).to_owned(), json!({ "schema": schema })))
        .collect::<Map<_, _>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::built_in;

    #[test]
    fn every_reference_leads_somewhere() {
        for (_, group, version) in index(built_in()) {
            let document = document(built_in(), group, version);
            let schemas = document["components"]["schemas"].as_object().unwrap();
            let mut seen = 0;
            walk(&document, &mut |reference| {
                seen += 1;
                let name = reference.strip_prefix("#/components/schemas/").unwrap();
                assert!(schemas.contains_key(name), "{group}/{version} lacks {name}");
            });
            assert!(seen > 10, "{group}/{version} refers to nothing");
        }
    }

    fn walk(value: &Value, visit: &mut impl FnMut(&str)) {
        match value {
            Value::Object(object) => {
                for (name, value) in object {
                    match value.as_str().filter(|_| name == "$ref") {
                        Some(reference) => visit(reference),
                        None => walk(value, visit),
                    }
                }
            }
            Value::Array(array) => array.iter().for_each(|value| walk(value, visit)),
            _ => {}
        }
    }

    #[test]
    fn operation_ids_are_unique() {
        let mut ids = std::collections::HashSet::new();
        for (_, group, version) in index(built_in()) {
            for path in operations::paths(built_in(), group, version) {
                for operation in path.operations {
                    assert!(ids.insert(operation.id.clone()), "{} twice", operation.id);
                }
            }
        }
        assert!(ids.contains("readAppsV1NamespacedDeploymentScale"));
        assert!(ids.contains("connectCoreV1PostNamespacedPodExec"));
        assert!(ids.contains("deleteRbacAuthorizationV1CollectionClusterRole"));
    }

    #[test]
    fn a_property_says_what_it_is_and_how_it_merges() {
        let document = document(built_in(), "", "v1");
        let schemas = &document["components"]["schemas"];
        let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
        assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
        assert!(containers["description"].as_str().is_some_and(|text| text.contains("containers")));
        let policy = &schemas["io.k8s.api.core.v1.Container"]["properties"]["imagePullPolicy"];
        assert_eq!(policy["enum"], json!(["Always", "IfNotPresent", "Never"]));
    }
}
