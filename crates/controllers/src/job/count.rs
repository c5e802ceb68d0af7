//! How many pods have ended, and how.
use super::policy::{self, Failure};
use super::{LONGEST_PAUSE, PAUSE, has, index, is_tracked};
use crate::pods;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// As many as the status lists at a time; the others have their turn when these are let go: upstream's
/// `MaxUncountedPods`.
const MOST_UNCOUNTED: usize = 500;

pub struct Count {
    pub active: Vec<Arc<Pod>>,
    ready: i32,
    /// On their way out, and not there yet.
    pub leaving: Vec<Arc<Pod>>,
    /// All that ended well: for an indexed job, indexes.
    pub succeeded: i32,
    pub failed: i32,
    pub completed: BTreeSet<i32>,
    pub failed_indexes: BTreeSet<i32>,
    /// By index, the failed pod that the next one is made after: it is kept until then, since it
    /// knows how often the index has failed.
    pub replaced: BTreeMap<i32, Arc<Pod>>,
    /// Those whose pods are still to be let go.
    uncounted: UncountedTerminatedPods,
    /// Those that are in the uncounted ones of the status, or do not count, and still have their
    /// finalizer.
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
        let has_ended_well = |pod: &Pod| pods::phase(pod) == "Succeeded";
        let is_ignored = |pod: &Pod| {
            policy::has_failed(spec, pod) && policy::failure(spec, pod) == Failure::Ignored
        };
        let tracked: HashSet<&str> =
            all.iter().filter(|pod| is_tracked(pod)).map(|pod| uid(pod)).collect();
        let listed: HashSet<&str> = well.iter().chain(&badly).map(String::as_str).collect();
        let is_listed = |pod: &Pod| listed.contains(uid(pod));

