//! Pods as lists: those that are wanted here, and those that something runs of.
use super::answer::{self, Refused, Reply};
use super::route::Asked;
use super::stream;
use crate::found::{self, CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID};
use crate::pod;
use crate::runtime::cri;
use crate::worker::Kubelet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// `/pods`: with the status that the kubelet knows, which the API may not have yet.
pub fn wanted(kubelet: &Arc<Kubelet>) -> Reply {
    let shown = |pod: Arc<Pod>| item(&pod, json!(kubelet.last_status(&pod)));
    answer::json(&list(kubelet.all_pods().into_iter().map(shown).collect()))
}

/// `/allocatedPods`: with the resources that they have been given, and without a word of how they are.
pub fn allocated(kubelet: &Arc<Kubelet>) -> Reply {
    let pods = kubelet.allocated_pods().into_iter().filter(|pod| kubelet.is_active(pod));
    answer::json(&list(pods.map(|pod| item(&pod, json!({}))).collect()))
}

/// An item of a list does not say what it is.
fn item(pod: &Pod, status: Value) -> Value {
    let mut shown = json!(pod);
    shown["status"] = status;
    if let Some(fields) = shown.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    shown
}

/// `/runningpods/`: what the runtime has, whether it is wanted or not.
pub async fn running(kubelet: &Arc<Kubelet>) -> Result<Reply, Refused> {
    let filter = cri::ContainerFilter {
        state: Some(cri::ContainerStateValue {
            state: cri::ContainerState::ContainerRunning.into(),
        }),
        ..cri::ContainerFilter::default()
    };
    let request = cri::ListContainersRequest { filter: Some(filter) };
    let listed = kubelet.runtime.list_containers(request).await.map_err(answer::internal)?;
    let mut pods: BTreeMap<[String; 3], Vec<Value>> = BTreeMap::new();
    for one in listed.containers {
        let label = |key: &str| one.labels.get(key).cloned().unwrap_or_default();
        let key = [label(POD_NAMESPACE), label(POD_NAME), label(POD_UID)];
        let image = one.image.clone().unwrap_or_default().image;
        pods.entry(key)
            .or_default()
            .push(json!({ "name": label(CONTAINER_NAME), "image": image, "resources": {} }));
    }
    let item = |([namespace, name, uid], containers): ([String; 3], Vec<Value>)| {
        json!({
            "metadata": { "namespace": namespace, "name": name, "uid": uid },
            "spec": { "containers": containers }, "status": {},
        })
    };
    Ok(answer::json(&list(pods.into_iter().map(item).collect())))
}

fn list(items: Vec<Value>) -> Value {
    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items })
}

/// `/run/NAMESPACE/POD/CONTAINER?cmd=…`: a command's output, when it has ended.
pub async fn run(
    kubelet: &Arc<Kubelet>,
    namespace: &str,
    name: &str,
    uid: &str,
    container: &str,
    asked: &Asked<'_>,
) -> Result<Reply, Refused> {
    let pod = kubelet.named(namespace, name).filter(|pod| uid.is_empty() || pod::uid(pod) == uid);
    let pod = pod.ok_or_else(|| answer::not_found("pod does not exist"))?;
    let found = found::find(&*kubelet.runtime, pod::uid(&pod)).await.map_err(answer::internal)?;
    let request = cri::ExecSyncRequest {
        container_id: stream::running(&found, container)?,
        cmd: asked.get("cmd").split(' ').map(str::to_owned).collect(),
        timeout: 0,
    };
    let ended = kubelet.runtime.exec_sync(request).await.map_err(answer::internal)?;
    let mut output = ended.stdout;
    output.extend(ended.stderr);
    if ended.exit_code != 0 {
        return Err(answer::internal(format!(
            "command '{}' exited with {}: {}",
            asked.get("cmd"),
            ended.exit_code,
            String::from_utf8_lossy(&output)
        )));
    }
    Ok(answer::of(http::StatusCode::OK, "application/json", output))
}
