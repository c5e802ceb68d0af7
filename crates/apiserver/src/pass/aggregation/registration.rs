//! An APIService for each group and version that this server serves itself.
use super::{api_services, priorities};
use crate::server::ApiServer;
use crate::state::keys::status_of;
use crate::state::objects;
use crate::state::stored;
use crate::verbs;
use api::kinds::{self, Registry};
use api::status::Status;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Says of an APIService that the server keeps it.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// The APIServices of everything that is built in.
pub fn built_in() -> Vec<Value> {
    let mut all = Vec::new();
    for (group, versions) in kinds::groups() {
        for version in versions {
            if let Some(priority) = priorities::of(group, version) {
                all.push(local(group, version, priority, "onstart"));
            }
        }
    }
    all
}

fn local(group: &str, version: &str, priority: (i64, i64), managed: &str) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": format!("{version}.{group}"), "labels": { MANAGED: managed } },
        "spec": { "group": group, "version": version,
            "groupPriorityMinimum": priority.0, "versionPriority": priority.1 },
    })
}

/// Keeps an APIService for every version that a definition serves, and for no other, as long as the
/// server runs. Only what changes is written: a thousand definitions are nothing to read again and again.
pub async fn follow_definitions(api: &ApiServer) -> Result<(), Status> {
    let present = objects::readable(api, api_services(), "").await?;
    let name =
        |service: &Value| service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let ours = present.iter().filter(|service| service["metadata"]["labels"][MANAGED] == "true");
    let mut registered: BTreeSet<String> = ours.map(name).collect();
    let mut changes = api.registry_changes();
    register(api, &mut registered).await?;
    let api = api.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = api.stopping() => return,
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
            }
            if let Err(error) = register(&api, &mut registered).await {
                tracing::warn!(%error, "failed to register the groups of definitions");
            }
        }
    });
    Ok(())
}

async fn register(api: &ApiServer, registered: &mut BTreeSet<String>) -> Result<(), Status> {
    let wanted = wanted(&api.registry());
    for (name, (group, version)) in &wanted {
        if !registered.contains(name) {
            // One that somebody made by hand is theirs.
            let service = local(group, version, priorities::DEFINED, "true");
            objects::first(api, api_services(), service).await?;
            registered.insert(name.clone());
        }
    }
    let gone: Vec<String> =
        registered.iter().filter(|name| !wanted.contains_key(*name)).cloned().collect();
    for name in gone {
        remove(api, &name).await?;
        registered.remove(&name);
    }
    Ok(())
}

/// The versions that definitions serve, by the name that their APIService has.
fn wanted(registry: &Registry) -> BTreeMap<String, (&'static str, &'static str)> {
    let defined = registry.rows().iter().filter(|row| row.definition.is_some());
    let named =
        defined.map(|row| (format!("{}.{}", row.version, row.group), (row.group, row.version)));
    named.collect()
}

async fn remove(api: &ApiServer, name: &str) -> Result<(), Status> {
    let resource = api_services();
    let found = match verbs::current(api, resource, "", name).await {
        Err(status) if status.is_not_found() => return Ok(()),
        found => found?,
    };
    let service = stored::decode(&found, resource)?;
    if service["metadata"]["labels"][MANAGED] != "true" {
        return Ok(());
    }
    let removed = api.store().delete(found.key.clone(), found.mod_revision).await;
    removed.map(drop).map_err(|error| status_of(error, resource))
}

/// An APIService that has become this server's own is available.
pub async fn settle_local(api: &ApiServer, service: &Value) -> Result<(), Status> {
    let now = Timestamp::now();
    let (reason, message) = ("Local", "Local APIServices are always available");
    let put = |service: &mut Value| {
        super::availability::put_condition(service, "True", reason, message, now)
    };
    if !put(&mut service.clone()) {
        return Ok(());
    }
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    let changed = objects::modify(api, api_services(), ("", name), false, |service| {
        if service["spec"].get("service").is_none() {
            put(service);
        }
        Ok(())
    });
    match changed.await {
        Err(status) if !status.is_not_found() => Err(status),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_is_registered_but_registration_itself() {
        let names: Vec<String> = built_in()
            .iter()
            .map(|service| service["metadata"]["name"].as_str().expect("a name").to_owned())
            .collect();
        assert!(names.contains(&"v1.".to_owned()) && names.contains(&"v2.autoscaling".to_owned()));
        assert!(!names.iter().any(|name| name.ends_with("apiregistration.k8s.io")));
    }
}
