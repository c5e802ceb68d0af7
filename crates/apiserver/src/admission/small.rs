//! Plugins of a few lines: what a new object gets because of its kind.
use super::{Attributes, Operation};
use crate::objects;
use api::kinds::find_kind;
use api::status::Status;
use serde_json::{Value, json};

/// A node is not trusted with pods before it says that it is ready.
pub async fn taint_nodes_by_condition(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    const TAINT: &str = "node.kubernetes.io/not-ready";
    if !attributes.is("", "Node")
        || attributes.is_part()
        || attributes.operation != Operation::Create
    {
        return Ok(());
    }
    if let Some(node) = attributes.object.as_deref_mut() {
        let known = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
        if !known.iter().any(|taint| taint["key"] == TAINT && taint["effect"] == "NoSchedule") {
            add(&mut node["spec"]["taints"], json!({ "key": TAINT, "effect": "NoSchedule" }));
        }
    }
    Ok(())
}

/// Claims and volumes go only when nobody uses them any more: a controller takes these off.
pub async fn storage_object_in_use_protection(
    attributes: &mut Attributes<'_>,
) -> Result<(), Status> {
    let finalizer = match () {
        () if attributes.is("", "PersistentVolumeClaim") => "kubernetes.io/pvc-protection",
        () if attributes.is("", "PersistentVolume") => "kubernetes.io/pv-protection",
        () => return Ok(()),
    };
    if attributes.operation != Operation::Create || attributes.is_part() {
        return Ok(());
    }
    if let Some(object) = attributes.object.as_deref_mut() {
        let known = object["metadata"]["finalizers"].as_array().map_or(&[][..], Vec::as_slice);
        if !known.iter().any(|known| known == finalizer) {
            add(&mut object["metadata"]["finalizers"], finalizer.into());
        }
    }
    Ok(())
}

/// A claim that names no class gets the cluster's default, if there is one.
pub async fn default_storage_class(attributes: &mut Attributes<'_>) -> Result<(), Status> {
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

/// An ingress that names no class gets the cluster's default, if there is one.
pub async fn default_ingress_class(attributes: &mut Attributes<'_>) -> Result<(), Status> {
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
    let all = objects::list(attributes.context.api, resource, "").await?;
    let marked = all
        .into_iter()
        .filter(|class| marks.iter().any(|mark| class["metadata"]["annotations"][mark] == "true"));
    let key = |class: &Value| {
        let text = |field: &str| class["metadata"][field].as_str().unwrap_or_default().to_owned();
        (std::cmp::Reverse(text("creationTimestamp")), text("name"))
    };
    Ok(marked.min_by_key(key))
}

/// A claim grows only where its class says that volumes can.
pub async fn claim_resize(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.is("", "PersistentVolumeClaim") || attributes.is_part() {
        return Ok(());
    }
    let (Some(new), Some(old)) = (attributes.object.as_deref(), attributes.old) else {
        return Ok(());
    };
    let size = |claim: &Value| {
        let text = claim["spec"]["resources"]["requests"]["storage"].as_str()?;
        text.parse::<api::quantity::Quantity>().ok()
    };
    let grows = match (size(new), size(old)) {
        (Some(new), Some(old)) => new > old,
        (Some(_), None) => true,
        _ => false,
    };
    if !grows {
        return Ok(());
    }
    if old["status"]["phase"] != "Bound" {
        return Err(attributes.forbidden("Only bound persistent volume claims can be expanded"));
    }
    let class =
        |claim: &Value| claim["spec"]["storageClassName"].as_str().unwrap_or_default().to_owned();
    let name = class(new);
    let resource = find_kind("storage.k8s.io/v1", "StorageClass").expect("in the registry");
    let may = !name.is_empty()
        && name == class(old)
        && objects::get(attributes.context.api, resource, "", &name)
            .await
            .is_ok_and(|class| class["allowVolumeExpansion"] == true);
    if may {
        return Ok(());
    }
    Err(attributes.forbidden("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"))
}

fn add(list: &mut Value, item: Value) {
    match list {
        Value::Array(all) => all.push(item),
        none => *none = json!([item]),
    }
}
