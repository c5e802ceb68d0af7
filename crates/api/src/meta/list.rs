//! Any list of objects.

use serde::{Deserialize, Serialize};

use super::ListMeta;

/// A `PodList`, or with kind `List` a mixture, as files hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct List<T> {
    pub kind: String,
    pub api_version: String,
    #[serde(default)]
    pub metadata: ListMeta,
    #[serde(default = "Vec::new")]
    pub items: Vec<T>,
}
