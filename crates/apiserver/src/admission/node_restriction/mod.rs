//! What a kubelet may write: its own node and what belongs to it, and the pods that it runs.
//!
//! The Node authorizer says which objects a kubelet may touch at all; this looks at what it does to
//! them. Users who are no nodes pass untouched.
mod node;
mod pod;
mod pod_certificate;
mod references;
mod token;

pub use references::names_secret;

use super::{Attributes, Operation, certificates, items, text};
use crate::guard::authn::User;
use crate::state::objects;
use api::group::GroupResource;
use api::kinds::find_kind;
use api::status::Status;
use serde_json::Value;

pub const KINDS: &[(&str, &str)] = &[
    ("", "Pod"),
    ("", "Node"),
    ("", "PersistentVolumeClaim"),
    ("", "ServiceAccount"),
    ("certificates.k8s.io", "PodCertificateRequest"),
    ("coordination.k8s.io", "Lease"),
    ("storage.k8s.io", "CSINode"),
    ("resource.k8s.io", "ResourceSlice"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
];

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !is_node(attributes.user) || attributes.operation == Operation::Connect {
        return Ok(());
    }
    let user = &attributes.user.name;
    let Some(node) = user.strip_prefix("system:node:").filter(|name| !name.is_empty()) else {
        return Err(attributes.forbidden(format!("could not determine node from user {user:?}")));
    };
    let (group, kind) = attributes.call.resource.built_in();
    match (group, kind, attributes.part()) {
        ("", "Pod", "") => pod::itself(attributes, node).await,
        ("", "Pod", "status") => pod::status(attributes, node),
        ("", "Pod", "eviction") => pod::eviction(attributes, node).await,
        ("", "Pod", part) => Err(attributes.forbidden(format!(
            "unexpected pod subresource {part:?}, only 'status' and 'eviction' are allowed"
        ))),
        ("", "Node", _) => node::check(attributes, node),
        ("", "PersistentVolumeClaim", "status") => claim_status(attributes, node),
        ("", "PersistentVolumeClaim", _) => Err(attributes.forbidden("may only update PVC status")),
        ("", "ServiceAccount", "token") => token::check(attributes, node).await,
        ("certificates.k8s.io", "PodCertificateRequest", _) => {
            pod_certificate::check(attributes, node).await
        }
        ("coordination.k8s.io", "Lease", _) => lease(attributes, node),
        ("storage.k8s.io", "CSINode", _) => csi_node(attributes, node),
        ("resource.k8s.io", "ResourceSlice", _) => resource_slice(attributes, node),
        ("certificates.k8s.io", "CertificateSigningRequest", _) => certificate(attributes, node),
        _ => Ok(()),
    }
}

/// Whether a user is a kubelet, as the group says. One without a node's name is refused later.
fn is_node(user: &User) -> bool {
    user.name.starts_with("system:node:") && user.groups.iter().any(|group| group == "system:nodes")
}

fn unexpected(attributes: &Attributes<'_>) -> Status {
    attributes.forbidden(format!("unexpected operation {:?}", attributes.operation.as_str()))
}

/// An object of the cluster. One that is missing is named as upstream's listers do, by its kind.
async fn found(
    attributes: &Attributes<'_>,
    (version, kind): (&str, &str),
    namespace: &str,
    name: &str,
) -> Result<Value, Status> {
    let resource = find_kind(version, kind).expect("it is in the registry");
    match objects::get(attributes.api, resource, namespace, name).await {
        Err(status) if status.is_not_found() => {
            let word = kind.to_ascii_lowercase();
            Err(Status::not_found(GroupResource::new(resource.group, &word), name))
        }
        outcome => outcome,
    }
}

/// Equal, where what is empty is as good as what is missing.
fn same(one: &Value, other: &Value) -> bool {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    };
    one == other || empty(one) && empty(other)
}

