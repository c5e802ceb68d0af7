//! A pod that is to end does not wait for what was begun for it: a hook that hangs, an image that never comes. And
//! what probes say is told also while something takes its time. (Upstream cancels the sync of a pod when it is
//! deleted, `pkg/kubelet/pod_workers.go`, and its probes write to the status on their own.)
use super::{Kubelet, Memory, SyncError};
use crate::found;
use crate::pod;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

impl Kubelet {
    /// Whether the pod is to end, whatever is being done for it.
    pub(super) fn is_called_off(&self, pod: &Pod, memory: &Memory) -> bool {
        let is_ending = |current: Arc<Pod>| pod::is_deleting(&current);
        memory.notes.lock().failed.is_some() || self.pod(pod::uid(pod)).is_none_or(is_ending)
    }

    /// What comes of it, if the pod is still wanted then.
    pub(super) async fn unless_called_off<T>(
        &self,
        pod: &Pod,
        memory: &Memory,
        doing: impl Future<Output = T>,
    ) -> Option<T> {
        let called_off = async {
            loop {
                let changed = memory.changed.notified();
                if self.is_called_off(pod, memory) {
                    return;
                }
                changed.await;
            }
        };
        tokio::select! {
            done = doing => Some(done),
            () = called_off => None,
        }
    }

    /// Whatever is done for a pod, what its probes say meanwhile is told.
    pub(super) async fn telling_meanwhile<T>(
        &self,
        pod: &Arc<Pod>,
        memory: &Memory,
        doing: impl Future<Output = T>,
    ) -> T {
        tokio::select! {
            done = doing => done,
            never = self.tell_of_probes(pod, memory) => never,
        }
    }

    /// Never ends.
    async fn tell_of_probes<T>(&self, pod: &Arc<Pod>, memory: &Memory) -> T {
        loop {
            memory.probed.notified().await;
            let told = async {
                let found = found::find(&*self.runtime, pod::uid(pod)).await?;
                let current = self.pod(pod::uid(pod)).unwrap_or_else(|| pod.clone());
                self.tell(&self.given(&current), &found, memory).await
            };
            if let Err::<(), SyncError>(error) = told.await {
                tracing::debug!(pod = pod::name(pod), "failed to tell of a pod: {error}");
            }
        }
    }
}
