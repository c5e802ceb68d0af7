//! Namespaces that must be there, or that come to be when they are first used.
use super::{Attributes, Operation};
use crate::state::objects;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use serde_json::{Value, json};

pub fn namespaces() -> &'static Resource {
    find_kind("v1", "Namespace").expect("namespaces are in the registry")
}

/// The namespace that a request is in.
pub async fn of(attributes: &Attributes<'_>) -> Result<Value, Status> {
    objects::get(attributes.api, namespaces(), "", &attributes.call.namespace).await
}

fn concerns(attributes: &Attributes<'_>) -> bool {
    !attributes.call.namespace.is_empty() && !attributes.is("", "Namespace")
}

pub async fn provide(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if attributes.operation != Operation::Create || attributes.dry_run() || !concerns(attributes) {
        return Ok(());
    }
    match of(attributes).await {
        Ok(_) => Ok(()),
        Err(status) if status.is_not_found() => {
            let name = &attributes.call.namespace;
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
            });
            let made = objects::first(attributes.api, namespaces(), namespace).await;
            made.map_err(|status| attributes.forbidden(status.message))
        }
        Err(status) => Err(attributes.forbidden(status.message)),
    }
}

pub async fn exists(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if attributes.operation == Operation::Connect || !concerns(attributes) {
        return Ok(());
    }
    of(attributes).await.map(drop)
}
