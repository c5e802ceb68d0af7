//! What Gateway API has to be defined as: its standard channel, by `cargo xtask gateway`.
use crate::{CLASS, GATEWAY_CONTROLLER};
use client::ApiResource;
use serde_json::{Value, json};

pub use crate::plan::gateway::GROUP as GATEWAY_GROUP;

const DEFINITIONS: &str = include_str!("gateway-definitions.jsonl");

/// Its CustomResourceDefinitions.
pub fn gateway_definitions() -> impl Iterator<Item = Value> {
    DEFINITIONS.lines().filter_map(|line| serde_json::from_str(line).ok())
}

/// The class of those Gateways that we serve.
pub fn gateway_class() -> (ApiResource, Value) {
    let class = json!({
        "apiVersion": format!("{GATEWAY_GROUP}/v1"), "kind": "GatewayClass",
        "metadata": { "name": CLASS },
        "spec": { "controllerName": GATEWAY_CONTROLLER },
    });
    (crate::world::resource("GatewayClass"), class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_that_is_read_is_defined_in_the_version_that_is_asked_for() {
        let all: Vec<Value> = gateway_definitions().collect();
        assert_eq!(all.len(), DEFINITIONS.lines().count());
        for resource in crate::world::resources() {
            let name = format!("{}.{}", resource.plural, resource.group);
            let found = all.iter().find(|one| one["metadata"]["name"] == name.as_str());
            let found = found.unwrap_or_else(|| panic!("{name} is not defined"));
            let versions = found["spec"]["versions"].as_array().expect("versions");
            let served = versions.iter().filter(|version| version["served"] == true);
            let mut names = served.map(|version| &version["name"]);
            assert!(names.any(|name| *name == *resource.version), "{name}");
        }
        assert!(!DEFINITIONS.contains("\"description\":\""), "no prose");
    }
}
