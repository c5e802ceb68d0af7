//! Requests for pods' certificates: a kubelet makes them for pods that it runs, and only with what
//! is true of these.
use super::super::plain;
use super::{Attributes, Operation, found, items, text};
use crate::guard::authz;
use api::status::Status;
use serde_json::Value;

pub async fn check(attributes: &Attributes<'_>, node: &str) -> Result<(), Status> {
    if attributes.operation != Operation::Create {
        let operation = attributes.operation.as_str();
        return Err(attributes.forbidden(format!("unexpected operation {operation}")));
    }
    if attributes.is_part() {
        let part = attributes.part();
        return Err(attributes.forbidden(format!("unexpected subresource {part}")));
    }
    let spec = &attributes.new_object()["spec"];
    let word = |field: &str| text(&spec[field]);
    let namespace = &attributes.call.namespace;
    let pod_name = format!("{namespace}/{}", word("podName"));
    if word("nodeName") != node {
        return Err(attributes.forbidden(format!(
            "PodCertificateRequest.Spec.NodeName={:?}, which is not the requesting node {node:?}",
            word("nodeName")
        )));
    }
    let stored = look(attributes, ("v1", "Node"), "", node, "node", node).await?;
    let uid = text(&stored["metadata"]["uid"]);
    if uid != word("nodeUID") {
        return Err(plain(format!(
            "PodCertificateRequest for pod {pod_name:?} names node UID {:?}, inconsistent with the running node ({uid:?})",
            word("nodeUID")
        )));
    }
    let pod = look(attributes, ("v1", "Pod"), namespace, word("podName"), "pod", &pod_name).await?;
    let uid = text(&pod["metadata"]["uid"]);
    if uid != word("podUID") {
        return Err(plain(format!(
            "PodCertificateRequest for pod {pod_name:?} contains pod UID ({:?}) which differs from running pod {uid:?}",
            word("podUID")
        )));
    }
    if pod["spec"]["nodeName"] != node {
        return Err(attributes.forbidden(format!(
            "pod {pod_name:?} is not running on node {node:?} named in the PodCertificateRequest"
        )));
    }
    if pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some() {
        return Err(attributes.forbidden(format!("pod {pod_name:?} is a mirror pod")));
    }
    check_account(attributes, spec, &pod, &pod_name).await?;
    check_signer(attributes, spec, &pod, &pod_name).await
}

/// An object that the request names.
async fn look(
    attributes: &Attributes<'_>,
    kind: (&str, &str),
    namespace: &str,
    name: &str,
    word: &str,
    shown: &str,
) -> Result<Value, Status> {
    found(attributes, kind, namespace, name).await.map_err(|status| {
        let cause = status.message.clone();
        let text = format!(
            "while retrieving {word} {shown:?} named in the PodCertificateRequest: {cause}"
        );
        // What is missing stays missing; all else becomes a refusal.
        if status.is_not_found() { plain(text) } else { attributes.forbidden(text) }
    })
}

async fn check_account(
    attributes: &Attributes<'_>,
    spec: &Value,
    pod: &Value,
    pod_name: &str,
) -> Result<(), Status> {
    let (name, running) =
        (text(&spec["serviceAccountName"]), text(&pod["spec"]["serviceAccountName"]));
    if name != running {
        return Err(attributes.forbidden(format!(
            "PodCertificateRequest for pod {pod_name:?} contains serviceAccountName ({name:?}) that differs from running pod ({running:?})"
        )));
    }
    let namespace = &attributes.call.namespace;
    let shown = format!("{namespace}/{name}");
    let kind = ("v1", "ServiceAccount");
    let account = look(attributes, kind, namespace, name, "service account", &shown).await?;
    let (given, uid) = (text(&spec["serviceAccountUID"]), text(&account["metadata"]["uid"]));
    if given != uid {
        return Err(plain(format!(
            "PodCertificateRequest for pod {pod_name:?} names service account UID {given:?}, which differs from the running service account ({uid:?})"
        )));
    }
    Ok(())
}

async fn check_signer(
    attributes: &Attributes<'_>,
    spec: &Value,
    pod: &Value,
    pod_name: &str,
) -> Result<(), Status> {
    let signer = text(&spec["signerName"]);
    let mut sources =
        items(&pod["spec"]["volumes"]).iter().flat_map(|v| items(&v["projected"]["sources"]));
    if sources.any(|source| source["podCertificate"]["signerName"] == signer) {
        return Ok(());
    }
    let account = text(&spec["serviceAccountName"]);
    let right = authz::Attributes::right(
        "request-serviceaccounts-podcertificate-signer",
        attributes.call.resource.group,
        &signer.replace('/', ":"),
        &attributes.call.namespace,
        account,
    );
    if authz::decide(attributes.api, attributes.user, &right).await.allowed {
        return Ok(());
    }
    Err(attributes.forbidden(format!(
        "pod {pod_name:?} does not mount a podCertificate projected volume for signer {signer:?}"
    )))
}
