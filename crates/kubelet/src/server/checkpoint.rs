//! `/checkpoint/NAMESPACE/POD/CONTAINER`: the runtime writes down how a container is at this moment, so that it can go
//! on elsewhere. Whether it can do that is the runtime's affair (`pkg/kubelet/server`, `pkg/kubelet/kubelet.go`).
use super::answer::{self, Refused, Reply};
use super::route::Asked;
use crate::found::{self, State};
use crate::pod;
use crate::runtime::cri;
use crate::worker::Kubelet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder of what was written down, below the kubelet's own.
pub const FOLDER: &str = "checkpoints";

pub async fn checkpoint(
    kubelet: &Arc<Kubelet>,
    namespace: &str,
    name: &str,
    container: &str,
    asked: &Asked<'_>,
) -> Result<Reply, Refused> {
    let pod = kubelet.named(namespace, name);
    let pod = pod.ok_or_else(|| answer::not_found("pod does not exist"))?;
    if pod::container(&pod, container).is_none() {
        return Err(answer::not_found(format!("container {container} does not exist")));
    }
    let timeout = match asked.all("timeout").last() {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| answer::not_found("cannot parse value of timeout parameter"))?,
    };
    let location = location(&kubelet.config.root, &pod, container, kubelet.context.now());
    let location = location.display().to_string();
    let made = write(kubelet, &pod, container, timeout, &location).await;
    made.map_err(|why| {
        answer::internal(format!("checkpointing of {namespace}/{name}/{container} failed ({why})"))
    })?;
    Ok(answer::json(&json!({ "items": [location] })))
}

async fn write(
    kubelet: &Kubelet,
    pod: &Pod,
    container: &str,
    timeout: i64,
    location: &str,
) -> Result<(), String> {
    if timeout < 0 {
        return Err("CheckpointContainer requires the timeout value to be > 0".to_owned());
    }
    let found = found::find(&*kubelet.runtime, pod::uid(pod)).await;
    let found = found.map_err(|error| error.to_string())?;
    let one = found.latest(container).filter(|one| one.state == State::Running);
    let one = one.ok_or_else(|| format!("container {container} not found"))?;
    let (container_id, location) = (one.id.clone(), location.to_owned());
    let request = cri::CheckpointContainerRequest { container_id, location, timeout };
    let made = kubelet.runtime.checkpoint_container(request).await;
    made.map(drop).map_err(|error| error.to_string())
}

fn location(root: &Path, pod: &Pod, container: &str, now: Timestamp) -> PathBuf {
    let (name, namespace) = (pod::name(pod), pod::namespace(pod));
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ");
    root.join(FOLDER).join(format!("checkpoint-{name}_{namespace}-{container}-{time}.tar"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Machine, one};
    use http_body_util::BodyExt;

    async fn ask(kubelet: &Arc<Kubelet>, container: &str, timeout: Option<&str>) -> String {
        let query = timeout.map(|timeout| ("timeout".into(), timeout.into())).into_iter().collect();
        let asked = Asked { rest: Vec::new(), query };
        let reply = checkpoint(kubelet, "default", "web", container, &asked).await;
        let reply = reply.unwrap_or_else(Reply::from);
        let status = reply.status().as_u16();
        let body = reply.into_body().collect().await.unwrap().to_bytes();
        format!("{status} {}", String::from_utf8_lossy(&body))
    }

    #[tokio::test(start_paused = true)]
    async fn the_runtime_writes_down_what_runs() {
        let machine = Machine::new();
        let kubelet = machine.kubelet();
        machine.pass(1).await;
        assert_eq!(ask(&kubelet, "c", None).await, "404 pod does not exist");
        machine.pod(one(json!({})));
        machine.pass(1).await;
        let failed = "500 checkpointing of default/web/c failed";
        assert_eq!(ask(&kubelet, "c", None).await, format!("{failed} (container c not found)"));
        machine.run_kubelet_with(machine.context.clone(), |_| {});
        machine.pass(2).await;
        let folder = kubelet.config.root.join("checkpoints");
        let file = "checkpoint-web_default-c-2026-01-01T00:00:04Z.tar";
        let file = folder.join(file).display().to_string();
        assert_eq!(ask(&kubelet, "c", Some("5")).await, format!("200 {{\"items\":[\"{file}\"]}}"));
        assert!(folder.is_dir());
        assert!(machine.runtime.calls().ends_with(&format!("checkpoint {file} 5")));
        assert_eq!(ask(&kubelet, "x", None).await, "404 container x does not exist");
        let unread = "404 cannot parse value of timeout parameter";
        assert_eq!(ask(&kubelet, "c", Some("soon")).await, unread);
        let negative = "CheckpointContainer requires the timeout value to be > 0";
        assert_eq!(ask(&kubelet, "c", Some("-1")).await, format!("{failed} ({negative})"));
        machine.runtime.cannot_checkpoint();
        let refused = "rpc error: code = Unimplemented desc = checkpoint";
        assert_eq!(ask(&kubelet, "c", None).await, format!("{failed} ({refused})"));
    }
}
