//! Pods: a kubelet mirrors those that it runs by itself, reports on those it runs for others, and
//! removes them when they are gone.
use super::references::references;
use super::{Attributes, Operation, found, items, same, text};
use api::status::Status;
use serde_json::Value;

const MIRROR: &str = "kubernetes.io/config.mirror";
const POD: (&str, &str) = ("v1", "Pod");

pub async fn itself(attributes: &Attributes<'_>, node: &str) -> Result<(), Status> {
    match attributes.operation {
        Operation::Create => {
            mirror(attributes.new_object(), node).map_err(|cause| attributes.forbidden(cause))?;
            let owner = &attributes.new_object()["metadata"]["ownerReferences"][0];
            check_owner(attributes, node, text(&owner["uid"])).await?;
            match references(attributes.new_object()) {
                Ok(None) => Ok(()),
                Ok(Some(what)) => Err(attributes
                    .forbidden(format!("node {node:?} can not create pods that reference {what}"))),
                Err(cause) => Err(attributes
                    .forbidden(format!("error checking mirror pod for API references: {cause}"))),
            }
        }
        Operation::Delete => {
            let (namespace, name) = (&attributes.call.namespace, &attributes.call.name);
            let pod = found(attributes, POD, namespace, name).await?;
            match pod["spec"]["nodeName"] == node {
                true => Ok(()),
                false => Err(attributes.forbidden(format!(
                    "node {node:?} can only delete pods with spec.nodeName set to itself"
                ))),
            }
        }
        other => Err(attributes.forbidden(format!(
            "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
            other.as_str()
        ))),
    }
}

/// A new pod must be a mirror, on the node and owned by it.
fn mirror(pod: &Value, node: &str) -> Result<(), String> {
    let only =
        |what: &str| Err(format!("node {node:?} can only create pods with {what} set to itself"));
    if pod["metadata"]["annotations"].get(MIRROR).is_none() {
        return Err(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if pod["spec"]["nodeName"] != node {
        return only("spec.nodeName");
    }
    let owner = match items(&pod["metadata"]["ownerReferences"]) {
        [] => return only("an owner reference"),
        [owner] => owner,
        _ => return only("a single owner reference"),
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return only("an owner reference");
    }
    if owner["controller"] != true {
        return only("a controller owner reference");
    }
    if owner["blockOwnerDeletion"] == true {
        return Err(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    Ok(())
}

async fn check_owner(attributes: &Attributes<'_>, node: &str, uid: &str) -> Result<(), Status> {
    let stored = match found(attributes, ("v1", "Node"), "", node).await {
        Ok(stored) => stored,
        Err(status) if status.is_not_found() => return Err(status),
        Err(status) => {
            let cause = status.message;
            return Err(attributes
                .forbidden(format!("error looking up node {node} to verify uid: {cause}")));
        }
    };
    let known = text(&stored["metadata"]["uid"]);
    match uid == known {
        true => Ok(()),
        false => {
            Err(attributes
                .forbidden(format!("node {node} UID mismatch: expected {uid} got {known}")))
        }
    }
}

/// What others decide about a pod stays as it was.
const DECIDED: &[(&str, &str)] = &[
    ("resourceClaimStatuses", "resource claim statues"),
    ("extendedResourceClaimStatus", "extended resource claim status"),
    ("nodeAllocatableResourceClaimStatuses", "node allocatable resource claim statuses"),
];

pub fn status(attributes: &Attributes<'_>, node: &str) -> Result<(), Status> {
    let (Operation::Update, Some(old)) = (attributes.operation, attributes.old) else {
        return Err(super::unexpected(attributes));
    };
    let new = attributes.new_object();
    if old["spec"]["nodeName"] != node {
        return Err(attributes.forbidden(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        )));
    }
    if !same(&new["metadata"]["labels"], &old["metadata"]["labels"]) {
        return Err(
            attributes.forbidden(format!("node {node:?} cannot update labels through pod status"))
        );
    }
    let mut decided = DECIDED.iter();
    match decided.find(|(field, _)| !same(&new["status"][*field], &old["status"][*field])) {
        None => Ok(()),
        Some((_, words)) => {
            Err(attributes.forbidden(format!("node {node:?} cannot update {words}")))
        }
    }
}

pub async fn eviction(attributes: &Attributes<'_>, node: &str) -> Result<(), Status> {
    if attributes.operation != Operation::Create {
        let operation = attributes.operation.as_str();
        return Err(attributes.forbidden(format!("unexpected operation {operation}")));
    }
    let pod = found(attributes, POD, &attributes.call.namespace, &attributes.call.name).await?;
    match pod["spec"]["nodeName"] == node {
        true => Ok(()),
        false => Err(attributes.forbidden(format!(
            "node {node} can only evict pods with spec.nodeName set to itself"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Value {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "controller": true});
        json!({"metadata": {"annotations": {(MIRROR): "x"}, "ownerReferences": [owner]},
            "spec": {"nodeName": "n", "containers": [{"name": "a"}]}})
    }

    #[test]
    fn a_kubelet_mirrors_its_own_pods() {
        assert_eq!(mirror(&pod(), "n"), Ok(()));
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 4] = [
            (
                |pod| pod["metadata"]["annotations"] = json!({}),
                "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n\" can only create mirror pods",
            ),
            (
                |pod| pod["spec"]["nodeName"] = "m".into(),
                "node \"n\" can only create pods with spec.nodeName set to itself",
            ),
            (
                |pod| pod["metadata"]["ownerReferences"] = json!([]),
                "node \"n\" can only create pods with an owner reference set to itself",
            ),
            (
                |pod| pod["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = true.into(),
                "node \"n\" must not set blockOwnerDeletion on an owner reference",
            ),
        ];
        for (change, expected) in cases {
            let mut pod = pod();
            change(&mut pod);
            assert_eq!(mirror(&pod, "n").unwrap_err(), expected);
        }
    }
}
