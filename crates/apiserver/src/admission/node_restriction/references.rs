//! What of the API a pod refers to.
use super::{items, text};
use serde_json::Value;

/// Volumes that need nothing of the API.
const PLAIN: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];
/// Volumes that need an object, and which.
const NEEDY: &[(&str, &str)] = &[
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];
const PROJECTED: &[(&str, &str)] = &[
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];
/// Volumes that name a secret, and where.
const SECRETS: &[(&str, &str, &str)] = &[
    ("azureFile", "", "secretName"),
    ("secret", "", "secretName"),
    ("cephfs", "secretRef", "name"),
    ("cinder", "secretRef", "name"),
    ("flexVolume", "secretRef", "name"),
    ("rbd", "secretRef", "name"),
    ("scaleIO", "secretRef", "name"),
    ("iscsi", "secretRef", "name"),
    ("storageos", "secretRef", "name"),
    ("csi", "nodePublishSecretRef", "name"),
];

/// What of the API the pod refers to; a mirror may refer to nothing.
pub fn references(pod: &Value) -> Result<Option<&'static str>, String> {
    let spec = &pod["spec"];
    if !text(&spec["serviceAccountName"]).is_empty() {
        return Ok(Some("serviceaccounts"));
    }
    if names_secret(spec) {
        return Ok(Some("secrets"));
    }
    if names_config_map(spec) {
        return Ok(Some("configmaps"));
    }
    if !items(&spec["resourceClaims"]).is_empty() {
        return Ok(Some("resourceclaims"));
    }
    let is = |volume: &Value, field: &str| volume.get(field).is_some();
    for volume in items(&spec["volumes"]) {
        if PLAIN.iter().any(|source| is(volume, source)) {
            continue;
        }
        if let Some((_, what)) = NEEDY.iter().find(|(source, _)| is(volume, source)) {
            return Ok(Some(what));
        }
        let name = text(&volume["name"]);
        if !is(volume, "projected") {
            return Err(format!("unknown volume type for volume  {name:?}"));
        }
        for source in items(&volume["projected"]["sources"]) {
            if let Some((_, what)) = PROJECTED.iter().find(|(kind, _)| is(source, kind)) {
                return Ok(Some(what));
            }
            if !is(source, "downwardAPI") {
                return Err(format!("unknown source for projected volume {name:?}"));
            }
        }
    }
    Ok(None)
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.into_iter().flat_map(|list| items(&spec[list]))
}

/// Whether an environment, or a part of one, comes from an object.
fn environment(spec: &Value, whole: &str, key: &str) -> bool {
    containers(spec).any(|container| {
        let from = items(&container["envFrom"]).iter().map(|from| &from[whole]["name"]);
        let single = items(&container["env"]).iter().map(|env| &env["valueFrom"][key]["name"]);
        from.chain(single).any(|name| !text(name).is_empty())
    })
}

fn projected(spec: &Value, kind: &str) -> bool {
    let mut sources =
        items(&spec["volumes"]).iter().flat_map(|volume| items(&volume["projected"]["sources"]));
    sources.any(|source| !text(&source[kind]["name"]).is_empty())
}

pub fn names_secret(spec: &Value) -> bool {
    let named = |volume: &Value| {
        SECRETS.iter().any(|(source, reference, field)| {
            let source = &volume[*source];
            let place = if reference.is_empty() { source } else { &source[*reference] };
            !text(&place[*field]).is_empty()
        })
    };
    items(&spec["imagePullSecrets"]).iter().any(|secret| !text(&secret["name"]).is_empty())
        || environment(spec, "secretRef", "secretKeyRef")
        || items(&spec["volumes"]).iter().any(named)
        || projected(spec, "secret")
}

fn names_config_map(spec: &Value) -> bool {
    environment(spec, "configMapRef", "configMapKeyRef")
        || items(&spec["volumes"])
            .iter()
            .any(|volume| !text(&volume["configMap"]["name"]).is_empty())
        || projected(spec, "configMap")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mirror_refers_to_nothing() {
        let with = |field: &str, value: Value| {
            let mut pod = json!({"spec": {"containers": [{"name": "a"}]}});
            pod["spec"][field] = value;
            references(&pod).map(Option::unwrap_or_default)
        };
        assert_eq!(with("serviceAccountName", json!("")), Ok(""));
        assert_eq!(with("serviceAccountName", json!("a")), Ok("serviceaccounts"));
        assert_eq!(with("imagePullSecrets", json!([{"name": "s"}])), Ok("secrets"));
        assert_eq!(
            with("volumes", json!([{"name": "v", "secret": {"secretName": "s"}}])),
            Ok("secrets")
        );
        assert_eq!(with("volumes", json!([{"name": "v", "hostPath": {}}])), Ok(""));
        assert_eq!(
            with("volumes", json!([{"name": "v", "csi": {}}])),
            Ok("csidrivers (via CSI volumes)")
        );
        assert_eq!(
            with(
                "volumes",
                json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}])
            ),
            Ok("serviceaccounts (via projected volumes)")
        );
        assert_eq!(
            with("volumes", json!([{"name": "v"}])),
            Err("unknown volume type for volume  \"v\"".into())
        );
        let env = json!([{"name": "a", "env": [{"name": "x", "valueFrom": {"configMapKeyRef": {"name": "m"}}}]}]);
        assert_eq!(with("containers", env), Ok("configmaps"));
    }
}
