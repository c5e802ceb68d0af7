//! Every pod acts as a service account, and finds that account's token where programs look for it.
use super::node_restriction::names_secret;
use super::{Attributes, Operation, items, plain, push, text};
use crate::state::objects;
use api::kinds::find_kind;
use api::names::push_random;
use api::status::Status;
use serde_json::{Value, json};
use std::time::Duration;

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
    let account = find_account(attributes, &name).await?;
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
    check_secrets(attributes, &account, SECRET_LISTS)
}

/// Somebody who comes between may have changed it again; and a debugger's container comes later.
pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let lists = match (attributes.operation, attributes.part()) {
        (Operation::Create, "") => SECRET_LISTS,
        (Operation::Update, "ephemeralcontainers") => EPHEMERAL,
        _ => return Ok(()),
    };
    let pod = attributes.new_object();
    let is_mirror = pod["metadata"]["annotations"].get(MIRROR).is_some();
    if is_mirror && attributes.creates() {
        return check_mirror(attributes);
    }
    let name = text(&pod["spec"]["serviceAccountName"]).to_owned();
    if name.is_empty() {
        let (place, pod) = (&attributes.call.namespace, text(&pod["metadata"]["name"]));
        return Err(
            attributes.forbidden(format!("no service account specified for pod {place}/{pod}"))
        );
    }
    let account = find_account(attributes, &name).await?;
    check_secrets(attributes, &account, lists)
}

/// How long the default account of a new namespace is waited for.
const PATIENCE: Duration = Duration::from_millis(1500);

/// The account that a pod acts as. Every namespace gets a default one soon after it is made: that
/// one is waited for.
async fn find_account(attributes: &Attributes<'_>, name: &str) -> Result<Value, Status> {
    let accounts = find_kind("v1", "ServiceAccount").expect("accounts are in the registry");
    let (api, place) = (attributes.api, &attributes.call.namespace);
    let mut found = objects::get(api, accounts, place, name).await;
    if name == "default" && found.as_ref().is_err_and(Status::is_not_found) {
        let made = objects::wait_for(api, accounts, place, name);
        if tokio::time::timeout(PATIENCE, made).await.is_ok() {
            found = objects::get(api, accounts, place, name).await;
        }
    }
    found.map_err(|status| {
        let cause = match status.is_not_found() {
            true => format!("serviceaccount {name:?} not found"),
            false => status.message,
        };
        attributes.forbidden(format!("error looking up service account {place}/{name}: {cause}"))
    })
}

/// Lists of containers, and how their refusals begin.
type Lists = &'static [(&'static str, &'static str)];
const SECRET_LISTS: Lists = &[("initContainers", "init container"), ("containers", "container")];
const EPHEMERAL: Lists = &[("ephemeralContainers", "ephemeral container")];

/// An account may insist that its pods use no secrets but those that it names.
fn check_secrets(attributes: &Attributes<'_>, account: &Value, lists: Lists) -> Result<(), Status> {
    let insists = &account["metadata"]["annotations"]["kubernetes.io/enforce-mountable-secrets"];
    if !matches!(text(insists), "1" | "t" | "T" | "TRUE" | "true" | "True") {
        return Ok(());
    }
    match foreign_secret(attributes.new_object(), account, lists) {
        None => Ok(()),
        // Upstream forgets to make this one a refusal.
        Some(cause) if lists == EPHEMERAL => Err(plain(cause)),
        Some(cause) => Err(attributes.forbidden(cause)),
    }
}

fn foreign_secret(pod: &Value, account: &Value, lists: Lists) -> Option<String> {
    let of = text(&account["metadata"]["name"]);
    let known = |list: &str, name: &str| items(&account[list]).iter().any(|s| s["name"] == name);
    let refused = |what: String, name: &str| {
        format!(
            "{what} secret.secretName=\"{name}\" is not allowed because service account {of} does not reference that secret"
        )
    };
    let whole = lists == SECRET_LISTS;
    for volume in items(&pod["spec"]["volumes"]).iter().filter(|_| whole) {
        if let Some(name) = volume["secret"]["secretName"].as_str().filter(|n| !known("secrets", n))
        {
            return Some(format!(
                "volume with secret.secretName=\"{name}\" is not allowed because service account {of} does not reference that secret"
            ));
        }
    }
    for (list, word) in lists {
        for container in items(&pod["spec"][*list]) {
            let own = text(&container["name"]);
            for variable in items(&container["env"]) {
                let name = variable["valueFrom"]["secretKeyRef"]["name"].as_str();
                if let Some(name) = name.filter(|name| !known("secrets", name)) {
                    let variable = text(&variable["name"]);
                    return Some(refused(
                        format!("{word} {own} with envVar {variable} referencing"),
                        name,
                    ));
                }
            }
            for from in items(&container["envFrom"]) {
                if let Some(name) =
                    from["secretRef"]["name"].as_str().filter(|n| !known("secrets", n))
                {
                    return Some(refused(format!("{word} {own} with envFrom referencing"), name));
                }
            }
        }
    }
    let pulls = items(&pod["spec"]["imagePullSecrets"]).iter().enumerate().filter(|_| whole);
    let mut foreign = pulls.map(|(i, secret)| (i, text(&secret["name"])));
    let (i, name) = foreign.find(|(_, name)| !known("imagePullSecrets", name))?;
    Some(format!(
        "imagePullSecrets[{i}].name=\"{name}\" is not allowed because service account {of} does not reference that imagePullSecret"
    ))
}

/// A mirror of what a kubelet runs by itself acts as nobody.
fn check_mirror(attributes: &Attributes<'_>) -> Result<(), Status> {
    let pod = attributes.object.as_deref().unwrap_or(&Value::Null);
    if pod["spec"]["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) {
        return Err(attributes.forbidden("a mirror pod may not reference service accounts"));
    }
    if names_secret(&pod["spec"]) {
        return Err(attributes.forbidden("a mirror pod may not reference secrets"));
    }
    for volume in items(&pod["spec"]["volumes"]) {
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
    fn an_account_may_insist_on_its_own_secrets() {
        let account = json!({"metadata": {"name": "a"}, "secrets": [{"name": "mine"}]});
        let check = |spec: Value| foreign_secret(&json!({"spec": spec}), &account, SECRET_LISTS);
        let volume = |name: &str| json!({"volumes": [{"secret": {"secretName": name}}]});
        assert_eq!(check(volume("mine")), None);
        assert_eq!(
            check(volume("other")).as_deref(),
            Some(
                "volume with secret.secretName=\"other\" is not allowed because service account a does not reference that secret"
            )
        );
        let env = json!({"containers": [{"name": "c", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "other"}}}]}]});
        assert_eq!(
            check(env).as_deref(),
            Some(
                "container c with envVar E referencing secret.secretName=\"other\" is not allowed because service account a does not reference that secret"
            )
        );
        assert_eq!(
            check(json!({"imagePullSecrets": [{"name": "mine"}]})).as_deref(),
            Some(
                "imagePullSecrets[0].name=\"mine\" is not allowed because service account a does not reference that imagePullSecret"
            )
        );
    }

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
