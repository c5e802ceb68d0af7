//! Resources that change while a pod runs: what a pod is given is what it asks for once that fits;
//! until then it keeps what it has, and a condition says so (`pkg/kubelet/allocation`).
mod feasible;
mod summary;

use super::allocations::Allocated;
use super::{Kubelet, Memory, SyncError};
use crate::admission::{self, Refusal};
use crate::cgroups;
use crate::found::Found;
use crate::plan::Plan;
use crate::pod;
use crate::runtime::cri;
use feasible::{Settings, feasible};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use std::io;
use std::sync::Arc;
use summary::summary;

const PENDING: &str = "PodResizePending";
const IN_PROGRESS: &str = "PodResizeInProgress";
/// The reason of a change that cannot be made, however much room there is.
const INFEASIBLE: &str = "Infeasible";

/// How far a pod's resize is, as its conditions tell it.
#[derive(Debug, Clone, Default)]
pub struct Resize {
    /// Why the pod cannot be given what it asks for now: `Deferred` or `Infeasible`, and a message.
    pub pending: Option<(String, String)>,
    /// What of that has been told by an event: the reason, for which generation.
    told: Option<(String, i64)>,
    /// What it has been given, and does not have yet.
    pub progress: Option<Progress>,
    /// What the kubelet before this one told has been read.
    is_read: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    pub generation: i64,
    /// Why it could not be done so far.
    pub error: Option<String>,
}

impl Resize {
    /// The kubelet before this one may have told of it: what goes on is not told again.
    fn read(&mut self, pod: &Pod) {
        if std::mem::replace(&mut self.is_read, true) {
            return;
        }
        let told = pod::status(pod).conditions.iter().flatten();
        for one in told.filter(|one| one.status == "True") {
            let generation = one.observed_generation.unwrap_or_default();
            let reason = one.reason.clone().unwrap_or_default();
            match one.type_.as_str() {
                PENDING => self.told = Some((reason, generation)),
                IN_PROGRESS => {
                    let error = one.message.clone().filter(|_| reason == "Error");
                    self.progress = Some(Progress { generation, error });
                }
                _ => {}
            }
        }
    }
}

impl Kubelet {
    /// Every pod that is wanted here, with the resources that it has been given: what it asks for besides nobody
    /// else has to do without.
    pub fn allocated_pods(&self) -> Vec<Arc<Pod>> {
        self.all_pods().iter().map(|pod| self.given(pod)).collect()
    }

    /// A pod with what it has been given; the kubelet before this one may have told.
    pub(super) fn given(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let wanted = wanted(pod);
        let known = self.allocations.get(pod::uid(pod));
        let known = known.unwrap_or_else(|| reported(pod, &wanted));
        if known == wanted { pod.clone() } else { Arc::new(with(pod, &known)) }
    }

    /// The pod with the resources that it has been given.
    pub(super) fn allocate(&self, pod: &Arc<Pod>, memory: &Memory) -> Arc<Pod> {
        let uid = pod::uid(pod);
        let wanted = wanted(pod);
        let before = self.allocations.get(uid);
        let known = before.clone().unwrap_or_else(|| reported(pod, &wanted));
        let is_refused = {
            let mut notes = memory.notes.lock();
            notes.resize.read(pod);
            notes.failed.is_some()
        };
        // What ends gets nothing more, and waits for nothing.
        let ends = pod::is_terminal(pod) || pod::is_deleting(pod) || is_refused;
        if before.is_none() && !ends {
            self.allocations.set(uid, known.clone());
        }
        if known == wanted || ends {
            let mut notes = memory.notes.lock();
            (notes.resize.pending, notes.resize.told) = (None, None);
            return if known == wanted { pod.clone() } else { Arc::new(with(pod, &known)) };
        }
        let given = Arc::new(with(pod, &known));
        match self.may_have(pod, &given) {
            Ok(()) => {
                self.allocations.set(uid, wanted);
                let generation = pod.metadata.generation.unwrap_or_default();
                let mut notes = memory.notes.lock();
                (notes.resize.pending, notes.resize.told) = (None, None);
                notes.resize.progress = Some(Progress { generation, error: None });
                drop(notes);
                self.note(pod, None, "ResizeStarted", summary("started", pod, generation, ""));
                pod.clone()
            }
            Err(refusal) => {
                self.defer(pod, memory, refusal);
                given
            }
        }
    }

