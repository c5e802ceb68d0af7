//! How many pods have ended, and how.
use super::{LONGEST_PAUSE, PAUSE, index, is_tracked};
use crate::pods;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;
use std::sync::Arc;

pub struct Count {
    pub active: Vec<Arc<Pod>>,
    ready: i32,
    terminating: i32,
    /// All that ended well: for an indexed job, indexes.
    pub succeeded: i32,
    pub failed: i32,
    pub completed: BTreeSet<i32>,
    /// Those whose pods are still to be let go.
    uncounted: UncountedTerminatedPods,
    /// Those that are in the uncounted ones of the status, and still have their finalizer.
    pub written: Vec<Arc<Pod>>,
    /// Numbers that no longer need a list.
    counted: (i32, i32),
    /// When the pods failed that did, the last first, until one that did not.
    failures: Vec<Timestamp>,
}

impl Count {
    pub fn of(job: &Job, spec: &JobSpec, all: &[Arc<Pod>]) -> Count {
        let status = job.status.clone().unwrap_or_default();
        let is_indexed = spec.completion_mode.as_deref() == Some("Indexed");
        let listed = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let (well, badly) =
            (listed.succeeded.unwrap_or_default(), listed.failed.unwrap_or_default());
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        let has_ended_well = |pod: &Pod| pods::phase(pod) == "Succeeded";
        let has_failed = |pod: &Pod| {
            pods::phase(pod) == "Failed"
                || (pod.metadata.deletion_timestamp.is_some() && !has_ended_well(pod))
        };
        let tracked = |uid_: &String| all.iter().any(|pod| uid(pod) == *uid_ && is_tracked(pod));
        let is_listed = |pod: &Pod| well.contains(&uid(pod)) || badly.contains(&uid(pod));

        // What was listed and is let go is counted for good.
        let (well_kept, well_gone): (Vec<_>, Vec<_>) = well.iter().cloned().partition(tracked);
        let (bad_kept, bad_gone): (Vec<_>, Vec<_>) = badly.iter().cloned().partition(tracked);
        let counted = (
            status.succeeded.unwrap_or_default() + well_gone.len() as i32,
            status.failed.unwrap_or_default() + bad_gone.len() as i32,
        );
        let new = |which: &dyn Fn(&Pod) -> bool| -> Vec<String> {
            let ended = all.iter().filter(|pod| is_tracked(pod) && which(pod) && !is_listed(pod));
            ended.map(|pod| uid(pod)).collect()
        };
        let completed =
            if is_indexed { index::completed(&status, all, spec) } else { BTreeSet::new() };
        let (new_well, new_badly) = (new(&has_ended_well), new(&has_failed));
        let succeeded = match is_indexed {
            true => completed.len() as i32,
            false => counted.0 + (well_kept.len() + new_well.len()) as i32,
        };
        let failed = counted.1 + (bad_kept.len() + new_badly.len()) as i32;
        let active: Vec<_> = all.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        Count {
            ready: active.iter().filter(|pod| pods::is_ready(pod)).count() as i32,
            terminating: all.iter().filter(|pod| pods::is_terminating(pod)).count() as i32,
            active,
            succeeded,
            failed,
            completed,
            uncounted: UncountedTerminatedPods {
                succeeded: some([well_kept, new_well].concat()),
                failed: some([bad_kept, new_badly].concat()),
            },
            written: all.iter().filter(|pod| is_tracked(pod) && is_listed(pod)).cloned().collect(),
            counted,
            failures: failures(all),
        }
    }

    /// Every pod has ended and is counted.
    pub fn is_settled(&self) -> bool {
        let UncountedTerminatedPods { succeeded, failed } = &self.uncounted;
        self.active.is_empty() && self.terminating == 0 && succeeded.is_none() && failed.is_none()
    }

    /// After a failure, the next pod has to wait.
    pub fn pause_ends(&self) -> Option<Timestamp> {
        let last = self.failures.first()?;
        let doubled = PAUSE * 2_i32.pow((self.failures.len() as u32 - 1).min(10));
        Some(*last + doubled.min(LONGEST_PAUSE))
    }

    pub fn write(&self, status: &mut JobStatus, is_indexed: bool) {
        let number = |number: i32| (number != 0).then_some(number);
        status.active = number(self.active.len() as i32);
        status.ready = Some(self.ready);
        status.terminating = Some(self.terminating);
        status.succeeded = number(if is_indexed { self.succeeded } else { self.counted.0 });
        status.failed = number(self.counted.1);
        status.uncounted_terminated_pods = Some(self.uncounted.clone());
        status.completed_indexes = is_indexed.then(|| index::format(&self.completed));
        status.completed_indexes = status.completed_indexes.take().filter(|all| !all.is_empty());
    }
}

fn some(list: Vec<String>) -> Option<Vec<String>> {
    (!list.is_empty()).then_some(list)
}

fn failures(all: &[Arc<Pod>]) -> Vec<Timestamp> {
    let mut ended: Vec<_> = all
        .iter()
        .filter(|pod| pods::is_finished(pod))
        .filter_map(|pod| Some((ended_at(pod)?, pods::phase(pod) == "Failed")))
        .collect();
    ended.sort_by(|a, b| b.cmp(a));
    ended.into_iter().take_while(|(_, failed)| *failed).map(|(at, _)| at).collect()
}

/// When the last container ended; else when the pod was no longer ready, or was made.
fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.as_ref()?.container_statuses.iter().flatten();
    let ended =
        statuses.filter_map(|it| it.state.as_ref()?.terminated.as_ref()?.finished_at.clone());
    let ready = pods::condition(pod, "Ready").and_then(|it| it.last_transition_time.clone());
    let created = pod.metadata.creation_timestamp.clone();
    ended.max().or(ready).or(created).map(|time| time.0)
}
