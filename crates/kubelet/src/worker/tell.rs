//! Telling the API how a pod is.
use super::{Kubelet, Memory, SyncError};
use crate::found::Found;
use crate::pod;
use crate::status::{self, Told};
use client::source::Patch;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

impl Kubelet {
    /// What is known of a pod: what was told last, and what others say of it.
    pub fn last_status(&self, pod: &Pod) -> PodStatus {
        let memory = self.memories.lock().get(pod::uid(pod)).cloned();
        let told = memory.and_then(|memory| memory.notes.lock().told.clone());
        status::known(told.as_ref(), pod)
    }

    /// The same, before the API has heard of it: the API server may be away. What was said of a pod that this
    /// process has not looked at yet may be long past.
    pub fn newest_status(&self, pod: &Pod) -> PodStatus {
        let memory = self.memories.lock().get(pod::uid(pod)).cloned();
        if let Some(memory) = memory {
            let notes = memory.notes.lock();
            if let Some(status) = &notes.untold {
                return status.clone();
            }
            if notes.is_looked_at {
                return status::known(notes.told.as_ref(), pod);
            }
        }
        status::hearsay(pod::status(pod))
    }

    /// Whether somebody else changed what is the kubelet's to tell of a pod.
    pub fn is_overwritten(&self, pod: &Pod) -> bool {
        let memory = self.memories.lock().get(pod::uid(pod)).cloned();
        memory.is_some_and(|memory| status::is_overwritten(memory.notes.lock().told.as_ref(), pod))
    }

    /// Writes the pod's status if it is not what the API has.
    pub(super) async fn tell(
        &self,
        pod: &Pod,
        found: &Found,
        memory: &Memory,
    ) -> Result<(), SyncError> {
        let (new, old) = self.compose(pod, found, memory);
        self.show(pod, &new, &old, memory);
        if pod::is_static(pod) {
            return Box::pin(self.tell_mirror(pod, found, memory)).await;
        }
        Box::pin(self.write(pod, memory, new, old)).await
    }

    /// Tells the node's agents first: they are here.
    fn show(&self, pod: &Pod, new: &PodStatus, old: &PodStatus, memory: &Memory) {
        let mut notes = memory.notes.lock();
        notes.is_looked_at = true;
        let before = notes.untold.as_ref().unwrap_or(old);
        if status::patch(pod::uid(pod), before, new).is_some() {
            notes.untold = Some(new.clone());
            drop(notes);
            self.pod_watch.updated(pod, new);
        }
    }

    pub(super) async fn write_status(
        &self,
        pod: &Pod,
        found: &Found,
        memory: &Memory,
    ) -> Result<(), SyncError> {
        let (new, old) = self.compose(pod, found, memory);
        Box::pin(self.write(pod, memory, new, old)).await
    }

    async fn write(
        &self,
        pod: &Pod,
        memory: &Memory,
        new: PodStatus,
        old: PodStatus,
    ) -> Result<(), SyncError> {
        let Some(patch) = status::patch(pod::uid(pod), &old, &new) else {
            memory.notes.lock().untold = None;
            return Ok(());
        };
        let patch = Patch::Strategic(patch);
        match self.client.patch_status::<Pod>(pod::namespace(pod), pod::name(pod), patch).await {
            Ok(answer) => {
                self.observe_start(pod, &old, &new);
                let answer = answer.decode::<Pod>();
                let answer = answer.map_err(|error| SyncError::Other(error.to_string()))?;
                let mut notes = memory.notes.lock();
                notes.told = Some(Told::answered(answer));
                notes.untold = None;
                Ok(())
            }
            // It is gone, or another has its name: the informer will say so.
            Err(status) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(status) => Err(status.into()),
        }
    }

    /// How long a pod took that runs now.
    fn observe_start(&self, pod: &Pod, old: &PodStatus, new: &PodStatus) {
        let runs = |status: &PodStatus| status.phase.as_deref() == Some("Running");
        if runs(old) || !runs(new) {
            return;
        }
        let since = |at: Option<&Time>| {
            at.map(|at| self.context.now().duration_since(at.0).as_secs_f64().max(0.0))
        };
        let seen = since(new.start_time.as_ref());
        let made = since(pod.metadata.creation_timestamp.as_ref());
        let metrics = self.context.metrics();
        for (name, seconds) in [
            ("kubelet_pod_start_duration_seconds", seen),
            ("kubelet_pod_start_total_duration_seconds", made),
        ] {
            seconds.into_iter().for_each(|seconds| metrics.observe(name, &[], seconds));
        }
    }

    /// The status as it is to be, and as the API has it.
    fn compose(&self, pod: &Pod, found: &Found, memory: &Memory) -> (PodStatus, PodStatus) {
        let notes = memory.notes.lock();
        let told = notes.told.as_ref();
        // Times of conditions count from what was told last, seen or not.
        let mut base = pod.clone();
        base.status = Some(status::known(told, pod));
        let look = status::Look {
            pod: &base,
            found,
            probed: &notes.probed,
            waiting: &notes.waiting,
            failed: notes.failed.as_ref(),
            disrupted: notes.evicted.as_ref().and_then(|one| one.disruption()),
            resize_pending: notes.resize.pending.as_ref(),
            resizing: notes.resize.progress.as_ref(),
            host_ips: &self.config.node_ips,
            runtime_name: &self.runtime_name,
            now: self.context.now(),
        };
        let mut new = status::generate(&look);
        let lists = [&mut new.init_container_statuses, &mut new.container_statuses];
        for told in lists.into_iter().flatten().flatten() {
            let mut devices = self.devices.health(pod::uid(pod), &told.name);
            let claimed = pod::container(pod, &told.name)
                .map(|(_, container)| self.dra.statuses(pod, &container, self.context.now()));
            devices.extend(claimed.into_iter().flatten());
            told.allocated_resources_status = Some(devices).filter(|all| !all.is_empty());
        }
        (new, status::in_api(told, pod).clone())
    }
}