        // What was listed and is let go is counted for good.
        let is_kept = |uid: &String| tracked.contains(uid.as_str());
        let (well_kept, well_gone): (Vec<_>, Vec<_>) = well.iter().cloned().partition(is_kept);
        let (bad_kept, bad_gone): (Vec<_>, Vec<_>) = badly.iter().cloned().partition(is_kept);
        let counted = (
            status.succeeded.unwrap_or_default() + well_gone.len() as i32,
            status.failed.unwrap_or_default() + bad_gone.len() as i32,
        );
        let new = |which: &dyn Fn(&Pod) -> bool| -> Vec<String> {
            let ended = all.iter().filter(|pod| is_tracked(pod) && which(pod) && !is_listed(pod));
            ended.map(|pod| uid(pod).to_owned()).collect()
        };
        let completed =
            if is_indexed { index::completed(&status, all, spec) } else { BTreeSet::new() };
        let has_limits = is_indexed && spec.backoff_limit_per_index.is_some();
        let failed_indexes =
            if has_limits { index::failed(&status, all, spec) } else { BTreeSet::new() };
        let active: Vec<_> = all.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        // When it is over, nobody comes after anybody.
        let is_over = has(job, "FailureTarget") || has(job, "SuccessCriteriaMet");
        let mut replaced = BTreeMap::new();
        if has_limits && !is_over {
            replaced = last_failed(all, spec);
            let taken: BTreeSet<i32> = active.iter().filter_map(|pod| index::of(pod)).collect();
            let all = [&completed, &failed_indexes, &taken];
            replaced.retain(|index, _| !all.iter().any(|all| all.contains(index)));
        }
        let kept: HashSet<&str> = replaced.values().map(|pod| uid(pod)).collect();
        let is_kept = |pod: &Pod| kept.contains(uid(pod));
        let counts = |pod: &Pod| policy::has_failed(spec, pod) && !is_ignored(pod);
        let (mut new_well, mut new_badly) =
            (new(&has_ended_well), new(&|pod: &Pod| counts(pod) && !is_kept(pod)));
        let kept_back =
            all.iter().filter(|pod| is_kept(pod) && counts(pod) && !is_listed(pod)).count();
        let succeeded = match is_indexed {
            true => completed.len() as i32,
            false => counted.0 + (well_kept.len() + new_well.len()) as i32,
        };
        let failed = counted.1 + (bad_kept.len() + new_badly.len() + kept_back) as i32;
        let room = MOST_UNCOUNTED.saturating_sub(well_kept.len() + bad_kept.len());
        new_well.truncate(room);
        new_badly.truncate(room - new_well.len());
        let is_written = |pod: &&Arc<Pod>| {
            is_tracked(pod) && (is_listed(pod) || (is_ignored(pod) && !is_kept(pod)))
        };
        let written = all.iter().filter(is_written).cloned().collect();
        Count {
            ready: active.iter().filter(|pod| pods::is_ready(pod)).count() as i32,
            leaving: all.iter().filter(|pod| pods::is_terminating(pod)).cloned().collect(),
            active,
            succeeded,
            failed,
            completed,
            failed_indexes,
            uncounted: UncountedTerminatedPods {
                succeeded: some([well_kept, new_well].concat()),
                failed: some([bad_kept, new_badly].concat()),
            },
            written,
            replaced,
            counted,
            failures: failures(all),
        }
    }

    /// Every pod has ended and is counted.
    pub fn is_settled(&self) -> bool {
        let UncountedTerminatedPods { succeeded, failed } = &self.uncounted;
        let is_counted = succeeded.is_none() && failed.is_none() && self.replaced.is_empty();
        self.active.is_empty() && self.leaving.is_empty() && is_counted
    }

    /// After a failure, the next pod has to wait.
    pub fn pause_ends(&self, now: Timestamp) -> Option<Timestamp> {
        pause_after(*self.failures.first()?, self.failures.len(), now)
    }

    /// The same for one index that has a limit of its own.
    pub fn index_pause_ends(&self, index: i32, now: Timestamp) -> Option<Timestamp> {
        let last = self.replaced.get(&index)?;
        pause_after(ended_at(last)?, index::failures(last) as usize, now)
    }

    pub fn write(&self, status: &mut JobStatus, spec: &JobSpec) {
        let is_indexed = spec.completion_mode.as_deref() == Some("Indexed");
        let number = |number: i32| (number != 0).then_some(number);
        status.active = number(self.active.len() as i32);
        status.ready = Some(self.ready);
        status.terminating = Some(self.leaving.len() as i32);
        status.succeeded = number(if is_indexed { self.succeeded } else { self.counted.0 });
        status.failed = number(self.counted.1);
        status.uncounted_terminated_pods = Some(self.uncounted.clone());
        status.completed_indexes = is_indexed.then(|| index::format(&self.completed));
        status.completed_indexes = status.completed_indexes.take().filter(|all| !all.is_empty());
        if is_indexed && spec.backoff_limit_per_index.is_some() {
            status.failed_indexes = Some(index::format(&self.failed_indexes));
        }
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// When it ends; none if it has ended. A failure far in the future says that a clock was set back
/// since: upstream (`getRemainingTimeForFailuresCount`) waits until that future has come.
fn pause_after(last: Timestamp, failures: usize, now: Timestamp) -> Option<Timestamp> {
    let ends = last + pause(failures);
    (ends > now && last <= now + LONGEST_PAUSE).then_some(ends)
}

fn pause(failures: usize) -> SignedDuration {
    let doubled = PAUSE * 2_i32.pow((failures.max(1) as u32 - 1).min(10));
    doubled.min(LONGEST_PAUSE)
}

/// By index, the pod that failed last.
fn last_failed(all: &[Arc<Pod>], spec: &JobSpec) -> BTreeMap<i32, Arc<Pod>> {
    let mut last: BTreeMap<i32, Arc<Pod>> = BTreeMap::new();
    for pod in all.iter().filter(|pod| is_tracked(pod) && policy::has_failed(spec, pod)) {
        let Some(index) = index::of(pod) else { continue };
        let order = |pod: &Pod| (index::failures(pod), ended_at(pod));
        let is_later = last.get(&index).is_none_or(|known| order(known) <= order(pod));
        if is_later {
            last.insert(index, pod.clone());
        }
    }
    last
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