    /// Whether a pod can be given what it asks for, if it has what is `given`.
    fn may_have(&self, pod: &Pod, given: &Pod) -> Result<(), Refusal> {
        let settings = Settings {
            enforcement: &self.enforcement,
            has_cpus: self.config.cpu_policy.is_some(),
            has_memory: self.config.memory_policy.is_some(),
        };
        feasible(pod, given, &settings)?;
        let others: Vec<Arc<Pod>> =
            self.allocated_pods().into_iter().filter(|other| self.counts(other, pod)).collect();
        admission::fits(pod, &self.allocatable(), &others)
    }

    /// The pod keeps what it has; the first time for a reason an event says so.
    fn defer(&self, pod: &Pod, memory: &Memory, refusal: Refusal) {
        let Refusal { reason: why, message } = refusal;
        let (reason, event) = match why == INFEASIBLE {
            true => (INFEASIBLE, "ResizeInfeasible"),
            false => ("Deferred", "ResizeDeferred"),
        };
        let generation = pod.metadata.generation.unwrap_or_default();
        let told = Some((reason.to_owned(), generation));
        let mut notes = memory.notes.lock();
        notes.resize.pending = Some((reason.to_owned(), message.clone()));
        let before = std::mem::replace(&mut notes.resize.told, told.clone());
        drop(notes);
        if before != told {
            self.warn(pod, None, event, &summary(&why, pod, generation, &message));
        }
    }

    /// What a pod has been given it has once nothing of the plan is about that.
    pub(super) fn follow_resize(&self, pod: &Pod, plan: &Plan, memory: &Memory) {
        let generation = pod.metadata.generation.unwrap_or_default();
        let mut notes = memory.notes.lock();
        if pod::is_terminal(pod) || pod::is_deleting(pod) {
            notes.resize.progress = None;
        } else if plan.resizes() {
            notes.resize.progress.get_or_insert(Progress { generation, error: None });
        } else if notes.enforced == pod::spec(pod).resources
            && let Some(done) = notes.resize.progress.take()
        {
            drop(notes);
            let note = summary("completed", pod, done.generation, "");
            self.note(pod, None, "ResizeCompleted", note);
        }
    }

    /// It is tried again; an event tells it once.
    pub(super) fn resize_failed(&self, pod: &Pod, memory: &Memory, error: &SyncError) {
        let error = error.to_string();
        let generation = pod.metadata.generation.unwrap_or_default();
        let mut notes = memory.notes.lock();
        let progress = notes.resize.progress.get_or_insert(Progress { generation, error: None });
        let generation = progress.generation;
        if progress.error.replace(error.clone()).as_ref() != Some(&error) {
            drop(notes);
            self.warn(pod, None, "ResizeError", &summary("error", pod, generation, &error));
        }
    }

    /// Something ended: others may have room now for what they ask for.
    pub(super) fn wake_deferred(&self) {
        let memories = self.memories.lock();
        let waits =
            memories.iter().filter(|(_, memory)| memory.notes.lock().resize.pending.is_some());
        waits.for_each(|(uid, _)| self.queue.add(uid.clone()));
    }

