//! `apply --prune`: what was applied before and is not among what is applied now goes.
use super::Apply;
use crate::builder::{Info, Request};
use crate::cluster::{collection, propagation};
use crate::failure::{Failure, Outcome};
use crate::last_applied;
use crate::mapper::Resource;
use crate::print::Telling;
use crate::session::Session;
use crate::write::DryRun;
use client::source::Delete;
use serde_json::Value;

/// What is pruned unless others are named: upstream's list, in its order.
const KINDS: [(&str, &str); 15] = [
    ("v1", "ConfigMap"),
    ("v1", "Endpoints"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Pod"),
    ("v1", "ReplicationController"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("networking.k8s.io/v1", "Ingress"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("v1", "Namespace"),
];

pub async fn run(
    session: &mut Session,
    apply: &Apply<'_>,
    infos: &[Info],
    telling: &mut Telling,
) -> Outcome {
    let resources = resources(apply).await?;
    let mut namespaces: Vec<&str> = infos
        .iter()
        .filter(|info| info.resource.is_namespaced())
        .map(|info| &*info.namespace)
        .collect();
    if apply.cluster.namespace_given {
        namespaces.push(&apply.cluster.namespace);
    }
    namespaces.sort_unstable();
    namespaces.dedup();
    let seen: Vec<&str> =
        apply.applied.iter().filter_map(|object| object["metadata"]["uid"].as_str()).collect();
    for resource in &resources {
        let places: &[&str] = if resource.is_namespaced() { &namespaces } else { &[""] };
        // A namespace is not pruned by who works in one.
        if !resource.is_namespaced() && apply.cluster.namespace_given {
            continue;
        }
        for namespace in places {
            prune(session, apply, resource, namespace, &seen, telling).await?;
        }
    }
    Ok(())
}

async fn resources(apply: &Apply<'_>) -> Outcome<Vec<Resource>> {
    let mapper = apply.cluster.mapper().await?;
    let mut found = Vec::new();
    let allowed = apply.arguments.list("prune-allowlist");
    for text in allowed {
        let parts: Vec<&str> = text.split('/').collect();
        let [group, version, kind] = parts[..] else {
            return Err(format!(
                "invalid GroupVersionKind format: {text}, please follow <group/version/kind>"
            )
            .into());
        };
        let version = match group {
            "core" | "" => version.to_owned(),
            group => format!("{group}/{version}"),
        };
        let resource = mapper.of_kind(&version, kind).ok_or_else(|| {
            Failure::Plain(format!(
                "error retrieving RESTMappings to prune: no matches for kind \"{kind}\" in version \"{version}\""
            ))
        })?;
        found.push(resource.clone());
    }
    if allowed.is_empty() {
        let known = KINDS.iter().filter_map(|(version, kind)| mapper.of_kind(version, kind));
        found.extend(known.cloned());
    }
    Ok(found)
}

async fn prune(
    session: &mut Session,
    apply: &Apply<'_>,
    resource: &Resource,
    namespace: &str,
    seen: &[&str],
    telling: &mut Telling,
) -> Outcome {
    let selector = Request::of(apply.arguments).selector;
    let of = collection(&resource.api, namespace, &selector, "")?;
    for object in apply.cluster.list(of, 500).await? {
        if !is_pruned(&object, seen) {
            continue;
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if apply.dry_run != DryRun::Client {
            let grace = apply.arguments.number("grace-period");
            let options = Delete {
                grace_period_seconds: Some(grace).filter(|grace| *grace >= 0),
                propagation: Some(propagation(apply.arguments)?),
                dry_run: apply.dry_run == DryRun::Server,
                ..Delete::default()
            };
            apply.cluster.delete(&resource.api, namespace, name, options).await?;
        }
        telling.tell(&object, "pruned", &mut session.out)?;
    }
    Ok(())
}

/// It was applied once, and not now.
fn is_pruned(object: &Value, seen: &[&str]) -> bool {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    last_applied::has(object) && !seen.contains(&uid)
}
