//! Admission as the worker does it: once for each pod, one pod after another, so that two do not
//! both get what only one can have.
use super::evict::PREEMPTING;
use super::{Evicted, Kubelet, Memory, SyncError};
use crate::admission::{self, Place, Refusal};
use crate::container::resources::is_critical;
use crate::eviction::REASON;
use crate::found::Found;
use crate::node;
use crate::pod;
use crate::runtime::cri;
use api::names::NamespacedName;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a pod may take that makes room: upstream's (`killPodNow`).
fn longest(pod: &Pod) -> Duration {
    let grace = pod::grace(pod).unsigned_abs();
    Duration::from_secs((grace + grace / 2).max(10))
}

impl Kubelet {
    pub(super) async fn admit(
        &self,
        pod: &Arc<Pod>,
        found: &Found,
        memory: &Memory,
    ) -> Result<(), SyncError> {
        {
            let mut notes = memory.notes.lock();
            // What runs was admitted by the kubelet before this one.
            let known = notes.admitted || notes.failed.is_some() || !found.sandboxes.is_empty();
            if known || pod::is_terminal(pod) || pod::is_deleting(pod) {
                notes.admitted |= !found.sandboxes.is_empty();
                return Ok(());
            }
        }
        if let Some(refusal) = self.going_down.refusal() {
            return self.refuse(pod, memory, refusal);
        }
        if let Some(message) = self.pressure.refuses(pod) {
            return self.refuse(pod, memory, Refusal { reason: REASON.to_owned(), message });
        }
        let labels = node::labels(&self.config);
        let groups = !admission::wants_strict_groups(pod) || self.has_strict_groups().await;
        let mut judged = self.judge(pod, memory, &labels, groups);
        if judged.as_ref().is_err_and(Refusal::is_of_labels) {
            let node = self.client.get::<Node>("", &self.config.node_name).await?;
            let node: Node = node.decode().map_err(|error| SyncError::Other(error.to_string()))?;
            let labels = node.metadata.labels.unwrap_or_default();
            judged = self.judge(pod, memory, &labels, groups);
        }
        match judged {
            Err(refusal) => self.refuse(pod, memory, refusal),
            Ok(gone) => {
                for other in gone {
                    self.until_over(pod::uid(&other), longest(&other)).await;
                }
                let granted = self.grant_own(pod).await;
                if granted.is_err() {
                    memory.notes.lock().admitted = false;
                }
                granted.or_else(|refusal| self.refuse(pod, memory, refusal))
            }
        }
    }

    /// What is a container's own: devices, processors and memory, near each other if they are to be.
    async fn grant_own(&self, pod: &Pod) -> Result<(), Refusal> {
        let near = self.near(pod)?;
        self.grant_devices(pod, &near).await?;
        self.grant_memory(pod, &near)?;
        self.grant_cpus(pod, &near).await
    }

    fn refuse(&self, pod: &Pod, memory: &Memory, refusal: Refusal) -> Result<(), SyncError> {
        let Refusal { reason, message } = refusal;
        let told = format!("Pod was rejected: {message}");
        memory.notes.lock().failed = Some((reason.clone(), told));
        self.warn(pod, None, &reason, &message);
        Ok(())
    }

    /// Pods that make room have to be over before this one begins.
    fn judge(
        &self,
        pod: &Arc<Pod>,
        memory: &Memory,
        labels: &BTreeMap<String, String>,
        has_strict_groups: bool,
    ) -> Result<Vec<Arc<Pod>>, Refusal> {
        let _one_at_a_time = self.admitting.lock();
        let others: Vec<Arc<Pod>> =
            self.allocated_pods().into_iter().filter(|other| self.counts(other, pod)).collect();
        let place = Place {
            node_name: &self.config.node_name,
            labels,
            allocatable: &self.allocatable(),
            others: &others,
            sysctls: &self.config.allowed_sysctls,
            has_app_armor: Path::new("/sys/kernel/security/apparmor").exists(),
            has_strict_groups,
            taints: &self.taints(),
        };
        let mut gone = Vec::new();
        match admission::admit(pod, &place) {
            Err(refusal) if refusal.is_of_room() && is_critical(pod) => {
                admission::besides_room(pod, &place)?;
                let short = admission::shortages(pod, place.allocatable, place.others);
                gone = admission::victims(pod, place.others, &short)?;
                let resource = short.first().map_or("", |one| one.resource.as_str());
                gone.iter().for_each(|other| self.preempt(other, resource));
            }
            judged => judged?,
        }
        memory.notes.lock().admitted = true;
        Ok(gone)
    }

    /// The pod has to go for one that the cluster cannot do without.
    fn preempt(&self, pod: &Pod, resource: &str) {
        let message = "Preempted in order to admit critical pod".to_owned();
        self.warn(pod, None, PREEMPTING, &message);
        let labels = [("preemption_signal", resource)];
        self.context.metrics().count("kubelet_preemptions", &labels);
        let grace = pod::grace(pod);
        let evicted = Evicted { reason: PREEMPTING, message, grace, for_the_node: true };
        self.end_early(pod, evicted);
    }

    /// The node's taints; before the API has told them, those that it registers with.
    fn taints(&self) -> Vec<Taint> {
        let key = NamespacedName::new("", &self.config.node_name);
        let reading = self.node.read();
        match reading.get(&key) {
            Some(node) => {
                let spec = node.spec.as_ref();
                spec.and_then(|spec| spec.taints.clone()).unwrap_or_default()
            }
            None => self.config.taints.clone(),
        }
    }

    async fn has_strict_groups(&self) -> bool {
        let answer = self.runtime.status(cri::StatusRequest::default()).await;
        let features = answer.ok().and_then(|answer| answer.features);
        features.is_some_and(|features| features.supplemental_groups_policy)
    }

    /// What pods may ask for, with the devices that there are now.
    pub(super) fn allocatable(&self) -> admission::Amounts {
        let mut all = node::allocatable(&self.config, &self.facts);
        all.extend(self.devices.amounts().into_iter().map(|(name, (_, healthy))| (name, healthy)));
        all
    }

    /// Whether another pod has been admitted and has not ended.
    pub(super) fn counts(&self, other: &Pod, pod: &Pod) -> bool {
        if pod::uid(other) == pod::uid(pod) || pod::is_terminal(other) {
            return false;
        }
        let memory = self.memories.lock().get(pod::uid(other)).cloned();
        let Some(memory) = memory else { return pod::status(other).start_time.is_some() };
        let notes = memory.notes.lock();
        let phase = notes.told.as_ref().and_then(|told| told.status.phase.as_deref());
        let has_ended = notes.failed.is_some() || matches!(phase, Some("Succeeded" | "Failed"));
        (notes.admitted || pod::status(other).start_time.is_some()) && !has_ended
    }
}
