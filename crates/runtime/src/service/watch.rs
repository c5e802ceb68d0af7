//! Listening to a shim: who ended, and whether the shim itself is still there.
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::records::Sandbox;
use super::{Service, now};
use crate::cri::v1::{ContainerEventResponse, ContainerEventType};
use crate::shim::protocol::{Answer, Request};
use crate::shim::spec::Exit;

/// Until a shim must say what it runs.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(15);

impl Service {
    /// Listens to a sandbox's shim until it is gone. Returns once the connection stands, so that
    /// nothing that happens afterwards is missed.
    pub(super) async fn watch(&self, sandbox: &Arc<Sandbox>) -> std::io::Result<()> {
        let connect = async {
            let mut stream = UnixStream::connect(sandbox.socket()).await?;
            let request = serde_json::to_vec(&Request::Watch)?;
            stream.write_all(&(request.len() as u32).to_le_bytes()).await?;
            stream.write_all(&request).await?;
            let first = read(&mut stream).await?;
            std::io::Result::Ok((stream, first))
        };
        // A shim that has something to do takes a moment; one that takes longer was stopped.
        let (mut stream, first) = tokio::time::timeout(PATIENCE, connect).await??;
        if let Answer::Running(running) = first {
            for (id, started) in running {
                let container = self.inner.containers.lock().get(&id).cloned();
                if let Some(container) = container {
                    container.set_started(started);
                }
            }
        }
        let (service, sandbox) = (self.clone(), sandbox.clone());
        tokio::spawn(async move {
            while let Ok(answer) = read(&mut stream).await {
                if let Answer::Exited { id, exit } = answer {
                    service.exited(&id, exit);
                }
            }
            service.shim_gone(&sandbox);
        });
        Ok(())
    }

    fn exited(&self, id: &str, exit: Exit) {
        let container = self.inner.containers.lock().get(id).cloned();
        let (code, reason) = (exit.code, exit.reason.clone());
        if let Some(container) = container
            && container.set_exit(exit)
        {
            tracing::info!("container {id} has ended with {code} ({reason})");
            if !container.may_tell_end() {
                return;
            }
            self.tell(&container.id, ContainerEventType::ContainerStoppedEvent);
        }
    }

    /// Without a shim nothing of the sandbox runs; what its containers left behind says how they
    /// ended.
    pub(super) fn shim_gone(&self, sandbox: &Sandbox) {
        let containers: Vec<_> = {
            let all = self.inner.containers.lock();
            all.values().filter(|c| c.record.sandbox_id == sandbox.id).cloned().collect()
        };
        for container in containers {
            if container.is_running() {
                crate::cgroup::kill_all(&container.group.folders());
                self.exited(&container.id, container.settle(lost()));
            }
        }
        if let Err(error) = sandbox.stopped() {
            tracing::warn!("failed to record that sandbox {} is gone: {error}", sandbox.id);
        }
    }

    pub(super) fn tell(&self, container_id: &str, kind: ContainerEventType) {
        let container = self.inner.containers.lock().get(container_id).cloned();
        let sandbox_id = container.as_ref().map(|container| container.record.sandbox_id.clone());
        let sandbox = sandbox_id
            .as_ref()
            .or(Some(&container_id.to_owned()))
            .and_then(|id| self.inner.sandboxes.lock().get(id).cloned());
        let statuses = sandbox.as_ref().map(|sandbox| self.container_statuses(&sandbox.id));
        // Nobody may be listening.
        let _ = self.inner.events.send(ContainerEventResponse {
            container_id: container_id.to_owned(),
            container_event_type: kind.into(),
            created_at: now(),
            pod_sandbox_status: sandbox.map(|sandbox| self.sandbox_status(&sandbox)),
            containers_statuses: statuses.unwrap_or_default(),
        });
    }
}

/// How a container ended whose end nobody saw.
pub(super) fn lost() -> Exit {
    Exit {
        code: 255,
        at: now(),
        oom_killed: false,
        message: "the runtime lost the container".to_owned(),
        reason: "Unknown".to_owned(),
    }
}

async fn read(stream: &mut UnixStream) -> std::io::Result<Answer> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut body).await?;
    Ok(serde_json::from_slice(&body)?)
}
