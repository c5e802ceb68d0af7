//! Which resource an autoscaler's target is, and what its scale says.
use crate::definitions;
use crate::world::World;
use client::ApiResource;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use serde_json::Value;

/// A workload's `scale`, and where it is.
pub struct Scale {
    pub resource: ApiResource,
    pub tree: Value,
}

impl Scale {
    pub fn spec_replicas(&self) -> i32 {
        number(&self.tree["spec"]["replicas"])
    }

    pub fn status_replicas(&self) -> i32 {
        number(&self.tree["status"]["replicas"])
    }

    pub fn selector(&self) -> &str {
        self.tree["status"]["selector"].as_str().unwrap_or_default()
    }
}

fn number(value: &Value) -> i32 {
    value.as_i64().and_then(|number| number.try_into().ok()).unwrap_or(0)
}

/// The resources of a kind, built-in or custom; the version that is asked for is ours to choose.
pub fn resources(
    target: &CrossVersionObjectReference,
    world: &World,
) -> Result<Vec<ApiResource>, String> {
    let version = target.api_version.as_deref().unwrap_or_default();
    if version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {version}"));
    }
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let found = find(group, &target.kind, world);
    match found.is_empty() {
        true => Err(format!("no matches for kind {:?} in group {group:?}", target.kind)),
        false => Ok(found),
    }
}

/// Every resource of a group and kind.
pub fn find(group: &str, kind: &str, world: &World) -> Vec<ApiResource> {
    let is_it = |row: &&api::kinds::Resource| row.group == group && row.kind == kind;
    let built_in = api::kinds::RESOURCES.iter().filter(is_it).take(1).map(ApiResource::from);
    let custom = definitions::resources(world);
    let custom = custom.into_iter().filter(|it| it.group == group && it.kind == kind);
    built_in.chain(custom).collect()
}
