//! Claims and ingresses that name no class get the cluster's default, if there is one.
use super::{Attributes, Operation};
use crate::state::objects;
use api::kinds::find_kind;
use api::status::Status;
use serde_json::Value;

pub async fn storage(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    const OLD: &str = "volume.beta.kubernetes.io/storage-class";
    if !attributes.is("", "PersistentVolumeClaim")
        || attributes.is_part()
        || attributes.operation != Operation::Create
    {
        return Ok(());
    }
    let has_class = attributes.object.as_deref().is_some_and(|claim| {
        claim["spec"].get("storageClassName").is_some()
            || claim["metadata"]["annotations"].get(OLD).is_some()
    });
    if has_class {
        return Ok(());
    }
    let class = default_of(attributes, "storage.k8s.io/v1", "StorageClass", "storageclass").await?;
    if let (Some(class), Some(claim)) = (class, attributes.object.as_deref_mut()) {
        claim["spec"]["storageClassName"] = class["metadata"]["name"].clone();
    }
    Ok(())
}

pub async fn ingress(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    const OLD: &str = "kubernetes.io/ingress.class";
    if !attributes.is("networking.k8s.io", "Ingress")
        || attributes.is_part()
        || attributes.operation != Operation::Create
    {
        return Ok(());
    }
    let has_class = attributes.object.as_deref().is_some_and(|ingress| {
        ingress["spec"].get("ingressClassName").is_some()
            || ingress["metadata"]["annotations"].get(OLD).is_some()
    });
    if has_class {
        return Ok(());
    }
    let class =
        default_of(attributes, "networking.k8s.io/v1", "IngressClass", "ingressclass").await?;
    if let (Some(class), Some(ingress)) = (class, attributes.object.as_deref_mut()) {
        ingress["spec"]["ingressClassName"] = class["metadata"]["name"].clone();
    }
    Ok(())
}

/// The class that is marked as the default: the newest of several, the first by name of a second.
async fn default_of(
    attributes: &Attributes<'_>,
    api_version: &str,
    kind: &str,
    word: &str,
) -> Result<Option<Value>, Status> {
    let resource = find_kind(api_version, kind).expect("classes are in the registry");
    let marks = [
        format!("{word}.kubernetes.io/is-default-class"),
        format!("{word}.beta.kubernetes.io/is-default-class"),
    ];
    let all = objects::readable(attributes.api, resource, "").await?;
    let marked = all
        .into_iter()
        .filter(|class| marks.iter().any(|mark| class["metadata"]["annotations"][mark] == "true"));
    let key = |class: &Value| {
        let text = |field: &str| class["metadata"][field].as_str().unwrap_or_default().to_owned();
        (std::cmp::Reverse(text("creationTimestamp")), text("name"))
    };
    Ok(marked.min_by_key(key))
}
