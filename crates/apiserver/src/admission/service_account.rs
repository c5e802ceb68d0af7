//! Every pod acts as a service account, and finds that account's token where programs look for it.
use super::{Attributes, Operation, push};
use crate::objects;
use api::kinds::find_kind;
use api::names::push_random;
use api::status::Status;
use serde_json::{Value, json};

const MIRROR: &str = "kubernetes.io/config.mirror";
const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME: &str = "kube-api-access-";
/// A little over an hour, which marks it: see the token subresource.
const LIFETIME: i64 = 60 * 60 + 7;

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.is("", "Pod")
        || attributes.is_part()
        || attributes.operation != Operation::Create
    {
        return Ok(());
    }
    let api = attributes.api;
    let namespace = attributes.call.namespace.clone();
    let Some(pod) = attributes.object.as_deref_mut() else { return Ok(()) };
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return check_mirror(attributes);
    }
    let name = match pod["spec"]["serviceAccountName"].as_str().unwrap_or_default() {
        "" => "default".to_owned(),
        name => name.to_owned(),
    };
    pod["spec"]["serviceAccountName"] = name.clone().into();
    pod["spec"]["serviceAccount"] = name.clone().into();
    let accounts = find_kind("v1", "ServiceAccount").expect("accounts are in the registry");
    let account = match objects::get(api, accounts, &namespace, &name).await {
        Ok(account) => account,
        Err(status) => {
            let cause = match status.is_not_found() {
                true => format!("serviceaccount {name:?} not found"),
                false => status.message,
            };
            return Err(attributes.forbidden(format!(
                "error looking up service account {namespace}/{name}: {cause}"
            )));
        }
    };
    let Some(pod) = attributes.object.as_deref_mut() else { return Ok(()) };
    let mounts = pod["spec"]["automountServiceAccountToken"]
        .as_bool()
        .or(account["automountServiceAccountToken"].as_bool())
        .unwrap_or(true);
    if mounts {
        mount_token(pod);
    }
    let secrets = &account["imagePullSecrets"];
    if pod["spec"]["imagePullSecrets"].as_array().is_none_or(Vec::is_empty) && secrets.is_array() {
        pod["spec"]["imagePullSecrets"] = secrets.clone();
    }
    Ok(())
}

/// A mirror of what a kubelet runs by itself acts as nobody.
fn check_mirror(attributes: &Attributes<'_>) -> Result<(), Status> {
    let pod = attributes.object.as_deref().unwrap_or(&Value::Null);
    if pod["spec"]["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) {
        return Err(attributes.forbidden("a mirror pod may not reference service accounts"));
    }
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    for volume in volumes {
        if volume.get("secret").is_some() {
            return Err(attributes.forbidden("a mirror pod may not reference secrets"));
        }
        let mut sources = volume["projected"]["sources"].as_array().into_iter().flatten();
        if sources.any(|source| source.get("serviceAccountToken").is_some()) {
            return Err(attributes
                .forbidden("a mirror pod may not use ServiceAccountToken volume projections"));
        }
    }
    Ok(())
}

/// Mounts a volume with token, CA and namespace into every container that has nothing there.
fn mount_token(pod: &mut Value) {
    let known = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let known = known.filter_map(|volume| volume["name"].as_str());
    let mut name = known.into_iter().find(|name| name.starts_with(VOLUME)).map(str::to_owned);
    let had_volume = name.is_some();
    let volume = name.get_or_insert_with(|| {
        let mut name = VOLUME.to_owned();
        push_random(&mut name, 5, fastrand::u64(..));
        name
    });
    let mount = json!({ "name": volume, "readOnly": true, "mountPath": PATH });
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let mounts = container["volumeMounts"].as_array().map_or(&[][..], Vec::as_slice);
            if mounts.iter().any(|mount| mount["mountPath"] == PATH) {
                continue;
            }
            mounted = true;
            push(&mut container["volumeMounts"], mount.clone());
        }
    }
    if mounted && !had_volume {
        push(&mut pod["spec"]["volumes"], token_volume(volume));
    }
}

fn token_volume(name: &str) -> Value {
    let namespace = json!({ "path": "namespace",
        "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } });
    let ca =
        json!({ "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] });
    json!({ "name": name, "projected": { "defaultMode": 0o644, "sources": [
        { "serviceAccountToken": { "path": "token", "expirationSeconds": LIFETIME } },
        { "configMap": ca },
        { "downwardAPI": { "items": [namespace] } },
    ] } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_has_something_there_keeps_it() {
        let mut pod = json!({"spec": {"containers": [
            {"name": "a"},
            {"name": "b", "volumeMounts": [{"name": "mine", "mountPath": PATH}]},
        ]}});
        mount_token(&mut pod);
        let name = pod["spec"]["volumes"][0]["name"].as_str().expect("a volume").to_owned();
        assert!(name.starts_with(VOLUME) && name.len() == VOLUME.len() + 5, "{name}");
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["name"], name);
        assert_eq!(pod["spec"]["containers"][1]["volumeMounts"].as_array().map(Vec::len), Some(1));
    }
}
