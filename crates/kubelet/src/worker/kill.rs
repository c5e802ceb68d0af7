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
use tokio::time::Instant;

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
        let begun = Instant::now();
        let target =
            Target { id: id.clone(), ip: ips.first().cloned().unwrap_or_default(), container };
        let grace = self.left(pod, &target, why, memory, begun);
        let hook = target.container.lifecycle.as_ref().and_then(|all| all.pre_stop.as_ref());
        if let Some(hook) = hook.filter(|_| grace > 0) {
            let hook = target.run_hook(self, pod, hook);
            if !self.within_grace(pod, &target, why, memory, begun, hook).await {
                self.warn(pod, Some((role, &name)), "FailedPreStopHook", "PreStopHook failed");
            }
        }
        loop {
            let changed = memory.changed.notified();
            let timeout = self.left(pod, &target, why, memory, begun);
            let request = cri::StopContainerRequest { container_id: id.clone(), timeout };
            tokio::select! {
                stopped = self.runtime.stop_container(request) => match stopped {
                    Err(error) if !error.is_not_found() => {
                        self.warn(pod, None, "FailedKillPod", &format!("error killing pod: {error}"));
                        return Err(error.into());
                    }
                    _ => return Ok(()),
                },
                () = changed => {}
            }
        }
    }

    /// Whether a hook ended well in the time that its container has to end.
    async fn within_grace(
        &self,
        pod: &Arc<Pod>,
        target: &Target,
        why: Why,
        memory: &Memory,
        begun: Instant,
        hook: impl Future<Output = Result<(), String>>,
    ) -> bool {
        let mut hook = std::pin::pin!(hook);
        loop {
            let changed = memory.changed.notified();
            let left = self.left(pod, target, why, memory, begun);
            let until = Instant::now() + Duration::from_secs(left.unsigned_abs());
            tokio::select! {
                ended = &mut hook => {
                    let name = &target.container.name;
                    return ended
                        .inspect_err(|why| tracing::debug!(container = name, "preStop: {why}"))
                        .is_ok();
                }
                () = tokio::time::sleep_until(until) => return false,
                () = changed => {}
            }
        }
    }

    /// Seconds that a container has left to end in. A pod may be deleted, or deleted again with less grace, while
    /// its containers end: then what counts is its deletion, else what its probe or the pod says.
    fn left(
        &self,
        pod: &Arc<Pod>,
        target: &Target,
        why: Why,
        memory: &Memory,
        begun: Instant,
    ) -> i64 {
        let current = self.pod(pod::uid(pod)).unwrap_or_else(|| pod.clone());
        let (grace, used) = if why == Why::Ending || self.is_called_off(pod, memory) {
            let now = self.context.now();
            let mut notes = memory.notes.lock();
            let since = *notes.ending_since.get_or_insert(now);
            let evicted = notes.evicted.as_ref().map(|one| one.grace);
            let used = now.duration_since(since).as_secs();
            (evicted.unwrap_or_else(|| pod::grace(&current)), used)
        } else {
            let probe = match why {
                Why::NotLive => target.container.liveness_probe.as_ref(),
                Why::NotStarted => target.container.startup_probe.as_ref(),
                _ => None,
            };
            let own = probe.and_then(|probe| probe.termination_grace_period_seconds);
            let used = i64::try_from(begun.elapsed().as_secs()).unwrap_or(i64::MAX);
            (own.unwrap_or_else(|| pod::grace(&current)), used)
        };
        if grace == 0 { 0 } else { grace.saturating_sub(used).max(LEAST) }
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
