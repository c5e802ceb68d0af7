//! A pod that has to go for the sake of the node: it fails, and does not come back.
use super::Kubelet;
use crate::pod;
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashSet;
use std::time::Duration;

/// What an evicted pod is told.
#[derive(Debug, Clone)]
pub struct Evicted {
    pub reason: &'static str,
    pub message: String,
    /// Seconds that its containers have left.
    pub grace: i64,
    /// Not for what it did itself: whoever made it may count that differently (`DisruptionTarget`).
    pub for_the_node: bool,
}

pub const PREEMPTING: &str = "Preempting";

impl Evicted {
    /// What the condition `DisruptionTarget` says, if the pod went for the sake of the node.
    pub fn disruption(&self) -> Option<&str> {
        self.for_the_node.then_some(match self.reason {
            PREEMPTING => "Pod was preempted by Kubelet to accommodate a critical pod.",
            _ => &self.message,
        })
    }
}

impl Kubelet {
    /// Whether something of a pod runs here or will.
    pub fn is_active(&self, pod: &Pod) -> bool {
        let memory = self.memories.lock().get(pod::uid(pod)).cloned();
        let Some(memory) = memory else { return false };
        let notes = memory.notes.lock();
        notes.admitted && notes.failed.is_none() && !notes.is_over && !pod::is_terminal(pod)
    }

    /// Whether a pod still has what it was given: devices.
    pub fn holds(&self, uid: &str) -> bool {
        let memory = self.memories.lock().get(uid).cloned();
        let is_over = memory.is_some_and(|memory| memory.notes.lock().is_over);
        !is_over && self.pod(uid).is_some_and(|pod| !pod::is_terminal(&pod))
    }

    /// Pods that have ended and are still known, by their uids.
    pub fn ended_pods(&self) -> HashSet<String> {
        let ended = self.all_pods().into_iter().filter(|pod| {
            let phase = self.last_status(pod).phase;
            matches!(phase.as_deref(), Some("Succeeded" | "Failed"))
        });
        ended.map(|pod| pod::uid(&pod).to_owned()).collect()
    }

    pub fn evict(&self, pod: &Pod, evicted: Evicted, signal: &'static str) {
        self.warn(pod, None, evicted.reason, &evicted.message);
        self.counters.eviction(signal);
        self.end_early(pod, evicted);
    }

    /// Ends a pod before its time.
    pub fn end_early(&self, pod: &Pod, evicted: Evicted) {
        let memory = self.memory(pod::uid(pod));
        {
            let mut notes = memory.notes.lock();
            notes.failed = Some((evicted.reason.to_owned(), evicted.message.clone()));
            notes.evicted = Some(evicted);
        }
        memory.changed.notify_waiters();
        self.queue.add(pod::uid(pod).to_owned());
    }

    /// Waits until nothing of a pod runs any more, but not for ever.
    pub async fn until_over(&self, uid: &str, limit: Duration) {
        let memory = self.memory(uid);
        let over = async {
            loop {
                let mut told = std::pin::pin!(memory.over.notified());
                told.as_mut().enable();
                if memory.notes.lock().is_over {
                    return;
                }
                told.await;
            }
        };
        tokio::select! {
            () = over => {}
            _ = self.context.sleep(limit) => {}
        }
    }
}
