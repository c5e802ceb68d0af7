//! What an empty store begins with, so that the first client finds a cluster.
use crate::authz::{rbac, roles};
use crate::resources::ApiServer;
use crate::verbs;
use api::kinds::find_kind;
use api::status::Status;

use futures_util::future::try_join_all;
use serde_json::json;

const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Creates what is missing; what is there stays as it is.
pub async fn bootstrap(api: &ApiServer) -> Result<(), Status> {
    let resource = find_kind("v1", "Namespace").expect("namespaces are in the registry");
    for name in NAMESPACES {
        let labels = json!({ "kubernetes.io/metadata.name": name });
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels },
        });
        verbs::first(api, resource, namespace).await?;
    }
    // All at once: the store commits them together.
    let roles = roles::objects().into_iter().map(|object| {
        let kind = object["kind"].as_str().unwrap_or_default();
        let resource = find_kind("rbac.authorization.k8s.io/v1", kind)
            .expect("RBAC's kinds are in the registry");
        verbs::first(api, resource, object)
    });
    try_join_all(roles).await?;
    rbac::start(api).await
}
