//! Resources that change while a pod runs: what a pod is given is what it asks for once that fits;
//! until then it keeps what it has, and a condition says so (`pkg/kubelet/allocation`).
use super::{Kubelet, Memory, SyncError};
use crate::admission::{self, Amounts};
use crate::cgroups;
use crate::found::Found;
use crate::pod;
use crate::runtime::cri;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// What a pod has been given: by container, and as a whole.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allocated {
    containers: BTreeMap<String, ResourceRequirements>,
    whole: Option<ResourceRequirements>,
}

impl Kubelet {
    /// Every pod that is wanted here, with the resources that it has been given: what it asks for besides nobody
    /// else has to do without.
    pub fn allocated_pods(&self) -> Vec<Arc<Pod>> {
        let given = |pod: Arc<Pod>| {
            let memory = self.memories.lock().get(pod::uid(&pod)).cloned();
            self.given(&pod, &memory.unwrap_or_default())
        };
        self.all_pods().into_iter().map(given).collect()
    }

    /// A pod with what it has been given; the kubelet before this one may have told.
    pub(super) fn given(&self, pod: &Arc<Pod>, memory: &Memory) -> Arc<Pod> {
        let known = memory.notes.lock().allocated.clone();
        let wanted = wanted(pod);
        let known = known.unwrap_or_else(|| reported(pod, &wanted));
        if known == wanted { pod.clone() } else { Arc::new(with(pod, &known)) }
    }

    /// The pod with the resources that it has been given.
    pub(super) fn allocate(&self, pod: &Arc<Pod>, memory: &Memory) -> Arc<Pod> {
        let mut notes = memory.notes.lock();
        let wanted = wanted(pod);
        let known = notes.allocated.get_or_insert_with(|| reported(pod, &wanted)).clone();
        // What ends gets nothing more, and waits for nothing.
        let ends = pod::is_terminal(pod) || pod::is_deleting(pod);
        if known == wanted || ends {
            notes.resize_pending = None;
            return if known == wanted { pod.clone() } else { Arc::new(with(pod, &known)) };
        }
        drop(notes);
        let others: Vec<Arc<Pod>> =
            self.allocated_pods().into_iter().filter(|other| self.counts(other, pod)).collect();
        let pending = pending(pod, &self.allocatable(), &others);
        let mut notes = memory.notes.lock();
        notes.resize_pending.clone_from(&pending);
        match pending {
            None => {
                notes.allocated = Some(wanted);
                pod.clone()
            }
            Some(_) => Arc::new(with(pod, &known)),
        }
    }

    /// Something ended: others may have room now for what they ask for.
    pub(super) fn wake_deferred(&self) {
        let memories = self.memories.lock();
        let waits =
            memories.iter().filter(|(_, memory)| memory.notes.lock().resize_pending.is_some());
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
    pub(super) fn resize_pod(&self, pod: &Pod, found: &Found, memory: &Memory) {
        let whole = pod::spec(pod).resources.clone();
        let is_new = memory.notes.lock().enforced != whole;
        if !is_new || found.sandbox().is_none() || pod::is_deleting(pod) {
            return;
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

/// Why a pod cannot have what it asks for, if it cannot.
fn pending(pod: &Pod, allocatable: &Amounts, others: &[Arc<Pod>]) -> Option<(String, String)> {
    for (name, requested) in admission::requests(pod) {
        let capacity = allocatable.get(&name).copied().unwrap_or(i64::MAX);
        if requested > capacity {
            let text = format!(
                "Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}"
            );
            return Some(("Infeasible".to_owned(), text));
        }
    }
    let refused = admission::fits(pod, allocatable, others).err()?;
    Some(("Deferred".to_owned(), refused.message))
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
    fn a_pod_gets_more_when_it_fits() {
        let allocatable = [("cpu".to_owned(), 2000), ("pods".to_owned(), 10)].into();
        let other = [Arc::new(pod("1500m"))];
        let check = |cpu: &str, others: &[Arc<Pod>], expected: Option<&str>| {
            let said = pending(&pod(cpu), &allocatable, others);
            assert_eq!(said.map(|(reason, _)| reason).as_deref(), expected, "{cpu}");
        };
        check("2", &[], None);
        check("3", &[], Some("Infeasible"));
        check("500m", &other, None);
        check("1", &other, Some("Deferred"));
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
