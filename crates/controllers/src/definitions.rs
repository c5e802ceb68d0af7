//! Custom resources that there are, as their definitions say: for the loops that know no kind by name.
use crate::world::World;
use api::codec::DecodeError;
use api::kinds::Scope;
use api::object::{Keep, Object};
use client::ApiResource;
use client::source::Collection;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize;
use std::sync::Arc;

/// What a definition brought: one resource, in the version that is asked for; nothing before it is
/// established.
#[derive(Debug, PartialEq)]
pub struct Defined(pub Option<ApiResource>);

impl Keep for Defined {
    fn keep(object: &Arc<Object>) -> Result<Arc<Defined>, DecodeError> {
        let read: Definition = serde_json::from_slice(&object.json())
            .map_err(|error| DecodeError::Type(error.to_string()))?;
        Ok(Arc::new(Defined(read.resource())))
    }
}

/// As much of a definition as matters here.
#[derive(Deserialize)]
struct Definition {
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Spec {
    group: String,
    scope: String,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    name: String,
    #[serde(default)]
    served: bool,
    #[serde(default)]
    storage: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    accepted_names: Names,
    conditions: Option<Vec<Condition>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Names {
    plural: String,
    kind: String,
}

#[derive(Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

impl Definition {
    fn resource(self) -> Option<ApiResource> {
        let mut conditions = self.status.conditions.iter().flatten();
        conditions.find(|each| each.r#type == "Established" && each.status == "True")?;
        let served = || self.spec.versions.iter().filter(|version| version.served);
        // What is stored need not be converted.
        let version = served().find(|version| version.storage).or_else(|| served().next())?;
        let scope = if self.spec.scope == "Cluster" { Scope::Cluster } else { Scope::Namespaced };
        let names = &self.status.accepted_names;
        let (group, version) = (&self.spec.group, &version.name);
        Some(ApiResource::custom(group, version, &names.plural, &names.kind, scope))
    }
}

/// All definitions.
pub fn collection() -> Collection {
    Collection::all(ApiResource::of::<CustomResourceDefinition>())
}

/// Every custom resource that is served.
pub fn resources(world: &World) -> Vec<ApiResource> {
    let definitions = world.keep::<Defined>(collection());
    let read = definitions.read();
    read.iter().filter_map(|(_, defined)| defined.0.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_definition_is_a_resource_once_it_is_established() {
        let version =
            |name: &str, storage: bool| json!({ "name": name, "served": true, "storage": storage });
        let mut definition = json!({
            "spec": { "group": "a.io", "scope": "Cluster",
                "versions": [version("v1", false), version("v2", true)] },
            "status": { "acceptedNames": { "plural": "foos", "kind": "Foo" } } });
        let resource = |definition: &serde_json::Value| {
            let read: Definition =
                serde_json::from_value(definition.clone()).expect("a definition");
            read.resource().map(|resource| resource.path("", "x", ""))
        };
        assert_eq!(resource(&definition), None);
        definition["status"]["conditions"] = json!([{ "type": "Established", "status": "True" }]);
        assert_eq!(resource(&definition).as_deref(), Some("/apis/a.io/v2/foos/x"));
    }
}