/// A kubelet says how far a volume has grown, and nothing else.
fn claim_status(attributes: &Attributes<'_>, node: &str) -> Result<(), Status> {
    let (Operation::Update, Some(old)) = (attributes.operation, attributes.old) else {
        return Err(unexpected(attributes));
    };
    const OPEN: &[(&str, &[&str])] = &[
        ("metadata", &["resourceVersion", "managedFields"]),
        ("status", &["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"]),
    ];
    let differs = |section: &str| {
        let open = OPEN.iter().find(|(name, _)| *name == section).map_or(&[][..], |(_, open)| open);
        let rest = |claim: &Value| {
            let mut fields = claim[section].as_object().cloned().unwrap_or_default();
            fields
                .retain(|name, value| !open.contains(&name.as_str()) && !same(value, &Value::Null));
            fields
        };
        rest(attributes.new_object()) != rest(old)
    };
    let changed: Vec<&str> =
        ["metadata", "spec", "status"].into_iter().filter(|section| differs(section)).collect();
    if changed.is_empty() {
        return Ok(());
    }
    Err(attributes.forbidden(format!(
        "node {node:?} is not allowed to update fields other than status.quantity and status.conditions: {}",
        changed.join(", ")
    )))
}

fn lease(attributes: &Attributes<'_>, node: &str) -> Result<(), Status> {
    const PLACE: &str = "kube-node-lease";
    if attributes.call.namespace != PLACE {
        let text = format!("can only access leases in the {PLACE:?} system namespace");
        return Err(attributes.forbidden(text));
    }
    match attributes.own_name() == node {
        true => Ok(()),
        false => Err(attributes
            .forbidden("can only access node lease with the same name as the requesting node")),
    }
}

fn csi_node(attributes: &Attributes<'_>, node: &str) -> Result<(), Status> {
    if attributes.own_name() != node {
        return Err(attributes
            .forbidden("can only access CSINode with the same name as the requesting node"));
    }
    match attributes.is_sub("status") {
        true => Err(attributes.forbidden("CSIVolumeHealth feature gate is disabled")),
        false => Ok(()),
    }
}

fn resource_slice(attributes: &Attributes<'_>, node: &str) -> Result<(), Status> {
    let (slice, word) = match (attributes.operation, attributes.old) {
        (Operation::Create, _) => (attributes.new_object(), "create"),
        (Operation::Delete, Some(old)) => (old, "delete"),
        _ => return Ok(()),
    };
    match slice["spec"]["nodeName"] == node {
        true => Ok(()),
        false => Err(attributes.forbidden(format!(
            "can only {word} ResourceSlice with the same NodeName as the requesting node"
        ))),
    }
}

/// A node asks for certificates of its own name.
fn certificate(attributes: &Attributes<'_>, node: &str) -> Result<(), Status> {
    let request = attributes.new_object();
    let signer = text(&request["spec"]["signerName"]);
    let of_kubelets = matches!(
        signer,
        "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet"
    );
    if attributes.operation != Operation::Create || !of_kubelets {
        return Ok(());
    }
    let subject = certificates::subject(request)
        .map_err(|cause| attributes.forbidden(format!("unable to parse csr: {cause}")))?;
    match subject.common_name.strip_prefix("system:node:") == Some(node) {
        true => Ok(()),
        false => {
            Err(attributes
                .forbidden(format!("can only create a node CSR with CN=system:node:{node}")))
        }
    }
}

impl Attributes<'_> {
    /// The object's name: for a new one what it says, else the path's.
    fn own_name(&self) -> &str {
        match self.operation {
            Operation::Create => text(&self.new_object()["metadata"]["name"]),
            _ => &self.call.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_has_the_name_and_the_group() {
        let user = |name: &str, group: &str| User {
            name: name.into(),
            groups: vec![group.into()],
            ..User::default()
        };
        assert!(is_node(&user("system:node:a", "system:nodes")));
        assert!(!is_node(&user("system:node:a", "system:authenticated")));
        assert!(!is_node(&user("admin", "system:nodes")));
    }

    #[test]
    fn the_empty_is_as_good_as_the_missing() {
        assert!(same(&json!([]), &Value::Null) && same(&json!({}), &json!([])));
        assert!(!same(&json!([1]), &Value::Null));
    }
}
