//! What CustomResourceDefinitions bring: for those who know no kind by name, and for those who know one
//! that may be there or not.
use crate::resource::ApiResource;
use crate::source::Collection;
use api::codec::DecodeError;
use api::kinds::Scope;
use api::object::{Keep, Object};
use api::selector::field::Selector;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize;
use std::sync::Arc;

/// What a definition brought; nothing before it is established.
#[derive(Debug, Default, PartialEq)]
pub struct Defined {
    /// In the version that costs least to ask for.
    pub resource: Option<ApiResource>,
    /// The versions that are served.
    served: Vec<String>,
}

impl Defined {
    /// The resource in one version, if that is served.
    pub fn in_version(&self, version: &str) -> Option<ApiResource> {
        let resource = self.resource.clone()?;
        let is_served = self.served.iter().any(|one| one == version);
        is_served.then(|| ApiResource { version: version.to_owned().into(), ..resource })
    }
}

impl Keep for Defined {
    fn keep(object: &Arc<Object>) -> Result<Arc<Defined>, DecodeError> {
        let read: Definition = serde_json::from_slice(&object.json())
            .map_err(|error| DecodeError::Type(error.to_string()))?;
        Ok(Arc::new(read.defined()))
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
    fn defined(self) -> Defined {
        let mut conditions = self.status.conditions.iter().flatten();
        if !conditions.any(|each| each.r#type == "Established" && each.status == "True") {
            return Defined::default();
        }
        let served = || self.spec.versions.iter().filter(|version| version.served);
        // What is stored need not be converted.
        let version = served().find(|version| version.storage).or_else(|| served().next());
        let scope = if self.spec.scope == "Cluster" { Scope::Cluster } else { Scope::Namespaced };
        let names = &self.status.accepted_names;
        let resource = |version: &Version| {
            let group = &self.spec.group;
            ApiResource::custom(group, &version.name, &names.plural, &names.kind, scope)
        };
        Defined {
            resource: version.map(resource),
            served: served().map(|version| version.name.clone()).collect(),
        }
    }
}

/// All definitions.
pub fn collection() -> Collection {
    Collection::all(ApiResource::of::<CustomResourceDefinition>())
}

/// The definition of one resource, by its plural and its group.
pub fn one(plural: &str, group: &str) -> Collection {
    collection().with_fields(Selector::equals("metadata.name", format!("{plural}.{group}")))
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
        let defined = |definition: &serde_json::Value| {
            let read: Definition =
                serde_json::from_value(definition.clone()).expect("a definition");
            read.defined()
        };
        let path = |resource: Option<ApiResource>| resource.map(|one| one.path("", "x", ""));
        assert_eq!(defined(&definition), Defined::default());
        definition["status"]["conditions"] = json!([{ "type": "Established", "status": "True" }]);
        let defined = defined(&definition);
        assert_eq!(path(defined.resource.clone()).as_deref(), Some("/apis/a.io/v2/foos/x"));
        assert_eq!(path(defined.in_version("v1")).as_deref(), Some("/apis/a.io/v1/foos/x"));
        assert_eq!(path(defined.in_version("v3")), None);
    }
}
