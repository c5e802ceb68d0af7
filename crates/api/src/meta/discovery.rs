//! Aggregated discovery (`apidiscovery.k8s.io/v2`): all groups, versions and resources in one
//! answer, which is what kubectl and client-go ask for first.

use serde::{Deserialize, Serialize};

use super::{ListMeta, ObjectMeta};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct APIGroupDiscoveryList {
    pub kind: String,
    pub api_version: String,
    #[serde(default)]
    pub metadata: ListMeta,
    pub items: Vec<APIGroupDiscovery>,
}

/// One group; its name is in the metadata, and empty for the core group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct APIGroupDiscovery {
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The preferred version first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<APIVersionDiscovery>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct APIVersionDiscovery {
    pub version: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<APIResourceDiscovery>,
    /// `Stale` if an aggregated server could not be reached.
    #[serde(default)]
    pub freshness: Freshness,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Freshness {
    #[default]
    Current,
    Stale,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct APIResourceDiscovery {
    pub resource: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<GroupVersionKind>,
    pub scope: Scope,
    pub singular_resource: String,
    pub verbs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subresources: Vec<APISubresourceDiscovery>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    Cluster,
    Namespaced,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct APISubresourceDiscovery {
    pub subresource: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<GroupVersionKind>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted_types: Vec<GroupVersionKind>,
    pub verbs: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupVersionKind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl APIGroupDiscoveryList {
    pub fn new(items: Vec<APIGroupDiscovery>) -> Self {
        APIGroupDiscoveryList {
            kind: "APIGroupDiscoveryList".to_owned(),
            api_version: "apidiscovery.k8s.io/v2".to_owned(),
            metadata: ListMeta::default(),
            items,
        }
    }
}
