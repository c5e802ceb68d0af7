//! Every image is pulled anew, so that nobody runs one that another's credentials brought.
use super::{Attributes, Operation, items};
use api::field::{Error, Path};
use api::status::Status;
use serde_json::Value;

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

fn concerns(attributes: &Attributes<'_>) -> bool {
    let images = |pod: &Value| -> Vec<Value> {
        let containers = LISTS.iter().flat_map(|list| items(&pod["spec"][list]));
        containers.map(|container| container["image"].clone()).collect()
    };
    if !attributes.writes() {
        return false;
    }
    let Some(old) = attributes.old.filter(|_| attributes.operation == Operation::Update) else {
        return true;
    };
    let known = images(old);
    images(attributes.new_object()).iter().any(|image| !known.contains(image))
}

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !concerns(attributes) {
        return Ok(());
    }
    let Some(pod) = attributes.object.as_deref_mut() else { return Ok(()) };
    for list in LISTS {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            container["imagePullPolicy"] = "Always".into();
        }
    }
    for volume in pod["spec"]["volumes"].as_array_mut().into_iter().flatten() {
        if volume.get("image").is_some() {
            volume["image"]["pullPolicy"] = "Always".into();
        }
    }
    Ok(())
}

/// Somebody who comes between may have changed it again.
pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !concerns(attributes) {
        return Ok(());
    }
    let (pod, spec) = (attributes.new_object(), Path::new("spec"));
    let mut refused = Vec::new();
    let mut check = |path: &Path<'_>, policy: &Value| {
        let policy = policy.as_str().unwrap_or_default();
        if policy != "Always" {
            let error = Error::not_supported(path, policy, ["Always"]);
            refused.push(attributes.forbidden(error).message);
        }
    };
    for list in LISTS {
        for (i, container) in items(&pod["spec"][list]).iter().enumerate() {
            let list = spec.child(list);
            check(&list.index(i).child("imagePullPolicy"), &container["imagePullPolicy"]);
        }
    }
    for (i, volume) in items(&pod["spec"]["volumes"]).iter().enumerate() {
        if let Some(image) = volume.get("image") {
            let list = spec.child("volumes");
            check(&list.index(i).child("image").child("pullPolicy"), &image["pullPolicy"]);
        }
    }
    match refused.is_empty() {
        true => Ok(()),
        false => Err(super::plain(super::joined(&refused))),
    }
}
