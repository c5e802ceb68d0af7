//! An object's metadata without the object, for clients that need no more.

use serde::{Deserialize, Serialize};

use super::{ListMeta, ObjectMeta};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartialObjectMetadata<M = ObjectMeta> {
    pub kind: String,
    pub api_version: String,
    pub metadata: M,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartialObjectMetadataList<M = ObjectMeta> {
    pub kind: String,
    pub api_version: String,
    #[serde(default)]
    pub metadata: ListMeta,
    pub items: Vec<PartialObjectMetadata<M>>,
}

impl<M> PartialObjectMetadata<M> {
    /// `version` is that of `meta.k8s.io`, not of the object.
    pub fn new(version: &str, metadata: M) -> Self {
        PartialObjectMetadata {
            kind: "PartialObjectMetadata".to_owned(),
            api_version: format!("meta.k8s.io/{version}"),
            metadata,
        }
    }
}

impl<M> PartialObjectMetadataList<M> {
    pub fn new(version: &str, metadata: ListMeta, items: impl IntoIterator<Item = M>) -> Self {
        let items = items.into_iter().map(|item| PartialObjectMetadata::new(version, item));
        PartialObjectMetadataList {
            kind: "PartialObjectMetadataList".to_owned(),
            api_version: format!("meta.k8s.io/{version}"),
            metadata,
            items: items.collect(),
        }
    }
}
