//! Nothing is created in a namespace that does not exist or is going; some never go.
use super::{Attributes, Operation};
use crate::state::objects;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use serde::Deserialize;
use store::KeyValue;

const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let call = attributes.call;
    if is_namespace(&call.resource) {
        if attributes.operation == Operation::Delete && IMMORTAL.contains(&&*call.name) {
            return Err(Status::forbidden(
                call.resource.group_resource(),
                &call.name,
                "this namespace may not be deleted",
            ));
        }
        return Ok(());
    }
    // A review says nothing of its namespace: that would leak whether there is one.
    let is_review = call.resource.group == "authorization.k8s.io";
    if attributes.operation != Operation::Create || call.namespace.is_empty() || is_review {
        return Ok(());
    }
    let namespaces = find_kind("v1", "Namespace").expect("namespaces are in the registry");
    let namespace = objects::found(attributes.api, namespaces, "", &call.namespace).await?;
    if !is_terminating(&namespace) {
        return Ok(());
    }
    let place = &call.namespace;
    let text =
        format!("unable to create new content in namespace {place} because it is being terminated");
    Err(attributes.forbidden(text).with_cause(
        "NamespaceTerminating",
        format!("namespace {place} is being terminated"),
        "metadata.namespace",
    ))
}

/// Every creation asks this: the one field is read, and no tree is made.
fn is_terminating(namespace: &KeyValue) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Namespace {
        status: Status,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        phase: String,
    }
    let read: Result<Namespace, _> = serde_json::from_slice(&namespace.value);
    read.is_ok_and(|namespace| namespace.status.phase == "Terminating")
}

fn is_namespace(resource: &Resource) -> bool {
    resource.is("", "Namespace")
}
