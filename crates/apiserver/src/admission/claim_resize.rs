//! A claim grows only where its class says that volumes can.
use super::Attributes;
use crate::state::objects;
use api::kinds::find_kind;
use api::status::Status;
use serde_json::Value;

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
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
        && objects::get(attributes.api, resource, "", &name)
            .await
            .is_ok_and(|class| class["allowVolumeExpansion"] == true);
    if may {
        return Ok(());
    }
    Err(attributes.forbidden("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"))
}
