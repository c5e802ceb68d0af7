//! What an empty store begins with, so that the first client finds a cluster.
use crate::resources::{ApiServer, status_of};
use crate::stored;
use crate::verbs::begin;
use api::codec::json;
use api::kinds::find_kind;
use api::status::Status;
use jiff::Timestamp;
use serde_json::json;
use store::WriteOptions;

const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Creates what is missing; what is there stays as it is.
pub async fn bootstrap(api: &ApiServer) -> Result<(), Status> {
    let resource = find_kind("v1", "Namespace").expect("namespaces are in the registry");
    for name in NAMESPACES {
        let labels = json!({ "kubernetes.io/metadata.name": name });
        let mut namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels },
        });
        begin(&mut namespace, resource, Timestamp::now());
        let namespace =
            json::canonicalize(namespace, resource.ty()).map_err(Status::internal_error)?.value;
        let bytes = stored::encode(namespace, resource)?;
        // A conflict is another start's namespace.
        let _ = api
            .store()
            .create(resource.key("", name).as_str(), bytes, WriteOptions::default())
            .await
            .map_err(|error| status_of(error, resource))?;
    }
    Ok(())
}
