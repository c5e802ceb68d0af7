//! Tokens: a kubelet gets those of pods that it runs, for the audiences that these pods name.
use super::super::{joined, plain};
use super::{Attributes, Operation, found, items, text};
use crate::guard::authz;
use api::status::Status;
use serde_json::Value;

/// In-tree volumes that a driver serves today, and which.
const MIGRATED: &[(&str, &str)] = &[
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("cinder", "cinder.csi.openstack.org"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
    ("portworxVolume", "pxd.portworx.com"),
];

pub async fn check(attributes: &Attributes<'_>, node: &str) -> Result<(), Status> {
    if attributes.operation != Operation::Create {
        return Ok(());
    }
    let request = attributes.new_object();
    let bound = &request["spec"]["boundObjectRef"];
    let (name, uid) = (text(&bound["name"]), text(&bound["uid"]));
    if bound["apiVersion"] != "v1" || bound["kind"] != "Pod" || name.is_empty() {
        return Err(attributes.forbidden("node requested token not bound to a pod"));
    }
    if uid.is_empty() {
        return Err(attributes.forbidden("node requested token with a pod binding without a uid"));
    }
    let pod = found(attributes, ("v1", "Pod"), &attributes.call.namespace, name).await?;
    if pod["metadata"]["uid"] != uid {
        return Err(attributes.forbidden(format!("the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated")));
    }
    if pod["spec"]["nodeName"] != node {
        let text = "node requested token bound to a pod scheduled on a different node";
        return Err(attributes.forbidden(text));
    }
    check_audience(attributes, &pod).await
}

async fn check_audience(attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
    let audience = match items(&attributes.new_object()["spec"]["audiences"]) {
        [] => "",
        [one] => text(one),
        _ => return Err(attributes.forbidden("node may only request 0 or 1 audiences")),
    };
    match is_named(attributes, pod, audience).await {
        Ok(true) => return Ok(()),
        Ok(false) => {}
        Err(status) => {
            let cause = status.message;
            return Err(
                attributes.forbidden(format!("error validating audience {audience:?}: {cause}"))
            );
        }
    }
    let call = attributes.call;
    let verb = "request-serviceaccounts-token-audience";
    let right = authz::Attributes::right(verb, "", audience, &call.namespace, &call.name);
    if authz::decide(attributes.api, attributes.user, &right).await.allowed {
        return Ok(());
    }
    let user = &attributes.user.name;
    Err(attributes
        .forbidden(format!("{user} is not authorized to request tokens for audience {audience:?}")))
}

/// Whether one of the pod's volumes, or the driver behind it, wants tokens for the audience.
async fn is_named(
    attributes: &Attributes<'_>,
    pod: &Value,
    audience: &str,
) -> Result<bool, Status> {
    let mut faults = Vec::new();
    for volume in items(&pod["spec"]["volumes"]) {
        let mut tokens = items(&volume["projected"]["sources"])
            .iter()
            .filter_map(|source| source.get("serviceAccountToken"));
        if tokens.any(|token| text(&token["audience"]) == audience) {
            return Ok(true);
        }
        let driver = match driver_of(attributes, pod, volume).await {
            Ok(Some(driver)) => driver,
            Ok(None) => continue,
            Err(status) => {
                faults.push(status.message);
                continue;
            }
        };
        match found(attributes, ("storage.k8s.io/v1", "CSIDriver"), "", &driver).await {
            Ok(driver) => {
                let mut wanted = items(&driver["spec"]["tokenRequests"]).iter();
                if wanted.any(|request| text(&request["audience"]) == audience) {
                    return Ok(true);
                }
            }
            Err(status) => faults.push(status.message),
        }
    }
    if faults.is_empty() { Ok(false) } else { Err(plain(joined(&faults))) }
}

/// The driver that serves a volume.
async fn driver_of(
    attributes: &Attributes<'_>,
    pod: &Value,
    volume: &Value,
) -> Result<Option<String>, Status> {
    let claim = if volume["ephemeral"].get("volumeClaimTemplate").is_some() {
        format!("{}-{}", text(&pod["metadata"]["name"]), text(&volume["name"]))
    } else if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
        claim.to_owned()
    } else {
        return Ok(driver_in(volume));
    };
    let namespace = &attributes.call.namespace;
    let claim = found(attributes, ("v1", "PersistentVolumeClaim"), namespace, &claim).await?;
    let name = text(&claim["spec"]["volumeName"]);
    let stored = found(attributes, ("v1", "PersistentVolume"), "", name).await?;
    Ok(driver_in(&stored["spec"]))
}

fn driver_in(source: &Value) -> Option<String> {
    let migrated = || MIGRATED.iter().find(|(field, _)| source.get(field).is_some());
    source["csi"]["driver"].as_str().or_else(|| Some(migrated()?.1)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::driver_in;
    use serde_json::json;

    #[test]
    fn old_volumes_have_drivers_too() {
        assert_eq!(driver_in(&json!({"csi": {"driver": "d"}})).as_deref(), Some("d"));
        assert_eq!(driver_in(&json!({"azureDisk": {}})).as_deref(), Some("disk.csi.azure.com"));
        assert_eq!(driver_in(&json!({"emptyDir": {}})), None);
    }
}
