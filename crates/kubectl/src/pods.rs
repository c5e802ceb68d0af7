//! Which pod and which container is meant where somebody names something else, or nothing.
use crate::builder::{self, Request, Target};
use crate::cluster::{Cluster, collection};
use crate::failure::{Failure, Outcome};
use client::ApiResource;
use client::source::Collection;
use serde_json::Value;
use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::time::Duration;

pub fn resource() -> ApiResource {
    ApiResource::custom("", "v1", "pods", "Pod", api::kinds::Scope::Namespaced)
}

/// The pod that a word means: `web`, `pod/web`, `deployment/web`, `svc/web`.
pub async fn find(cluster: &Cluster, word: &str, patience: Duration) -> Outcome<Value> {
    let words = match word.contains('/') {
        true => vec![word.to_owned()],
        false => return cluster.get(&resource(), &cluster.namespace, word).await,
    };
    let request = Request { words, ..Request::default() };
    let targets = builder::targets(cluster, &request).await?;
    let Some(target) = targets.into_iter().next() else { return Err("no pod is named".into()) };
    of_target(cluster, &request, target, patience).await
}

/// The first pod of a file's object, or of whatever else is named.
pub async fn of_target(
    cluster: &Cluster,
    request: &Request,
    target: Target,
    patience: Duration,
) -> Outcome<Value> {
    let infos = builder::fetch(cluster, request, target, true).await?;
    let Some(info) = infos.into_iter().next() else { return Err("no objects were found".into()) };
    if info.object["kind"] == "Pod" && info.object["apiVersion"] == "v1" {
        return Ok(info.object);
    }
    first_of(cluster, &info.object, patience).await
}

/// The pods of a workload or a service.
pub fn of_object(object: &Value) -> Outcome<Collection> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let selector = selector(object).ok_or_else(|| {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        Failure::Plain(format!(
            "cannot get the logs from {version}, Kind={kind}: selector is not known"
        ))
    })?;
    collection(&resource(), namespace, &selector, "")
}

/// The labels that a workload's pods have, as a selector's text.
pub fn selector(object: &Value) -> Option<String> {
    let selector = &object["spec"]["selector"];
    let mut parts: Vec<String> = Vec::new();
    let plain = match object["kind"].as_str()? {
        "Service" | "ReplicationController" => selector,
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" => {
            &selector["matchLabels"]
        }
        _ => return None,
    };
    for (key, value) in plain.as_object().into_iter().flatten() {
        parts.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for rule in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = rule["key"].as_str().unwrap_or_default();
        let values = rule["values"].as_array().into_iter().flatten();
        let values: Vec<&str> = values.filter_map(Value::as_str).collect();
        let values = values.join(",");
        parts.push(match rule["operator"].as_str()? {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        });
    }
    (!parts.is_empty()).then(|| parts.join(","))
}

async fn first_of(cluster: &Cluster, object: &Value, patience: Duration) -> Outcome<Value> {
    let of = of_object(object)?;
    let pods = cluster.list(of.clone(), 500).await?;
    if let Some(best) = best(pods) {
        return Ok(best);
    }
    let mut look = |pod: Option<&Value>| {
        Ok(match pod {
            Some(pod) => ControlFlow::Break(pod.clone()),
            None => ControlFlow::Continue(()),
        })
    };
    let found = crate::watching::until_any(cluster, of, patience, &mut look).await?;
    found.ok_or_else(|| "timed out waiting for the condition".into())
}

/// Of several pods the one that most likely can be talked to: assigned, running, ready, for long.
pub fn best(mut pods: Vec<Value>) -> Option<Value> {
    pods.sort_by_key(|pod| {
        let phase = match pod["status"]["phase"].as_str() {
            Some("Running") => 0,
            Some("Unknown") => 1,
            Some("Pending") => 2,
            _ => 3,
        };
        let restarts: i64 = pod["status"]["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|status| status["restartCount"].as_i64())
            .sum();
        let created = pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        (pod["spec"]["nodeName"].is_null(), phase, Reverse(is_ready(pod)), restarts, created)
    });
    pods.into_iter().next()
}

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// Every container's name with what it is.
pub fn containers(pod: &Value) -> Vec<(&str, &'static str)> {
    let lists = [("containers", ""), ("ephemeralContainers", "ephem"), ("initContainers", "init")];
    let mut found = Vec::new();
    for (list, kind) in lists {
        let all = pod["spec"][list].as_array().into_iter().flatten();
        found.extend(all.filter_map(|one| Some((one["name"].as_str()?, kind))));
    }
    found
}

/// `a, b, c (init)`
pub fn shown_containers(pod: &Value) -> String {
    let all = containers(pod);
    let shown = all.iter().map(|(name, kind)| match *kind {
        "" => (*name).to_owned(),
        kind => format!("{name} ({kind})"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// The container that is meant, and what is said about the choice.
pub fn container(pod: &Value, named: Option<&str>) -> Outcome<(String, Option<String>)> {
    let all = containers(pod);
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    if let Some(named) = named {
        if all.iter().any(|(other, _)| *other == named) {
            return Ok((named.to_owned(), None));
        }
        let shown = shown_containers(pod);
        return Err(format!("container {named} is not valid for pod {name} out of: {shown}").into());
    }
    let annotation =
        pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str();
    if let Some(chosen) = annotation.filter(|chosen| all.iter().any(|(other, _)| other == chosen)) {
        return Ok((chosen.to_owned(), None));
    }
    let Some((first, _)) = all.first() else {
        return Err(format!("no container is in pod {name}").into());
    };
    let told = (all.len() > 1)
        .then(|| format!("Defaulted container {first:?} out of: {}", shown_containers(pod)));
    Ok(((*first).to_owned(), told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_pod_that_can_be_talked_to_is_taken() {
        let pod = |name: &str, phase: &str, ready: &str| {
            json!({ "metadata": { "name": name }, "spec": { "nodeName": "n" }, "status": { "phase": phase,
                "conditions": [{ "type": "Ready", "status": ready }] } })
        };
        let pods = vec![
            pod("a", "Pending", "False"),
            pod("b", "Running", "False"),
            pod("c", "Running", "True"),
        ];
        assert_eq!(best(pods).unwrap()["metadata"]["name"], "c");
    }

    #[test]
    fn a_container_is_chosen_and_it_is_told() {
        let pod = json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "a" }, { "name": "b" }],
            "initContainers": [{ "name": "i" }] } });
        assert_eq!(
            container(&pod, None).unwrap(),
            ("a".to_owned(), Some("Defaulted container \"a\" out of: a, b, i (init)".to_owned()))
        );
        assert_eq!(container(&pod, Some("i")).unwrap(), ("i".to_owned(), None));
        assert_eq!(
            container(&pod, Some("x")).unwrap_err().message(),
            "error: container x is not valid for pod p out of: a, b, i (init)"
        );
    }

    #[test]
    fn workloads_select_their_pods() {
        let set = json!({ "kind": "ReplicaSet", "spec": { "selector": { "matchLabels": { "a": "b" },
            "matchExpressions": [{ "key": "c", "operator": "In", "values": ["d", "e"] }] } } });
        assert_eq!(selector(&set).unwrap(), "a=b,c in (d,e)");
        assert_eq!(selector(&json!({ "kind": "ConfigMap" })), None);
    }
}
