//! What events of resizes say.
use crate::pod::{self, Role};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceClaim, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;
use std::collections::BTreeMap;

/// What an event says: what the pod asks for, as JSON in upstream's order (`pkg/kubelet/events/resize.go`).
pub fn summary(what: &str, pod: &Pod, generation: i64, error: &str) -> String {
    let of = |wanted: fn(Role) -> bool| -> Vec<Asked> {
        let all = pod::containers(pod).filter(|(role, _)| wanted(*role));
        all.map(|(_, one)| Asked::by(one)).collect()
    };
    let summary = Summary {
        init_containers: of(|role| matches!(role, Role::Init | Role::Sidecar)),
        containers: of(|role| role == Role::Regular),
        generation,
        error,
    };
    match serde_json::to_string(&summary) {
        Ok(text) => format!("Pod resize {what}: {text}"),
        Err(_) => format!("Pod resize {what}"),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Asked>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Asked>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct Asked {
    name: String,
    resources: AskedResources,
}

#[derive(Serialize)]
struct AskedResources {
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<BTreeMap<String, Quantity>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<BTreeMap<String, Quantity>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claims: Option<Vec<ResourceClaim>>,
}

impl Asked {
    fn by(container: &Container) -> Asked {
        let ResourceRequirements { limits, requests, claims } =
            container.resources.clone().unwrap_or_default();
        let resources = AskedResources { limits, requests, claims };
        Asked { name: container.name.clone(), resources }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_say_what_is_asked_for() {
        let amounts = json!({ "cpu": "2", "memory": "1Gi" });
        let resources = json!({ "requests": amounts, "limits": amounts });
        let container = json!({ "name": "c", "resources": resources });
        let pod = json!({ "metadata": {}, "spec": { "containers": [container] } });
        let pod = serde_json::from_value(pod).unwrap();
        let text = summary("OutOfcpu", &pod, 3, "no room");
        let amounts = r#"{"cpu":"2","memory":"1Gi"}"#;
        let resources = format!(r#"{{"limits":{amounts},"requests":{amounts}}}"#);
        let containers = format!(r#"[{{"name":"c","resources":{resources}}}]"#);
        let expected = format!(
            r#"Pod resize OutOfcpu: {{"containers":{containers},"generation":3,"error":"no room"}}"#
        );
        assert_eq!(text, expected);
    }
}
