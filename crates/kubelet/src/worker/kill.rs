//! Ending containers: the hook first, then the signal, and force when the grace period is over.
use super::finish::gone;
use super::{Kubelet, Memory, SyncError};
use crate::found::Found;
use crate::handler::Target;
use crate::plan::{Step, Why};
use crate::pod::{self, Role};
use crate::runtime::cri;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::sync::Arc;
use std::time::Duration;

/// What is left to a container whose hook took all of its time: upstream's.
const LEAST: i64 = 2;

impl Kubelet {
    pub(super) async fn kill_all(
        &self,
        pod: &Arc<Pod>,
        found: &Found,
        memory: &Memory,
        kills: Vec<Step>,
    ) -> Result<(), SyncError> {
        let ips = self.ips(pod, found);
        let kills = kills.into_iter().filter_map(|step| match step {
            Step::Kill { id, name, why } => Some(self.kill(pod, memory, &ips, id, name, why)),
            _ => None,
        });
        let ended = futures_util::future::join_all(kills).await;
        ended.into_iter().collect()
    }

    async fn kill(
        &self,
        pod: &Arc<Pod>,
        memory: &Memory,
        ips: &[String],
        id: String,
        name: String,
        why: Why,
    ) -> Result<(), SyncError> {
        let known = pod::container(pod, &name);
        let (role, container) = known.unwrap_or_else(|| {
            (Role::Regular, Container { name: name.clone(), ..Container::default() })
        });
        self.note(pod, Some((role, &name)), "Killing", why.message(&name, role));
        let begun = tokio::time::Instant::now();
        let target =
            Target { id: id.clone(), ip: ips.first().cloned().unwrap_or_default(), container };
        let grace = self.grace(pod, &target, why, memory);
        let hook = target.container.lifecycle.as_ref().and_then(|all| all.pre_stop.as_ref());
        if let Some(hook) = hook.filter(|_| grace > 0) {
            let limit = Duration::from_secs(grace.unsigned_abs());
            match tokio::time::timeout(limit, target.run_hook(self, hook)).await {
                Ok(Ok(())) => {}
                Ok(Err(message)) => {
                    tracing::debug!(container = name, "the preStop hook failed: {message}");
                    self.warn(pod, Some((role, &name)), "FailedPreStopHook", "PreStopHook failed");
                }
                Err(_) => {
                    self.warn(pod, Some((role, &name)), "FailedPreStopHook", "PreStopHook failed")
                }
            }
        }
        loop {
            // A pod may be deleted again with less grace while its containers end.
            let current = self.pod(pod::uid(pod)).unwrap_or_else(|| pod.clone());
            let grace = self.grace(&current, &target, why, memory);
            let used = i64::try_from(begun.elapsed().as_secs()).unwrap_or(i64::MAX);
            let least = if grace == 0 { 0 } else { LEAST };
            let request = cri::StopContainerRequest {
                container_id: id.clone(),
                timeout: (grace - used).max(least),
            };
            tokio::select! {
                stopped = self.runtime.stop_container(request) => match stopped {
                    Err(error) if !error.is_not_found() => {
                        self.warn(pod, None, "FailedKillPod", &format!("error killing pod: {error}"));
                        return Err(error.into());
                    }
                    _ => return Ok(()),
                },
                () = memory.changed.notified() => {}
            }
        }
    }

    /// Of a deleted pod what its deletion left of it; else what its probe or the pod says.
    fn grace(&self, pod: &Pod, target: &Target, why: Why, memory: &Memory) -> i64 {
        if why == Why::Ending {
            let now = self.context.now();
            let since = *memory.notes.lock().ending_since.get_or_insert(now);
            let used = now.duration_since(since).as_secs();
            let evicted = memory.notes.lock().evicted.as_ref().map(|one| one.grace);
            let grace = evicted.unwrap_or_else(|| pod::grace(pod));
            return if grace == 0 { 0 } else { (grace - used).max(LEAST) };
        }
        let probe = match why {
            Why::NotLive => target.container.liveness_probe.as_ref(),
            Why::NotStarted => target.container.startup_probe.as_ref(),
            _ => None,
        };
        let own = probe.and_then(|probe| probe.termination_grace_period_seconds);
        own.unwrap_or_else(|| pod::grace(pod))
    }

    /// Ends a container at once and takes it away; its log stays.
    pub(super) async fn remove(&self, pod: &Pod, id: &str, name: &str) -> Result<(), SyncError> {
        tracing::debug!(pod = pod::name(pod), container = name, "all containers begin again");
        let request = cri::StopContainerRequest { container_id: id.to_owned(), timeout: 0 };
        gone(self.runtime.stop_container(request).await)?;
        let request = cri::RemoveContainerRequest { container_id: id.to_owned() };
        gone(self.runtime.remove_container(request).await)
    }

    pub(super) async fn stop_sandbox(&self, id: &str) -> Result<(), SyncError> {
        let request = cri::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        match self.runtime.stop_pod_sandbox(request).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}
