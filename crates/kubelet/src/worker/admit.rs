//! Admission as the worker does it: once for each pod, one pod after another, so that two do not
//! both get what only one can have.
use super::{Kubelet, Memory, SyncError};
use crate::admission::{self, Place, Refusal};
use crate::eviction::REASON;
use crate::found::Found;
use crate::node;
use crate::pod;
use k8s_openapi::api::core::v1::{Node, Pod};
use std::path::Path;
use std::sync::Arc;

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
        let mut judged = self.judge(pod, memory, &labels);
        if judged.as_ref().is_err_and(Refusal::is_of_labels) {
            let node = self.client.get::<Node>("", &self.config.node_name).await?;
            let node: Node = node.decode().map_err(|error| SyncError::Other(error.to_string()))?;
            judged = self.judge(pod, memory, &node.metadata.labels.unwrap_or_default());
        }
        match judged {
            Err(refusal) => self.refuse(pod, memory, refusal),
            Ok(()) => {
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

    fn judge(
        &self,
        pod: &Arc<Pod>,
        memory: &Memory,
        labels: &std::collections::BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
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
        };
        admission::admit(pod, &place)?;
        memory.notes.lock().admitted = true;
        Ok(())
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
