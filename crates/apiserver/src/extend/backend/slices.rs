//! The EndpointSlices of a service.
use crate::server::ApiServer;
use crate::state::{objects, stored};
use api::kinds::find_kind;
use api::status::Status;
use serde_json::Value;
use store::cache::At;

/// The slices of a service. Those of others in its namespace are told by their bytes, mostly, and not
/// read.
pub async fn slices_of(
    api: &ApiServer,
    namespace: &str,
    service: &str,
) -> Result<Vec<Value>, Status> {
    let slices = find_kind("discovery.k8s.io/v1", "EndpointSlice").expect("slices are a kind");
    let found = objects::stored(api, slices, namespace, At::Latest).await?;
    let quoted = format!("\"{service}\"");
    let named = found
        .iter()
        .filter(|stored| memchr::memmem::find(&stored.value, quoted.as_bytes()).is_some());
    let read = named
        .filter_map(|stored| api.unreadable().skip(stored, slices, stored::decode(stored, slices)));
    let is_its =
        |slice: &Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service;
    Ok(read.filter(is_its).collect())
}
