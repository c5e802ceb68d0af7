//! Resources that change while a pod runs: what a pod is given is what it asks for once that fits;
//! until then it keeps what it has, and a condition says so (`pkg/kubelet/allocation`).
use super::allocations::Allocated;
use super::{Kubelet, Memory, SyncError};
use crate::admission::{self, Refusal};
use crate::cgroups;
use crate::container::resources::{self, Enforcement};
use crate::found::Found;
use crate::plan::Plan;
use crate::pod::{self, Role};
use crate::runtime::cri;
use api::quantity::Quantity;
use api::rules::qos_class;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceClaim, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource as api_core;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

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

/// What of the node makes some changes impossible.
struct Settings<'a> {
    enforcement: &'a Enforcement,
    /// Containers may have processors, or memory, for themselves.
    has_cpus: bool,
    has_memory: bool,
}

/// Whether a change could be made if there were room for it (`podResizesAdmitHandler`).
fn feasible(pod: &Pod, given: &Pod, settings: &Settings<'_>) -> Result<(), Refusal> {
    let refused = |message: &str| Err(Refusal::new(INFEASIBLE, message));
    let changed = |name: &str| -> Vec<Container> {
        let of = |one: &Container| {
            let requests = one.resources.as_ref().and_then(|all| all.requests.as_ref());
            requests.and_then(|all| all.get(name)).and_then(|text| Quantity::parse(&text.0).ok())
        };
        let both = pod::containers(pod).zip(pod::containers(given));
        both.filter(|((_, wanted), (_, has))| of(wanted) != of(has))
            .map(|((_, wanted), _)| wanted.clone())
            .collect()
    };
    let begins_again = |one: &Container| {
        let mut policies = one.resize_policy.iter().flatten();
        policies
            .any(|one| one.resource_name == "memory" && one.restart_policy == "RestartContainer")
    };
    let may_swap = |pod: &Pod, name: &str| {
        let own = pod::container(pod, name);
        own.is_some_and(|(_, one)| resources::may_swap(pod, &one, settings.enforcement))
    };
    let swaps = |one: &Container| may_swap(pod, &one.name) || may_swap(given, &one.name);
    if changed("memory").iter().any(|one| !begins_again(one) && swaps(one)) {
        return refused("In-place resize of containers with swap is not supported.");
    }
    if qos_class(&json!(pod.spec)) != "Guaranteed" {
        return Ok(());
    }
    if settings.has_cpus && !changed("cpu").is_empty() {
        return refused(
            "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"",
        );
    }
    if settings.has_memory && !changed("memory").is_empty() {
        return refused(
            "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"",
        );
    }
    Ok(())
}

/// What an event says: what the pod asks for, as JSON in upstream's order (`pkg/kubelet/events/resize.go`).
fn summary(what: &str, pod: &Pod, generation: i64, error: &str) -> String {
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
    limits: Option<BTreeMap<String, api_core::Quantity>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<BTreeMap<String, api_core::Quantity>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claims: Option<Vec<ResourceClaim>>,
}

impl Asked {
    fn by(container: &Container) -> Asked {
        let ResourceRequirements { limits, requests, claims } = of(container);
        let resources = AskedResources { limits, requests, claims };
        Asked { name: container.name.clone(), resources }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(cpu: &str) -> Pod {
        let container = json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } });
        serde_json::from_value(json!({ "metadata": {}, "spec": { "containers": [container] } }))
            .unwrap()
    }

    fn sized(cpu: &str, memory: &str, is_guaranteed: bool) -> Pod {
        let amounts = json!({ "cpu": cpu, "memory": memory });
        let mut resources = json!({ "requests": amounts });
        if is_guaranteed {
            resources["limits"] = amounts;
        }
        let container = json!({ "name": "c", "resources": resources });
        serde_json::from_value(json!({ "metadata": {}, "spec": { "containers": [container] } }))
            .unwrap()
    }

    #[test]
    fn what_a_container_has_for_itself_is_not_changed() {
        let check = |has_cpus, has_memory, to: Pod, expected: Option<&str>| {
            let enforcement = &Enforcement::default();
            let settings = Settings { enforcement, has_cpus, has_memory };
            let is_guaranteed = qos_class(&json!(to.spec)) == "Guaranteed";
            let said = feasible(&to, &sized("1", "1Gi", is_guaranteed), &settings);
            let said = said.err().map(|refusal| {
                assert_eq!(refusal.reason, "Infeasible");
                refusal.message
            });
            assert_eq!(said.as_deref(), expected);
        };
        let cpu =
            "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"";
        let memory =
            "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"";
        check(true, true, sized("2", "1Gi", true), Some(cpu));
        check(true, true, sized("1", "2Gi", true), Some(memory));
        check(true, true, sized("1000m", "1024Mi", true), None);
        check(true, true, sized("2", "2Gi", false), None);
        check(true, false, sized("1", "2Gi", true), None);
        check(false, false, sized("2", "2Gi", true), None);
    }

    #[test]
    fn what_swaps_keeps_its_memory() {
        let swaps = Enforcement {
            limited_swap: true,
            memory: 8 << 30,
            swap: 1 << 30,
            ..Default::default()
        };
        let settings = Settings { enforcement: &swaps, has_cpus: false, has_memory: false };
        let given = sized("1", "1Gi", false);
        let said = feasible(&sized("1", "2Gi", false), &given, &settings).unwrap_err();
        assert_eq!(said.message, "In-place resize of containers with swap is not supported.");
        assert!(feasible(&sized("2", "1Gi", false), &given, &settings).is_ok());
        let again = |mut pod: Pod| {
            let policy = json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
            let container = &mut pod.spec.as_mut().unwrap().containers[0];
            container.resize_policy = serde_json::from_value(policy).unwrap();
            pod
        };
        let (to, given) = (again(sized("1", "2Gi", false)), again(given));
        assert!(feasible(&to, &given, &settings).is_ok());
    }

    #[test]
    fn events_say_what_is_asked_for() {
        let text = summary("OutOfcpu", &sized("2", "1Gi", true), 3, "no room");
        let amounts = r#"{"cpu":"2","memory":"1Gi"}"#;
        let resources = format!(r#"{{"limits":{amounts},"requests":{amounts}}}"#);
        let containers = format!(r#"[{{"name":"c","resources":{resources}}}]"#);
        let expected = format!(
            r#"Pod resize OutOfcpu: {{"containers":{containers},"generation":3,"error":"no room"}}"#
        );
        assert_eq!(text, expected);
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