    pub(super) async fn resize(
        &self,
        pod: &Pod,
        id: &str,
        limits: cri::LinuxContainerResources,
    ) -> Result<(), SyncError> {
        let request = cri::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(limits),
            ..cri::UpdateContainerResourcesRequest::default()
        };
        // A group may not have more than the one it is in: whichever comes first, the other follows.
        let first = self.make_groups(pod);
        self.runtime.update_container_resources(request).await?;
        first
            .or_else(|_| self.make_groups(pod))
            .map_err(|error| SyncError::Other(error.to_string()))
    }

    /// The control groups of a pod as it is to be limited now.
    pub(super) fn make_groups(&self, pod: &Pod) -> io::Result<()> {
        if !self.config.cgroups_per_qos {
            return Ok(());
        }
        let settings =
            cgroups::Settings { enforcement: &self.enforcement, pids: self.config.pod_pids };
        cgroups::make_for(&self.config.cgroup_root, pod, &self.allocated_pods(), &settings)
    }

    /// What the pod as a whole may use is what it has been given, also while it runs.
    pub(super) async fn resize_pod(&self, pod: &Pod, found: &Found, memory: &Memory) {
        let whole = pod::spec(pod).resources.clone();
        let before = memory.notes.lock().enforced.clone();
        if before == whole || found.sandbox().is_none() || pod::is_deleting(pod) {
            return;
        }
        // What this process has not set itself was enforced by the one before it.
        if let Some(before) = &before
            && let Err(error) = self.may_shrink_pod(found, before, whole.as_ref()).await
        {
            return self.resize_failed(pod, memory, &error);
        }
        match self.make_groups(pod) {
            Ok(()) => memory.notes.lock().enforced = whole,
            // Containers may have to give something up first: they are next.
            Err(error) => tracing::debug!(pod = pod::name(pod), "failed to resize: {error}"),
        }
    }
}

fn of(container: &Container) -> ResourceRequirements {
    container.resources.clone().unwrap_or_default()
}

fn wanted(pod: &Pod) -> Allocated {
    Allocated {
        containers: pod::containers(pod).map(|(_, one)| (one.name.clone(), of(one))).collect(),
        whole: pod::spec(pod).resources.clone(),
    }
}

/// What the kubelet before this one told that it had given.
fn reported(pod: &Pod, wanted: &Allocated) -> Allocated {
    let status = pod::status(pod);
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let mut known = wanted.clone();
    for told in lists.into_iter().flatten().flatten() {
        if let (Some(known), Some(resources)) =
            (known.containers.get_mut(&told.name), &told.resources)
        {
            known.limits.clone_from(&resources.limits);
            known.requests.clone_from(&resources.requests);
        }
    }
    if let (Some(known), Some(told)) = (&mut known.whole, &status.resources) {
        known.limits.clone_from(&told.limits);
        known.requests.clone_from(&told.requests);
    }
    known
}

fn with(pod: &Pod, allocated: &Allocated) -> Pod {
    let mut pod = pod.clone();
    let Some(spec) = &mut pod.spec else { return pod };
    spec.resources.clone_from(&allocated.whole);
    let all = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    for container in all {
        if let Some(known) = allocated.containers.get(&container.name) {
            container.resources = Some(known.clone());
        }
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(cpu: &str) -> Pod {
        let container = json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } });
        serde_json::from_value(json!({ "metadata": {}, "spec": { "containers": [container] } }))
            .unwrap()
    }

    #[test]
    fn what_the_kubelet_before_told_is_not_told_again() {
        let mut pod = pod("1");
        let conditions = json!({ "conditions": [
            { "type": "PodResizePending", "status": "True", "reason": "Deferred", "observedGeneration": 4 },
            { "type": "PodResizeInProgress", "status": "True", "reason": "Error", "message": "no", "observedGeneration": 3 } ] });
        pod.status = Some(serde_json::from_value(conditions).unwrap());
        let mut resize = Resize::default();
        resize.read(&pod);
        assert_eq!(resize.told, Some(("Deferred".to_owned(), 4)));
        let error = Some("no".to_owned());
        assert_eq!(resize.progress, Some(Progress { generation: 3, error }));
        // What is told by this one counts from then on.
        resize.progress = None;
        resize.read(&pod);
        assert_eq!(resize.progress, None);
    }

    #[test]
    fn what_was_given_before_is_kept() {
        let mut pod = pod("2");
        let told = json!({ "containerStatuses": [{ "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "resources": { "requests": { "cpu": "1" } } }] });
        pod.status = Some(serde_json::from_value(told).unwrap());
        let known = reported(&pod, &wanted(&pod));
        let kept = with(&pod, &known);
        assert_eq!(admission::requests(&kept)["cpu"], 1000);
    }
}
