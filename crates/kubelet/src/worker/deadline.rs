//! `activeDeadlineSeconds`: a pod has so long since it was started, then it has failed.
use super::{Kubelet, Memory};
use crate::pod;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;

const REASON: &str = "DeadlineExceeded";
const MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

impl Kubelet {
    /// What is left of a pod's time; when nothing is, it fails.
    pub(super) fn deadline(&self, pod: &Pod, memory: &Memory) -> Option<Duration> {
        let seconds = pod::spec(pod).active_deadline_seconds?;
        let started = self.last_status(pod).start_time?.0;
        if pod::is_terminal(pod) || pod::is_deleting(pod) || memory.notes.lock().failed.is_some() {
            return None;
        }
        let passed = self.context.now().duration_since(started);
        let left = Duration::try_from(SignedDuration::from_secs(seconds).saturating_sub(passed));
        if let Some(left) = left.ok().filter(|left| !left.is_zero()) {
            return Some(left);
        }
        memory.notes.lock().failed = Some((REASON.to_owned(), MESSAGE.to_owned()));
        self.note(pod, None, REASON, MESSAGE);
        None
    }
}
